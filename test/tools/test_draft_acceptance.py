"""How often drafts stand: counted right, on ticks that drive by themselves."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from alpamayo_ros.tools.draft_acceptance import DraftedTick, acceptance, by_sentence, main

KEEP, STOP = "Keep the lane.", "Stop."
TICKS = [
    DraftedTick(KEEP, KEEP, draft_tokens=6, tokens=6, accepted=6),
    DraftedTick(KEEP, STOP, draft_tokens=6, tokens=4, accepted=0),
    DraftedTick(STOP, STOP, draft_tokens=4, tokens=4, accepted=4),
    DraftedTick(KEEP, "Keep the lane now.", draft_tokens=6, tokens=7, accepted=4),
]


def test_a_draft_stands_when_it_is_the_whole_reasoning() -> None:
    assert [tick.stood for tick in TICKS] == [True, False, True, False]


def test_counts_ticks_and_tokens() -> None:
    counted = acceptance(TICKS)
    assert (counted.ticks, counted.stood, counted.accepted, counted.tokens) == (4, 2, 14, 21)
    assert counted.share_of_ticks == 0.5
    assert counted.share_of_tokens == pytest.approx(14 / 21)


def test_counts_by_the_draft_the_most_frequent_first() -> None:
    counted = by_sentence(TICKS)
    assert list(counted) == [KEEP, STOP]
    assert (counted[KEEP].ticks, counted[KEEP].stood, counted[STOP].stood) == (3, 1, 1)


def test_drives_and_reports(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "drafts.json"
    arguments = ["--routes", "1", "--length", "60", "--temperature", "0", "--device", "cpu", "--out", str(out)]

    assert main(arguments) == 0

    told = capsys.readouterr().out
    written = json.loads(out.read_text())["acceptance"]
    assert written["all"]["ticks"] == sum(part["ticks"] for text, part in written.items() if text != "all") > 20
    assert f"{written['all']['tokens_accepted']} of {written['all']['tokens']}" in told
    # the small model states the same reason for seconds: most drafts stand, and none is longer than what was written
    assert written["all"]["ticks"] / 2 < written["all"]["stood_in_full"] <= written["all"]["ticks"]
    assert written["all"]["tokens_accepted"] <= written["all"]["tokens"]


def test_refuses_no_routes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--routes", "0"]) == 1
    assert "--routes 0: expected at least 1" in capsys.readouterr().err


def test_refuses_an_engine_that_writes_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--engine", "null", "--routes", "1", "--length", "60"])
    assert "invalid choice: 'null'" in capsys.readouterr().err

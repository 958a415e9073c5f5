"""The simulator's command: lines of JSON in, a line of JSON per tick out, the same every time, without ROS."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from scenarios import START, arriving, config, frames, odometry, run, ticks, write

from alpamayo_ros.evaluation.scenario import parse_scenario
from alpamayo_ros.evaluation.simulation import simulate as run_scenario
from alpamayo_ros.tools import simulate

SCENARIO = [config("wide"), *arriving(frames("wide", 30) + odometry() + ticks())]


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    path = tmp_path / "drive.jsonl"
    path.write_bytes(b"\n".join(write(SCENARIO)))
    return path


def test_prints_a_line_per_tick(scenario: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert simulate.main([str(scenario)]) == 0
    printed = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert printed == run(SCENARIO[0], SCENARIO[1:])
    assert sum(line["ok"] for line in printed) == 15


def test_says_on_stderr_how_many_ticks_there_were_of_each_kind(
    scenario: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    simulate.main([str(scenario)])
    assert capsys.readouterr().err == "15 ok, 15 skipped: 10 ego_history_short, 5 camera_gap\n"


def test_the_example_of_the_page_gives_the_output_beside_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = (Path(__file__).parents[2] / "docs" / "scenarios.md").read_text()
    path = tmp_path / "example.jsonl"
    path.write_text(page.split("## The file")[1].split("```")[1].strip() + "\n")
    shown = page.split("## What is printed")[1].split("```")[1].strip()
    simulate.main([str(path)])
    printed = capsys.readouterr()
    assert json.loads(shown.replace("\n", "")) == json.loads(printed.out)


def test_explains_skips_when_asked_to(scenario: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert simulate.main([str(scenario), "--explain"]) == 0
    first = json.loads(capsys.readouterr().out.splitlines()[0])
    assert first["reasons"]["ego_history_short"]["needed_s"] == 1.5


def test_every_run_of_it_prints_the_same_bytes_and_none_loads_ros_or_torch(scenario: Path) -> None:
    code = (
        "import sys; from alpamayo_ros.tools.simulate import main; main(sys.argv[1:]);"
        "print(sorted({'rclpy', 'torch', 'cv2'} & set(sys.modules)), file=sys.stderr)"
    )
    runs = [
        subprocess.run([sys.executable, "-c", code, str(scenario)], capture_output=True, check=True) for _ in range(2)
    ]
    assert runs[0].stdout == runs[1].stdout
    assert len(runs[0].stdout.splitlines()) == 30
    assert runs[0].stderr.decode().splitlines()[-1] == "[]"


def test_reads_the_standard_input(scenario: Path) -> None:
    command = [sys.executable, "-m", "alpamayo_ros.tools.simulate", "-"]
    got = subprocess.run(command, input=scenario.read_bytes(), capture_output=True, check=True)
    assert len(got.stdout.splitlines()) == 30


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "line 1: the scenario is empty"),
        (b'{"type": "tick"}', "line 1: type is 'tick': the first line must be the configuration"),
        (json.dumps(SCENARIO[0]).encode() + b'\n{"at": 1, "type": "frme"}', "line 2: type is 'frme'"),
        (json.dumps(SCENARIO[0]).encode() + b'\n\n{"at": 1, "type": "frame"}', "line 3: camera is missing"),
        (bytes(range(256)), "line 1: it is no"),
    ],
)
def test_what_is_wrong_is_one_line_with_the_files_name_and_the_lines_number(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes, words: str
) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_bytes(content)
    assert simulate.main([str(path)]) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith(f"error: {path}, {words}")
    assert printed.err.count("\n") == 1


def test_a_file_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert simulate.main([str(tmp_path / "nothing.jsonl")]) == 1
    assert "nothing.jsonl can't be read: No such file" in capsys.readouterr().err


def test_a_field_that_means_nothing_is_a_warning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "noted.jsonl"
    path.write_bytes(b"\n".join(write([SCENARIO[0], {"at": START, "type": "tick", "note": "here"}])))
    assert simulate.main([str(path)]) == 0
    printed = capsys.readouterr()
    assert printed.err.splitlines() == [
        f"warning: {path}, line 2: note means nothing in an event of type tick; it is ignored",
        "0 ok, 1 skipped: 1 waiting_for_camera",
    ]
    assert len(printed.out.splitlines()) == 1


def test_a_reader_that_goes_away_is_no_error(tmp_path: Path) -> None:
    scenario = tmp_path / "long.jsonl"  # more than a pipe holds
    scenario.write_bytes(b"\n".join(write([config("wide"), *ticks(hz=1000)])))
    command = f"{sys.executable} -m alpamayo_ros.tools.simulate {scenario} | head -n 1"
    got = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, check=True)
    assert len(got.stdout.splitlines()) == 1
    assert got.stderr == ""


def test_the_scenarios_of_the_documentation_and_of_the_help_can_be_run() -> None:
    page = (Path(__file__).parents[2] / "docs" / "scenarios.md").read_text()
    documented = page.split("## The file")[1].split("```")[1]
    shown = simulate.build_parser().format_help()
    helped = shown[shown.index('{"type": "config"') : shown.index("Printed is")].replace(",\n   ", ", ")
    for text in (documented, helped):
        lines = [line.strip().encode() for line in text.strip().splitlines()]
        assert [line["at"] for line in run_scenario(parse_scenario(lines))] == [1.05 if text == documented else 1.03]

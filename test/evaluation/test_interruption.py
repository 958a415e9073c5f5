"""A signal ends a program as Ctrl-C does, with its own status, but never between two steps that belong together."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from alpamayo_ros.evaluation.interruption import SIGNALS, Interrupted, raise_on_signals, uninterrupted
from alpamayo_ros.evaluation.partial_folder import partial_folder, put_in_place


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in SIGNALS}
    raise_on_signals()
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_is_raised_with_the_status_that_shells_give_it(number: int, status: int) -> None:
    with pytest.raises(Interrupted) as caught:
        signal.raise_signal(number)
    assert caught.value.status == status


def test_a_signal_that_is_ignored_stays_so() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    raise_on_signals()
    signal.raise_signal(signal.SIGHUP)


def test_signals_wait_until_the_outermost_block_has_ended() -> None:
    done = []

    def work() -> None:
        with uninterrupted():
            with uninterrupted():
                signal.raise_signal(signal.SIGTERM)
                signal.raise_signal(signal.SIGINT)
                done.append("inner")
            done.append("outer")
        done.append("after")

    with pytest.raises(Interrupted) as caught:
        work()
    assert (done, caught.value.status) == (["inner", "outer"], 143)
    with uninterrupted():
        done.append("nothing waits any more")


def test_a_partial_folder_is_gone_although_more_signals_come(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unlink, removed = os.unlink, []

    def interrupted_unlink(*arguments: Any, **more: Any) -> None:
        signal.raise_signal(signal.SIGTERM)
        unlink(*arguments, **more)
        removed.append(arguments)

    def work() -> None:
        with partial_folder(tmp_path, "out") as folder:
            for number in range(5):
                (folder / str(number)).touch()
            raise Interrupted(signal.SIGINT)

    monkeypatch.setattr(os, "unlink", interrupted_unlink)
    with pytest.raises(Interrupted):
        work()
    assert len(removed) == 5
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_can_not_be_replaced_is_where_it_was(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "precious").touch()
    with pytest.raises(OSError, match="No such file"):
        put_in_place(tmp_path / "nothing", tmp_path / "old")
    assert os.listdir(tmp_path) == ["old"]
    assert (tmp_path / "old" / "precious").exists()

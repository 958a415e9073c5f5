"""Results appear whole or not at all, and never in place of something else."""

import json
from pathlib import Path

import pytest

from alpamayo_ros.core.types import ConfigurationError
from alpamayo_ros.evaluation.output_folder import FORMAT, REPORT, output_folder


def write(out: Path, text: str, *, overwrite: bool = False) -> None:
    with output_folder(out, overwrite=overwrite) as folder:
        (folder / REPORT).write_text(json.dumps({"format": FORMAT, "text": text}))
        (folder / text).touch()


def contents(out: Path) -> list[str]:
    return sorted(file.name for file in out.iterdir())


def test_results_are_there_when_all_is_written(tmp_path: Path) -> None:
    write(tmp_path / "deep" / "out", "first")
    assert contents(tmp_path / "deep" / "out") == ["first", REPORT]
    assert contents(tmp_path / "deep") == ["out"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_a_run_that_is_cut_short_leaves_nothing(tmp_path: Path, error: type[BaseException]) -> None:
    def run() -> None:
        with output_folder(tmp_path / "out", overwrite=False) as folder:
            (folder / REPORT).touch()
            raise error

    with pytest.raises(error):
        run()
    assert contents(tmp_path) == []


def test_it_leaves_the_earlier_results_as_well(tmp_path: Path) -> None:
    write(tmp_path / "out", "first")
    with pytest.raises(KeyboardInterrupt), output_folder(tmp_path / "out", overwrite=True):
        raise KeyboardInterrupt
    assert contents(tmp_path / "out") == ["first", REPORT]


def test_an_earlier_evaluation_is_replaced_only_on_request(tmp_path: Path) -> None:
    write(tmp_path / "out", "first")
    with pytest.raises(ConfigurationError, match=r"earlier evaluation.*--overwrite"):
        write(tmp_path / "out", "second")
    write(tmp_path / "out", "second", overwrite=True)
    assert contents(tmp_path / "out") == [REPORT, "second"]
    assert contents(tmp_path) == ["out"]


@pytest.mark.parametrize("report", [None, "{}", "not json", '{"format": "something else"}', "[]"])
def test_what_is_not_ours_is_never_replaced(tmp_path: Path, report: str | None) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "precious").touch()
    if report is not None:
        (out / REPORT).write_text(report)
    with pytest.raises(ConfigurationError, match="holds no evaluation"):
        write(out, "second", overwrite=True)
    assert (out / "precious").exists()


def test_a_file_in_the_way_is_named(tmp_path: Path) -> None:
    (tmp_path / "out").touch()
    with pytest.raises(ConfigurationError, match=str(tmp_path / "out")):
        write(tmp_path / "out", "first", overwrite=True)
    with pytest.raises(ConfigurationError, match="can't be written"):
        write(tmp_path / "out" / "below", "first")


def test_an_empty_folder_may_be_used(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    write(tmp_path / "out", "first")
    assert contents(tmp_path / "out") == ["first", REPORT]

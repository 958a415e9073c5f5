"""Results appear whole or not at all, and never in place of something else."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from alpamayo_ros.core.types import ConfigurationError
from alpamayo_ros.evaluation.output_folder import FORMAT, REPORT, check_output, output_folder


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


def test_the_current_folder_may_be_used_and_stays_the_current_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write(Path("."), "first")
    assert contents(Path(".")) == ["first", REPORT]
    write(Path("."), "second", overwrite=True)
    assert contents(Path(".")) == [REPORT, "second"]


def test_a_folder_stays_the_one_it_was_since_it_may_be_a_mount_point(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    inode = (tmp_path / "out").stat().st_ino
    write(tmp_path / "out", "first")
    write(tmp_path / "out", "second", overwrite=True)
    assert (tmp_path / "out").stat().st_ino == inode


def test_a_link_to_a_folder_leads_there(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "out").symlink_to(tmp_path / "disk")
    write(tmp_path / "out", "first")
    assert contents(tmp_path / "disk") == ["first", REPORT]


@pytest.mark.parametrize("inner", [OSError(28, "No space left on device"), None], ids=["file", "bag"])
def test_a_full_disk_is_named_with_the_place_and_leaves_nothing(tmp_path: Path, inner: OSError | None) -> None:
    def run() -> None:
        with output_folder(tmp_path / "out", overwrite=False):
            if inner is not None:
                raise inner
            raise ConfigurationError("the bag in it is no good") from OSError(28, "No space left on device")

    assert folder_error(run) == f"results can't be written to {tmp_path / 'out'}: [Errno 28] No space left on device"
    assert contents(tmp_path) == []


def test_a_name_that_is_too_long_is_refused_before_anything_runs(tmp_path: Path) -> None:
    assert "File name too long" in folder_error(lambda: check_output(tmp_path / ("x" * 300), overwrite=False))
    write(tmp_path / ("ö" * 120), "first")  # 240 of at most 255 bytes


def folder_error(run: Callable[[], None]) -> str:
    with pytest.raises(ConfigurationError) as caught:
        run()
    return str(caught.value)

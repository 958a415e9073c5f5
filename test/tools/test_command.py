import os
import subprocess
import sys
from pathlib import Path

import pytest

from alpamayo_ros.tools import evaluate_live, watch
from alpamayo_ros.tools.command import guarded, node_name, run_command

PROGRAM = """
import os, signal
from alpamayo_ros.tools.command import INTERRUPTED, run_command

def main():
    try:
        exec("import os, signal, time\\nos.kill(os.getpid(), signal.SIGINT)\\ntime.sleep(5)")
    except KeyboardInterrupt:
        {what}

run_command(main)
"""


@pytest.mark.parametrize("what", ["return INTERRUPTED", "raise"])
def test_an_interrupted_program_ends_with_130_wherever_the_interrupt_came(tmp_path: Path, what: str) -> None:
    (tmp_path / "program.py").write_text(PROGRAM.format(what=what))
    path = f"{tmp_path}:{Path(__file__).parents[2]}"
    command = [sys.executable, "-m", "program"]
    ended = subprocess.run(command, env={"PYTHONPATH": path}, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 130, ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize("status", [0, 1, 2])
def test_another_status_is_kept(status: int) -> None:
    with pytest.raises(SystemExit) as ended:
        run_command(lambda: status)
    assert ended.value.code == status


def test_a_reader_that_goes_away_is_no_error(tmp_path: Path) -> None:
    lines = "lambda: print(*range(10**5), sep=chr(10)) or 1"
    (tmp_path / "program.py").write_text(f"from alpamayo_ros.tools.command import run_command\nrun_command({lines})")
    command = f"{sys.executable} {tmp_path / 'program.py'} | head -n 1"
    environment = {"PYTHONPATH": str(Path(__file__).parents[2]), "PATH": os.environ["PATH"]}
    ended = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command], env=environment, capture_output=True, text=True, timeout=60
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "0\n", "")


def test_a_name_that_is_no_utf8_is_refused_before_the_work_and_not_after_it(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text("from alpamayo_ros.tools.command import run_command\nrun_command(lambda: 0)")
    environment = {"PYTHONPATH": str(Path(__file__).parents[2]), "LC_ALL": "C.UTF-8"}
    command = [sys.executable.encode(), b"program.py", b"--out", b"stra\xdfe"]
    ended = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 2
    assert ended.stderr == "error: 'stra\\udcdfe' is no UTF-8, which reports and pictures need: rename it\n"
    ended = subprocess.run([*command[:-1], "straße".encode()], env=environment, cwd=tmp_path, timeout=60, check=False)
    assert ended.returncode == 0


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_without_its_streams_it_does_its_work_and_nothing_is_printed_into_its_files(
    tmp_path: Path, closed: str
) -> None:
    program = """
import sys
from alpamayo_ros.tools.command import run_command

def main():
    with open("result", "w") as file:
        print("said")
        print("warned", file=sys.stderr)
        file.write("written")
    return 0

run_command(main)
"""
    (tmp_path / "program.py").write_text(program)
    environment = {"PYTHONPATH": str(Path(__file__).parents[2]), "PATH": os.environ["PATH"]}
    command = ["bash", "-c", f"{sys.executable} program.py {closed}"]
    ended = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stderr
    assert (tmp_path / "result").read_text() == "written"
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize(("name", "status"), [("SIGINT", 130), ("SIGTERM", 143)])
def test_a_signal_during_the_imports_is_no_traceback(tmp_path: Path, name: str, status: int) -> None:
    slow = f"import os, signal, time\nos.kill(os.getpid(), signal.{name})\ntime.sleep(20)\n"
    (tmp_path / "tqdm.py").write_text(slow)  # which make_bag imports
    command = [sys.executable, "-m", "alpamayo_ros.tools.make_bag", "--help"]
    path = f"{tmp_path}:{Path(__file__).parents[2]}"
    ended = subprocess.run(command, env={"PYTHONPATH": path}, capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stdout, ended.stderr) == (status, "", "\ninterrupted\n")


def test_a_file_that_fails_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    def full() -> int:
        raise OSError(28, "No space left on device", "results")

    assert guarded(full, unusable=2) == 2
    assert capsys.readouterr().err == "error: [Errno 28] No space left on device: 'results'\n"


@pytest.mark.parametrize("name", ["", "/", "a b", "/1st", "/a//b", "/a/", "~/a", "äöü"])
@pytest.mark.parametrize("program", [watch, evaluate_live], ids=lambda program: program.__name__.rpartition(".")[2])
def test_what_can_be_no_nodes_name_is_refused(program, name: str, capsys: pytest.CaptureFixture) -> None:
    with pytest.raises(SystemExit) as ended:
        program.main(["--config", "rig.yaml", "--out", "out", "--node", name][0 if program is evaluate_live else 4 :])
    assert ended.value.code == 2
    assert f"{name!r}: expected a node's name" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["/alpamayo", "alpamayo", "/vehicle_1/alpamayo"])
def test_a_nodes_name_is_taken_as_it_is(name: str) -> None:
    assert node_name(name) == name

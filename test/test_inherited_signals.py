import signal
import subprocess
import sys
from pathlib import Path

import pytest

PYTEST_IN_BACKGROUND = """
import os, runpy, signal, subprocess, sys
number = int(sys.argv[1])
signal.signal(number, signal.SIG_IGN)
runpy.run_path(sys.argv[2])
os.kill(os.getpid(), number)
print(subprocess.run(["sh", "-c", f"kill -{number} $$"]).returncode)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_a_signal_that_pytest_was_started_to_ignore_still_ends_what_it_starts(number: int) -> None:
    command = [
        sys.executable,
        "-c",
        PYTEST_IN_BACKGROUND,
        str(int(number)),
        str(Path(__file__).with_name("conftest.py")),
    ]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stdout) == (0, f"-{int(number)}\n"), ended.stderr

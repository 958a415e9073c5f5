import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# Holds the event's own lock while the signal comes, as wait() does for a moment.
PROGRAM = """
import os, signal, sys
from alpamayo_ros.stop_signals import stop_on_signals
stop = stop_on_signals()
with stop._cond:
    os.kill(os.getpid(), int(sys.argv[1]))
sys.exit(0 if stop.wait(20) else 1)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_that_comes_while_the_event_is_waited_for_sets_it(number: int) -> None:
    command = [sys.executable, "-c", PROGRAM, str(int(number))]
    assert subprocess.run(command, env={**os.environ, "PYTHONPATH": str(ROOT)}, timeout=60, check=False).returncode == 0


SLEEPER = """
import signal, sys, threading, time
from alpamayo_ros.stop_signals import stop_on_signals
stop = stop_on_signals()

def send():  # to this thread: the main one isn't woken up, as when the signal comes a moment before it falls asleep
    time.sleep(0.5)
    signal.pthread_kill(threading.get_ident(), int(sys.argv[1]))

threading.Thread(target=send).start()
stop.wait()
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_that_does_not_wake_the_main_thread_sets_it(number: int) -> None:
    command = [sys.executable, "-c", SLEEPER, str(int(number))]
    assert subprocess.run(command, env={**os.environ, "PYTHONPATH": str(ROOT)}, timeout=30, check=False).returncode == 0


def test_a_hangup_that_is_ignored_stays_so() -> None:
    program = "import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN)\n" + PROGRAM.replace("wait(20)", "wait(0.5)")
    command = [sys.executable, "-c", program, str(int(signal.SIGHUP))]
    assert subprocess.run(command, env={**os.environ, "PYTHONPATH": str(ROOT)}, timeout=60, check=False).returncode == 1


def test_no_handler_in_the_package_sets_an_event_itself() -> None:
    sources = (ROOT / "alpamayo_ros").rglob("*.py")
    found = [path.name for path in sources if re.search(r"signal\.signal\(.*\.set\(\)", path.read_text())]
    assert found == []

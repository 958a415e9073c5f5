"""In the node's process no thread keeps Python's lock for long while another one waits."""

import subprocess
import sys

from alpamayo_ros.engine.python_lock import LONGEST

PROGRAM = """
import sys
from alpamayo_ros.ros.process import run
assert run(["node", "--help"]) == 0
print(sys.getswitchinterval())
"""


def test_the_node_lets_threads_have_the_lock_sooner_than_python_does(ros_domain: int) -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert float(done.stdout.splitlines()[-1]) == LONGEST < 0.005

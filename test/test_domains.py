"""No two tests share a ROS domain at the same time, whichever process they are in."""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
from pathlib import Path

import domains
import pytest
from domains import free_domain
from real_time import may_talk_over_dds

SUPPORT = Path(__file__).parent / "support"
HOLDER = """
import sys
sys.path.insert(0, sys.argv[1])
import domains
domains.DOMAINS, domains._next, domains.LOCKS = range(20, 22), 0, domains.Path(sys.argv[2])
with domains.free_domain() as domain:
    print(domain, flush=True)
    sys.stdin.read()
"""


def test_a_domain_is_lent_once_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(domains, "LOCKS", tmp_path)
    monkeypatch.setattr(domains, "DOMAINS", range(20, 22))
    monkeypatch.setattr(domains, "_next", 0)
    command = [sys.executable, "-c", HOLDER, str(SUPPORT), str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "20\n"
        with free_domain() as mine:
            assert mine == 21
            with pytest.raises(RuntimeError, match="20 to 21"), contextlib.ExitStack() as stack:
                stack.enter_context(free_domain())
        other.kill()
    with free_domain() as first, free_domain() as second:
        assert {first, second} == {20, 21}


def test_every_file_that_starts_ros_is_known_to_live_in_real_time() -> None:
    starts = re.compile(
        r'rclpy\.init\(|create_node\(|from live import|DriveNode\(|drive_node\(|"alpamayo_ros\.ros\.node"'
    )
    root = SUPPORT.parents[1]
    files = [
        path for path in root.glob("test/**/test_*.py") if path != Path(__file__) and starts.search(path.read_text())
    ]
    assert len(files) > 10
    names = [path.relative_to(root).as_posix() for path in files]
    assert [name for name in names if not may_talk_over_dds(name)] == [], "name them in test/support/real_time.py"

"""ROS domains, each for one test at a time: on a machine where several runs of the tests are under way too."""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import tempfile
from collections.abc import Iterator
from pathlib import Path

DOMAINS = range(20, 220)  # below 232, above which ports run out
LOCKS = Path(tempfile.gettempdir(), f"alpamayo_ros_test_domains_{os.getuid()}")  # a file for each
_next = random.Random(os.getpid()).randrange(len(DOMAINS))


@contextlib.contextmanager
def free_domain() -> Iterator[int]:
    """The next one that nobody has locked. A lock ends with the process that holds it, however that ends."""
    global _next
    LOCKS.mkdir(exist_ok=True)
    for _ in DOMAINS:
        domain, _next = DOMAINS[_next], (_next + 1) % len(DOMAINS)
        with (LOCKS / str(domain)).open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            yield domain
            return
    raise RuntimeError(f"tests that are running have all of the ROS domains {DOMAINS[0]} to {DOMAINS[-1]}")

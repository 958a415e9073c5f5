"""How pytest-xdist deals out the tests to several processes."""

from __future__ import annotations

from typing import Any

import pytest
from real_time import is_real_time
from xdist.scheduler import LoadScopeScheduling


class RealTimeTogether(LoadScopeScheduling):
    """Files stay whole, and all tests that live in real time run in one process, one after the other.

    xdist's own --dist loadgroup groups nothing under pytest 9.2: what it changes is no longer a test's id.
    """

    def __init__(self, config: pytest.Config, log: Any) -> None:
        config.option.loadscopereorder = False  # as conftest.py has sorted them
        super().__init__(config, log)

    def _split_scope(self, nodeid: str) -> str:
        return "real time" if is_real_time(nodeid) else nodeid.split("::")[0]

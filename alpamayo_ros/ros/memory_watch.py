"""Watches memory that has to stay constant once the engine is warm: what grows from tick to tick ends in a crash."""

from __future__ import annotations

import time

SETTLING = 60.0  # s of the first ticks, in which allocators may still take what they keep
GROWTH = 0.05  # of what it was then
SLACK = 256 << 20  # bytes; less is an allocator's block or two


class MemoryWatch:
    """Compares with the most that was used while it settled. A smaller value than ever begins anew: it was freed."""

    def __init__(self) -> None:
        self._since = 0.0
        self._least = self._settled = 0

    def check(self, used: int) -> str:
        """What is wrong, in words; "" when nothing is. `used` in bytes, 0 when nothing is known."""
        now = time.monotonic()
        if used <= 0 or not self._least or used < self._least // 2:
            self._since, self._least, self._settled = now, used, used
            return ""
        self._least = min(self._least, used)
        if now - self._since < SETTLING:
            self._settled = max(self._settled, used)
            return ""
        grown = used - self._settled
        if grown <= max(GROWTH * self._settled, SLACK):
            return ""
        return (
            f"device memory has grown by {grown / 2**20:.0f} MB to {used / 2**20:.0f} MB since the engine was warm; "
            "it has to stay constant"
        )

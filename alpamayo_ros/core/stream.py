"""What every input has, camera or odometry: a gate for stamps, books, and the times at which messages came."""

from __future__ import annotations

import math
from collections import deque

from alpamayo_ros.core.accounting import LATE, Ledger
from alpamayo_ros.core.types import SkipReason

LATE_NS = 1_000_000_000  # a message that much older than its input's newest is not sorted in
JUMP_MESSAGES = 3  # so many of these in a row mean that the input has jumped back
RATE_WINDOW_NS = 3_000_000_000


class Stream:
    """One input. Stamps and clock in integer ns of the node's clock."""

    def __init__(self, future_tolerance_ns: int) -> None:
        self.ledger = Ledger()
        self.refused_ns: dict[str, int] = {}  # drop reason -> when a message was last refused for it, this epoch
        self._future_tolerance_ns = future_tolerance_ns
        self._late_in_a_row = 0
        self._arrivals: deque[tuple[int, int]] = deque(maxlen=128)  # (clock, stamp) of what was kept

    def refusal(self, raw_stamp_ns: int, stamp_ns: int, newest_ns: int | None, now_ns: int) -> str | None:
        """Why a message of this stamp can't be kept; None if it can, or if it shows that the input has jumped back.

        Args:
            raw_stamp_ns: as sent.
            stamp_ns: with the input's time offset added.
            newest_ns: of the messages held.
            now_ns: the clock.
        """
        if raw_stamp_ns <= 0:
            return SkipReason.ZERO_STAMP.value
        if stamp_ns > now_ns + self._future_tolerance_ns:
            return SkipReason.STAMP_IN_FUTURE.value
        if newest_ns is None or newest_ns - stamp_ns <= LATE_NS:
            self._late_in_a_row = 0
            return None
        self._late_in_a_row += 1
        return None if self.has_jumped else LATE

    @property
    def has_jumped(self) -> bool:
        """Whether the last message that `refusal` let through says that the input's time has jumped back."""
        return self._late_in_a_row >= JUMP_MESSAGES

    def refuse(self, reason: str, now_ns: int) -> None:
        """Count a message that is not kept."""
        self.refused_ns[reason] = now_ns
        self.ledger.refuse(reason)

    def hold(self, key: int, stamp_ns: int, now_ns: int) -> None:
        """Count a message that is kept."""
        self._arrivals.append((now_ns, stamp_ns))
        self.ledger.hold(key)

    def refused_since(self, reason: str, since_ns: int) -> bool:
        """Whether a message was refused for this reason at or after a time of the clock."""
        refused_ns = self.refused_ns.get(reason)
        return refused_ns is not None and refused_ns >= since_ns

    def flush(self) -> None:
        """Remember nothing but the books."""
        self.refused_ns.clear()
        self._arrivals.clear()
        self._late_in_a_row = 0

    @property
    def arrival_ns(self) -> int | None:
        """The clock when the last message came that was kept."""
        return self._arrivals[-1][0] if self._arrivals else None

    @property
    def receive_lag(self) -> float:
        """Seconds from stamp to arrival, the median of the last messages; NaN when there are none."""
        lags = sorted(arrival - stamp for arrival, stamp in list(self._arrivals)[-9:])
        return lags[len(lags) // 2] * 1e-9 if lags else math.nan

    def rate_hz(self, now_ns: int) -> float:
        """Messages per second of the clock, over the last 3 s; a stopped input fades to 0."""
        recent = [arrival for arrival, _ in self._arrivals if arrival > now_ns - RATE_WINDOW_NS]
        if len(recent) < 2:
            return 0.0
        usual = (recent[-1] - recent[0]) / (len(recent) - 1)
        # while the next one is not overdue the mean spacing is the rate; after that the silence counts
        span = max(recent[-1] - recent[0], now_ns - recent[0] - 1.5 * usual)
        return (len(recent) - 1) * 1e9 / span if span > 0 else 0.0

"""What keeps every tick from running whatever the inputs hold, and the one reason that a skip has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from alpamayo_ros.core.ego import HISTORY_NS
from alpamayo_ros.core.types import Skip, SkipReason

Numbers = Mapping[str, Any]

_ORDER = {reason: number for number, reason in enumerate(SkipReason)}


class Obstacles:
    """Times in ns of the node's clock."""

    def __init__(self) -> None:
        self.blocked: dict[SkipReason, Numbers] = {}  # until it is taken back
        self._jump: tuple[int, Numbers] | None = None  # when the time jumped last, and how
        self._reframed: tuple[int, Numbers] | None = None  # when the odometry's frames changed last, and how

    def time_jumped(self, now_ns: int, **numbers: Any) -> None:
        """What inputs lack for one history length from now on is owing to that."""
        self._jump = (now_ns, numbers)

    def reframed(self, now_ns: int, **numbers: Any) -> None:
        """The odometry's frames have changed: the same."""
        self._reframed = (now_ns, numbers)

    def forget_changes(self) -> None:
        """Nothing is owing to them any more."""
        self._jump = self._reframed = None

    def skip(self, t0_ns: int | None, lacking: Mapping[SkipReason, Numbers], now_ns: int) -> Skip:
        """Why a tick is none whose inputs lack this: all reasons that hold, the first by their order for the tick's."""
        reasons = {**self.blocked, **lacking}
        if self._jump is not None and 0 <= now_ns - self._jump[0] <= HISTORY_NS:
            reasons[SkipReason.TIME_JUMP] = self._jump[1]
        if self._reframed is not None and 0 <= now_ns - self._reframed[0] <= HISTORY_NS:
            reasons[SkipReason.ODOMETRY_JUMP] = self._reframed[1]
            for waiting in (SkipReason.WAITING_FOR_CAMERA, SkipReason.WAITING_FOR_ODOMETRY):
                reasons.pop(waiting, None)  # they may have sent: it was forgotten
        held = sorted(reasons, key=_ORDER.__getitem__)
        return Skip(held[0], t0_ns, {reason.value: reasons[reason] for reason in held})

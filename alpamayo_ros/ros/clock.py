"""Watches the node's clock: has it jumped, has it stopped?"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import cast

from rclpy.clock import ClockChange, JumpThreshold, ROSClock, TimeJump
from rclpy.duration import Duration
from rclpy.node import Node

JUMP = 1.0  # s; slewing and coarse /clock steps are smaller
STOPPED_AFTER = 2.0  # s of steady time


class ClockWatch:
    """Calls `jumped` with the seconds when the node's time has jumped by more than 1 s, in simulated time or not.

    The first /clock is no jump: there was no time before. It calls `began` with the time.

    ROS reports jumps of simulated time alone, so system time is compared with steady time by `check`, which is to be
    called about once a second, and may be called at any time.
    """

    def __init__(self, node: Node, began: Callable[[float], None], jumped: Callable[[float], None]) -> None:
        self.jumps = 0
        self._began = began
        self._clock = cast(ROSClock, node.get_clock())
        self._jumped = jumped
        self._now_ns = self._moved_at_ns = self._clock.now().nanoseconds
        self._steady = self._moved_at = time.monotonic()
        threshold = JumpThreshold(
            min_forward=Duration(seconds=JUMP), min_backward=Duration(seconds=-JUMP), on_clock_change=True
        )
        self._handle = self._clock.create_jump_callback(threshold, post_callback=self._on_jump)

    @property
    def sim_time(self) -> bool:
        """Whether the clock follows /clock."""
        return bool(self._clock.ros_time_is_active)

    def check(self) -> None:
        """Compare the clock with steady time."""
        now_ns, steady = self._clock.now().nanoseconds, time.monotonic()
        jump = (now_ns - self._now_ns) * 1e-9 - (steady - self._steady)
        self._now_ns, self._steady = now_ns, steady
        if not self.sim_time and abs(jump) > JUMP:
            self._report(jump)

    @property
    def stopped_for(self) -> float:
        """Seconds of steady time for which simulated time has not moved; 0 unless that is too long."""
        now_ns, steady = self._clock.now().nanoseconds, time.monotonic()
        if now_ns != self._moved_at_ns:
            self._moved_at_ns, self._moved_at = now_ns, steady
        still = steady - self._moved_at
        return still if self.sim_time and still > STOPPED_AFTER else 0.0

    def close(self) -> None:
        """Stop watching."""
        self._handle.unregister()

    def _on_jump(self, jump: TimeJump) -> None:
        self._now_ns, self._steady = self._clock.now().nanoseconds, time.monotonic()
        if jump.clock_change == ClockChange.ROS_TIME_NO_CHANGE and jump.delta.nanoseconds == self._now_ns:
            self._began(self._now_ns * 1e-9)
        elif jump.clock_change in (ClockChange.ROS_TIME_NO_CHANGE, ClockChange.SYSTEM_TIME_NO_CHANGE):
            self._report(jump.delta.nanoseconds * 1e-9)
        else:
            self._report(0.0)

    def _report(self, jump: float) -> None:
        self.jumps += 1
        self._jumped(jump)

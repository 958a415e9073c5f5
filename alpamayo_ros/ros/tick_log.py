"""What the log says about ticks: when paths begin, why there are none, and where to look."""

from __future__ import annotations

from collections.abc import Mapping

from rclpy.impl.rcutils_logger import RcutilsLogger

from alpamayo_ros.core.types import Skip, SkipReason

RECORDED_AGE = 3600.0  # s; no stream of a running vehicle is that late
RECORDED = "is this a recording? Start the node with -p use_sim_time:=true, and play the bag with --clock"


class TickLog:
    """Says when paths begin, and then nothing as long as they come; and why there are none, at most once a second.

    Args:
        logger: of the node.
        topics: by camera name, resolved.
        odometry_topic: resolved.
    """

    def __init__(self, logger: RcutilsLogger, topics: Mapping[str, str], odometry_topic: str) -> None:
        self._logger = logger
        self._topics = topics
        self._odometry_topic = odometry_topic
        self._flowing = False

    def published(self, age: float) -> None:
        """A path went out, `age` s after its t0."""
        if not self._flowing:
            self._flowing = True
            self._logger.info(f"paths are published from now on; this one {age:.3f} s after its t0")

    def skipped(self, skip: Skip, has_run_dry: bool) -> None:
        """A tick gave no path; and whether consumers have been told that none come any more."""
        if has_run_dry:
            self._flowing = False
        if skip.reason is not SkipReason.DISABLED:  # which somebody asked for, and was told
            self._logger.warning(f"no trajectory: {self._reason(skip)}", throttle_duration_sec=1.0)

    def _reason(self, skip: Skip) -> str:
        numbers = skip.numbers.get(skip.reason.value, {})
        hint = ""
        if skip.reason is SkipReason.WAITING_FOR_CAMERA:
            hint = f"nothing on {', '.join(self._topics[name] for name in numbers['cameras'])} yet"
        elif skip.reason is SkipReason.WAITING_FOR_ODOMETRY:
            hint = f"nothing on {self._odometry_topic} yet"
        elif skip.reason is SkipReason.CAMERA_STALE:
            hint = hint_of_age(max(numbers.get("age_s", [0.0])))  # none of a tick that waited too long for the engine
        elif skip.reason is SkipReason.ODOMETRY_STALE:
            hint = hint_of_age(numbers["age_s"])
        return f"{skip.describe()} ({hint})" if hint else skip.describe()


def hint_of_age(age: float) -> str:
    """What to try when the newest of a stream is `age` s old; "" when it may just have stopped."""
    return RECORDED if age > RECORDED_AGE else ""

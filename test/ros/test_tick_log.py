"""What the log says of skipped ticks."""

from typing import Any

import pytest

from alpamayo_ros.core.types import Skip, SkipReason
from alpamayo_ros.ros.tick_log import RECORDED, TickLog


class Logger:
    def __init__(self) -> None:
        self.said: list[str] = []

    def warning(self, text: str, **throttling: Any) -> None:
        self.said.append(text)

    info = warning


@pytest.fixture
def logger() -> Logger:
    return Logger()


def skipped(logger: Logger, reason: SkipReason, **numbers: Any) -> str:
    log = TickLog(logger, {"front_wide": "/front"}, "/odometry")  # type: ignore[arg-type]
    log.skipped(Skip(reason, 1, {reason.value: numbers}), has_run_dry=False)
    return logger.said[-1]


def test_a_camera_of_an_hour_ago_may_be_a_recording(logger: Logger) -> None:
    stale = {"cameras": ["front_wide"], "max_input_age": [0.5]}
    assert RECORDED in skipped(logger, SkipReason.CAMERA_STALE, age_s=[4000.0], **stale)
    assert RECORDED not in skipped(logger, SkipReason.CAMERA_STALE, age_s=[0.6], **stale)


def test_a_tick_that_waited_too_long_for_the_engine_is_logged_too(logger: Logger) -> None:
    said = skipped(logger, SkipReason.CAMERA_STALE, age_when_started_s=0.6, max_input_age=0.5)
    assert said == "no trajectory: camera_stale: age_when_started_s=0.6, max_input_age=0.5"


def test_the_topic_that_is_waited_for_is_named(logger: Logger) -> None:
    assert "nothing on /front yet" in skipped(logger, SkipReason.WAITING_FOR_CAMERA, cameras=["front_wide"])
    assert "nothing on /odometry yet" in skipped(logger, SkipReason.WAITING_FOR_ODOMETRY)

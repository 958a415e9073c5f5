"""A rig that can't work is refused when it is made, with the field, its value and what is right."""

from __future__ import annotations

import pytest

from alpamayo_ros.core.builder_config import BuilderConfig, CameraConfig
from alpamayo_ros.core.observe import build_observation_builder
from alpamayo_ros.core.types import ConfigurationError

WIDE = CameraConfig("wide", 1)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"cameras": ()}, "cameras.*empty"),
        ({"cameras": (WIDE, CameraConfig("wide", 2))}, "wide.*twice"),
        ({"cameras": (WIDE, CameraConfig("left", 1))}, "index 1.*twice"),
        ({"cameras": (WIDE, CameraConfig("left", 7))}, "left.*index.*7.*0 to 6"),
        ({"cameras": (WIDE, CameraConfig("left", 2, time_offset=float("nan")))}, "left.time_offset.*nan"),
        ({"anchor": "front"}, "anchor.*'front'.*wide"),
        ({"cameras": (CameraConfig("wide", 1, required=False),)}, "anchor.*required"),
        ({"rate_hz": 0}, "rate_hz.*0"),
        ({"rate_hz": 30}, "rate_hz.*30.*10"),
        ({"sync_tolerance": -0.1}, r"sync_tolerance.*-0\.1"),
        ({"wait_timeout": float("inf")}, "wait_timeout.*inf"),
        ({"max_input_age": "1"}, "max_input_age.*'1'"),
        ({"max_odometry_jump": 0}, "max_odometry_jump.*0"),
        ({"child_to_base": (0.0,) * 5}, "child_to_base.*roll"),
    ],
)
def test_what_is_wrong_is_named(changes: dict, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        BuilderConfig(**{"cameras": (WIDE,), "anchor": "wide", **changes})


def test_of_a_running_builder_only_the_rate_can_be_changed() -> None:
    builder = build_observation_builder(BuilderConfig((WIDE,), "wide"))
    builder.config = BuilderConfig((WIDE,), "wide", rate_hz=2)
    assert builder.config.rate_hz == 2
    with pytest.raises(ConfigurationError, match="rate_hz"):
        builder.config = BuilderConfig((WIDE,), "wide", wait_timeout=0.2)

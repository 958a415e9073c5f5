"""What became of the messages that came in, for the status and the diagnostics. No ROS here."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from alpamayo_ros.core.camera import CameraState
from alpamayo_ros.core.observe import ObservationBuilder

SPEED_MISMATCH = 2.0  # m/s between the poses' speed and the twist; a twist in the wrong frame is off by more


@dataclass(frozen=True)
class Intake:
    """What the builder did with its inputs."""

    epoch: int = 0
    navigation: str = ""
    navigation_age: float = math.nan  # s
    cameras: Mapping[str, CameraState] = field(default_factory=dict)
    odometry_age: float = math.nan  # s
    odometry_received: int = 0
    odometry_dropped: Mapping[str, int] = field(default_factory=dict)  # by reason
    warnings: tuple[str, ...] = ()  # about the odometry


def intake_of(builder: ObservationBuilder, now_ns: int) -> Intake:
    """What it is at that time of the node's clock."""
    poses, counts = builder.inputs.odometry.buffer, builder.counts()["odometry"]
    newest, mismatch = poses.newest, poses.speed_error()
    navigation_age = builder.navigation_age(now_ns)
    return Intake(
        epoch=builder.epoch,
        navigation="" if navigation_age is None else builder.navigation,
        navigation_age=math.nan if navigation_age is None else navigation_age,
        cameras={state.name: state for state in builder.inputs.camera_states(now_ns)},
        odometry_age=math.nan if newest is None else (now_ns - newest.stamp_ns) * 1e-9,
        odometry_received=counts.received,
        odometry_dropped=counts.dropped,
        warnings=(_mismatch_warning(mismatch),) if mismatch > SPEED_MISMATCH else (),
    )


def _mismatch_warning(mismatch: float) -> str:
    return f"the poses move {mismatch:.1f} m/s differently from the twist, which has to be in the child frame"

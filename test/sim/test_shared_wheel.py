"""A learner drives, the expert says what it would do, and takes the wheel where the learner is lost."""

import numpy as np

from alpamayo_ros.core.types import Array
from alpamayo_ros.sim.policies import Moment, Policy, constant_curvature, expert
from alpamayo_ros.sim.recorded_drive import RecordedDrive, record_drive
from alpamayo_ros.sim.shared_wheel import TAKEN_FROM
from alpamayo_ros.sim.world import World

SECONDS = 40.0
SEED = 3  # it bends, and comes to a junction


def drive(learner: Policy | None) -> RecordedDrive:
    return record_drive(SEED, SECONDS, image_size=(16, 16), learner=learner)


def offsets(drive: RecordedDrive) -> Array:
    """[T] m from the lane's middle."""
    route = World.for_seconds(SEED, SECONDS).route.xy
    return np.array([np.linalg.norm(route - place[:2], axis=1).min() for place in drive.positions])


def test_a_learner_as_good_as_the_expert_keeps_the_lane() -> None:
    off = offsets(drive(expert))
    assert off.max() < 0.5
    assert not np.array_equal(off, offsets(drive(None)))  # it did drive: by a follower, and late


def test_a_learner_that_is_lost_is_brought_back_and_gets_the_wheel_again() -> None:
    driven = drive(constant_curvature)
    off = offsets(driven)
    lost = off > TAKEN_FROM
    begun = int((lost[1:] & ~lost[:-1]).sum())
    assert begun >= 2
    assert off.max() < TAKEN_FROM + 4.0
    assert (off < 0.4).mean() > 0.3
    ends = driven.positions[lost] + np.einsum("tij,tj->ti", driven.rotations[lost], driven.futures[lost, -1])
    route = World.for_seconds(SEED, SECONDS).route.xy
    back = [np.linalg.norm(route - end[:2], axis=1).min() for end in ends]
    assert np.median(back) < 0.5  # the labels are the expert's way back, not where the learner went


def test_a_learner_that_stands_for_no_reason_is_not_left_standing() -> None:
    def stands(moment: Moment) -> Array:
        return np.zeros((64, 3))

    driven = drive(stands)
    (stood,) = np.nonzero(driven.speeds < 0.1)
    assert len(stood)
    assert (driven.speeds[stood[0] :] > 2.0).any()


def test_the_same_learner_gives_the_same_drive() -> None:
    first, second = drive(constant_curvature), drive(constant_curvature)
    assert np.array_equal(first.positions, second.positions)
    assert np.array_equal(first.images, second.images)

"""A closed loop without ROS, in virtual time: a policy plans from what it observes, the vehicle follows its plans."""

from __future__ import annotations

import itertools
from collections import deque

import numpy as np

from alpamayo_ros.core.rotation import quaternion_from_matrix, rotations_about_z
from alpamayo_ros.core.types import FRAMES_PER_CAMERA, HISTORY_LENGTH, STEP_NS, Array, EgoPose, Frame, Observation
from alpamayo_ros.sim.follower import FollowedPath, Follower
from alpamayo_ros.sim.journey import STEP_S, Journey
from alpamayo_ros.sim.policies import Moment, Policy
from alpamayo_ros.sim.renderer import Image, Renderer
from alpamayo_ros.sim.rig import CAMERA_INDICES
from alpamayo_ros.sim.scoring import Trace, TraceRecorder
from alpamayo_ros.sim.vehicle import VehicleState
from alpamayo_ros.sim.world import World

TICK_S = STEP_NS * 1e-9
LEAD_IN_S = 1.6  # for which the expert drives: the model needs 1.5 s of history
SLOWEST = 2.0  # m/s, the mean that makes a route's time limit
STUCK_S = 30.0  # without getting on, after which nothing will come of it
FARTHEST_OFF = 10.0  # m off the lane, from where no way leads back
_serials = itertools.count(1)  # engines keep what they made of a frame by its serial: no two journeys may share one


class Observer:
    """Makes the observations of a journey, one every 0.1 s.

    Args:
        renderer: of the journey's world; None leaves the frames out.
    """

    def __init__(self, renderer: Renderer | None) -> None:
        self._renderer = renderer
        self._poses: deque[Array] = deque(maxlen=HISTORY_LENGTH)
        self._frames: dict[int, deque[Frame]] = {}
        self.pictures: dict[str, Image] = {}  # of the last look, by the cameras' names
        self._ticks = 0

    def look(self, journey: Journey) -> Observation | None:
        """The observation of this moment; None while the history is too short."""
        vehicle = journey.vehicle
        stamp_ns = (self._ticks + 1) * STEP_NS
        self._poses.append(np.array(vehicle[:3]))
        if self._renderer is not None:
            self.pictures = self._renderer.draw(journey, self._ticks)
            for name, picture in self.pictures.items():
                index = CAMERA_INDICES[name]
                height, width = picture.shape[:2]
                frame = Frame(next(_serials), index, stamp_ns, picture, "rgb8", height, width, 3 * width)
                self._frames.setdefault(index, deque(maxlen=FRAMES_PER_CAMERA)).append(frame)
        self._ticks += 1
        if len(self._poses) < HISTORY_LENGTH:
            return None
        xyz, rotation = _history(np.array(self._poses))
        return Observation(
            t0_ns=stamp_ns,
            epoch=0,
            frames={index: tuple(frames) for index, frames in sorted(self._frames.items())},
            history_xyz=xyz,
            history_rotation=rotation,
            pose=ego_pose(stamp_ns, vehicle),
            navigation=journey.navigation,
        )


def ego_pose(stamp_ns: int, vehicle: VehicleState) -> EgoPose:
    """The vehicle as odometry tells it; the world is odom."""
    return EgoPose(
        stamp_ns=stamp_ns,
        position=np.array([vehicle.x, vehicle.y, 0.0]),
        orientation=quaternion_from_matrix(rotations_about_z(np.array(vehicle.yaw))),
        linear_velocity=np.array([vehicle.speed, 0.0, 0.0]),
        angular_velocity=np.array([0.0, 0.0, vehicle.yaw_rate]),
    )


def drive_closed_loop(
    world: World, policy: Policy, *, renderer: Renderer | None = None, latency_s: float = 0.1
) -> Trace:
    """Drive a world's route by a policy, until it arrives, its time is over, it is stuck, or far off the lane.

    Args:
        world: whose route is driven. For the first 1.6 s by the expert, to fill the history.
        policy: asked every 0.1 s.
        renderer: of that world, for policies that look at pictures.
        latency_s: from an observation until the path that it led to is followed.
    """
    journey, follower, observer, recorder = Journey(world), Follower(latency_s), Observer(renderer), TraceRecorder()
    progress = Progress()
    while not progress.is_over(journey):
        observation = observer.look(journey)
        if journey.time_s >= LEAD_IN_S - STEP_S / 2:
            recorder.add(journey)
            if observation is not None:
                path = policy(Moment(observation, journey))
                follower.take(FollowedPath.from_vehicle(journey.time_s, journey.vehicle, path))
        for _ in range(round(TICK_S / STEP_S)):
            if journey.time_s < LEAD_IN_S + latency_s - STEP_S / 2:
                journey.drive()
            else:
                journey.move(*follower.control(journey.vehicle, journey.time_s))
    recorder.add(journey)
    return recorder.trace()


class Progress:
    """Finds out whether there is anything left to drive."""

    def __init__(self) -> None:
        self._since_s, self._farthest = 0.0, 0.0

    def is_over(self, journey: Journey) -> bool:
        """Whether it has arrived, takes too long, is stuck, or is too far off its lane to come back."""
        if journey.along > self._farthest + 1.0:
            self._since_s, self._farthest = journey.time_s, journey.along
        late = journey.time_s > max(journey.world.length / SLOWEST, STUCK_S)
        stuck = journey.time_s > self._since_s + STUCK_S
        return journey.has_arrived or late or stuck or abs(journey.left) > FARTHEST_OFF


def _history(poses: Array) -> tuple[Array, Array]:
    """Poses [16, 3] (x, y, yaw in the world) in the frame of the last: [16, 3] m and rotations [16, 3, 3]."""
    rotation = rotations_about_z(poses[:, 2])
    offset = np.column_stack([poses[:, :2] - poses[-1, :2], np.zeros(len(poses))])
    return offset @ rotation[-1], rotation[-1].T @ rotation

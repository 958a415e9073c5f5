"""Scores what a running node publishes, each path when the vehicle has driven what it predicted. Knows no ROS.

Messages are anything with the fields of their ROS type. Scores are those of the offline evaluation: the same functions,
the same truth, and the ego frame of the same pose at t0. Comfort alone differs a little: messages don't carry the first
action, and hold the others in float32.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from alpamayo_ros.core.child_frame import ChildFrame
from alpamayo_ros.core.ego import HISTORY_NS, EgoBuffer, EgoHistory
from alpamayo_ros.core.incoming import SECOND_NS, pose_from_message, stamp_ns
from alpamayo_ros.core.odometry import pose_fault
from alpamayo_ros.core.rotation import matrix_from_quaternion
from alpamayo_ros.core.select import Chosen
from alpamayo_ros.core.settings import Settings
from alpamayo_ros.core.transform_odometry import TransformOdometry
from alpamayo_ros.core.types import HORIZON, STEP_NS, Array, EgoPose, Observation, Prediction
from alpamayo_ros.evaluation.ground_truth import Future, GroundTruth
from alpamayo_ros.evaluation.replay import Tick
from alpamayo_ros.evaluation.report import Record, summarise, tick_record
from alpamayo_ros.evaluation.scores import score
from alpamayo_ros.evaluation.summary import timing

KEPT_NS = 30 * SECOND_NS  # of odometry: a path's history, its horizon, and the delay with which it came
RESTART_NS = 5 * SECOND_NS  # odometry that is so much older than the newest is from another drive
HORIZON_NS = HORIZON * STEP_NS
WHOLE = ("trajectory", "candidates", "status")  # what a tick must have come with


@dataclass(frozen=True, eq=False)
class ScoredTick:
    """A tick, what was driven after it, and what came of the comparison."""

    tick: Tick
    future: Future
    record: Record  # like a line of ticks.jsonl


class LiveEvaluation:
    """Collects messages and gives the ticks that can be scored.

    Args:
        settings: of the node's rig: its odometry and base frame.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._offset_ns = round(settings.odometry.time_offset * 1e9)
        odometry = settings.odometry
        self._child_frame = ChildFrame(odometry)
        self._odometry = TransformOdometry(odometry.tf_parent, odometry.base_frame, self._child_frame)
        self._poses: dict[int, EgoPose] = {}
        self._newest_ns = self._pruned_ns = 0
        self._waiting: dict[int, dict[str, Any]] = {}  # t0 -> message by its name
        self._skipped: set[tuple[int, str]] = set()
        self.skips: list[Record] = []  # ticks that the node skipped
        self.odometry_frame = ""
        self._frames = ("", "")  # of the newest pose
        self.start_ns = 0  # of the first odometry; a node in simulated time skips ticks at 0 before
        self._statuses: list[Any] = []  # the first and the newest
        self.incomplete = 0  # ticks of which a message is missing, or the history
        self.ages: list[float] = []  # s, of each path at its publication
        self.rates: list[float] = []  # Hz, as the node tells them

    def add_static(self, message: Any) -> None:
        """A tf2_msgs/TFMessage of /tf_static."""
        self._odometry.add_static(message)

    def add_odometry(self, message: Any) -> None:
        """A nav_msgs/Odometry. What the node would refuse is left out."""
        pose = self._child_frame.base_pose(pose_from_message(message), message.child_frame_id)
        self._add_pose(pose, message.header.frame_id, self._child_frame.label(message.child_frame_id))

    def add_transforms(self, message: Any) -> bool:
        """A tf2_msgs/TFMessage of /tf, for `odometry.source` tf. Whether it told the vehicle's pose."""
        poses = self._odometry.poses(message.transforms)
        for pose in poses:
            self._add_pose(pose, self._odometry.parent, self._odometry.child_label)
        return bool(poses)

    def _add_pose(self, pose: EgoPose, frame_id: str, child_frame: str) -> None:
        if pose.stamp_ns <= 0 or pose_fault(pose) is not None:
            return
        pose = replace(pose, stamp_ns=pose.stamp_ns + self._offset_ns)
        self.odometry_frame = frame_id
        self.start_ns = self.start_ns or pose.stamp_ns
        frames, self._frames = self._frames, (frame_id, child_frame)
        # a bag that begins again, or poses that don't go with the former ones
        if pose.stamp_ns < self._newest_ns - RESTART_NS or self._frames != frames:
            self.incomplete += len(self._waiting)
            self._poses, self._waiting, self._newest_ns, self._pruned_ns = {}, {}, 0, 0
        self._poses.setdefault(pose.stamp_ns, pose)
        self._newest_ns = max(self._newest_ns, pose.stamp_ns)
        if self._newest_ns > self._pruned_ns + SECOND_NS:  # seldom: it looks at every pose
            self._pruned_ns = self._newest_ns
            oldest = self._newest_ns - KEPT_NS
            self._poses = {stamp: each for stamp, each in self._poses.items() if stamp >= oldest}

    def add_trajectory(self, message: Any) -> None:
        """The node's trajectory; one without points is no path."""
        if len(message.points):
            self._expect(message)["trajectory"] = message

    def add_candidates(self, message: Any) -> None:
        """The node's candidates."""
        self._expect(message)["candidates"] = message

    def add_status(self, message: Any) -> None:
        """The node's status: of a tick, or the heartbeat that repeats the newest one."""
        self._statuses = [*self._statuses[:1], message]
        t0_ns = stamp_ns(message.header.stamp)
        if message.ok:
            waiting = self._expect(message)
            if "status" not in waiting and np.isfinite(message.age_at_publication):
                waiting["status"] = message
                self.ages.append(float(message.age_at_publication))
                if np.isfinite(message.effective_rate):
                    self.rates.append(float(message.effective_rate))
        elif message.skip_reason and (t0_ns, message.skip_reason) not in self._skipped:
            self._skipped.add((t0_ns, message.skip_reason))
            # no SkipReason: a newer node may have others
            self.skips.append({**tick_record(Tick(t0_ns), None), "skip": str(message.skip_reason)})

    def due(self) -> Iterator[ScoredTick]:
        """The ticks whose future has been driven since the last call, the oldest first."""
        for t0_ns in sorted(self._waiting):
            if t0_ns + HORIZON_NS < self._newest_ns:
                yield from self._score(t0_ns)

    def finish(self) -> Iterator[ScoredTick]:
        """At the end: the rest, with as much of their future as is known."""
        for t0_ns in sorted(self._waiting):
            yield from self._score(t0_ns)

    def summary(self, records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """What `summarise` says, and what only a running node knows."""
        counted = {name: self._counted(name) for name in ("ticks_published", "ticks_skipped", "ticks_dropped")}
        known = {"age_at_publication_s": self.ages, "effective_rate_hz": self.rates}
        live = {name: timing(values) if values else {"n": 0} for name, values in known.items()}
        return {**summarise(records), "live": {**counted, **live, "incomplete": self.incomplete}}

    def _counted(self, name: str) -> int:
        """Since the first status that came."""
        return int(getattr(self._statuses[-1], name)) - int(getattr(self._statuses[0], name)) if self._statuses else 0

    def _expect(self, message: Any) -> dict[str, Any]:
        t0_ns = stamp_ns(message.header.stamp)
        # a heartbeat repeats a tick that has been scored long ago
        return self._waiting.setdefault(t0_ns, {}) if t0_ns > self._newest_ns - HORIZON_NS else {"status": None}

    def _score(self, t0_ns: int) -> Iterator[ScoredTick]:
        messages = self._waiting.pop(t0_ns)
        history = self._history(t0_ns)
        if history is None or any(name not in messages for name in WHOLE):
            self.incomplete += 1
            return
        trajectory, candidates, status = (messages[name] for name in WHOLE)
        in_base = trajectory.header.frame_id == self._settings.odometry.base_frame
        pose = None if in_base else history.pose
        observation = Observation(t0_ns, 0, {}, history.xyz, history.rotation, history.pose)
        samples = [_arrays(each, pose) for each in candidates.candidates]
        xyz, rotation, actions, speed = (np.stack(each) for each in zip(*samples, strict=True))
        prediction = Prediction(
            xyz=xyz,
            rotation=rotation,
            actions=actions,
            speed=speed,
            reasoning=tuple(candidates.reasoning),
            reasoning_token_ids=((),) * len(samples),
            finish_reasons=("",) * len(samples),
            seed=0,
        )
        chosen = Chosen(int(candidates.chosen), *_arrays(trajectory, pose))
        tick = Tick(t0_ns, observation=observation, prediction=prediction, chosen=chosen)
        future = self._truth(t0_ns).future(t0_ns)
        record = tick_record(tick, score(observation, prediction, chosen, future))
        stages = dict(zip(status.stages, map(float, status.stage_ms), strict=True))
        engine = [took for stage, took in stages.items() if stage not in ("wait", "assemble", "publish")]
        age_ms = float(status.age_at_publication) * 1e3
        record |= {
            "finish_reason": None,  # and what else the messages don't tell
            "decided_ns": t0_ns,
            "timings_ms": {**stages, "engine_total": sum(engine), "age_at_publication": age_ms},
        }
        yield ScoredTick(tick, future, record)

    def _history(self, t0_ns: int) -> EgoHistory | None:
        timing = self._settings.timing
        buffer = EgoBuffer(round(timing.max_odometry_gap * 1e9), timing.max_odometry_jump, timing.standstill_padding)
        for pose in self._between(t0_ns - HISTORY_NS - SECOND_NS, t0_ns + SECOND_NS):
            buffer.add(pose)
        found = buffer.history(t0_ns)
        return found if isinstance(found, EgoHistory) else None

    def _truth(self, t0_ns: int) -> GroundTruth:
        poses = self._between(t0_ns - SECOND_NS, t0_ns + HORIZON_NS + SECOND_NS)
        timing = self._settings.timing
        return GroundTruth(poses, max_gap=timing.max_odometry_gap, max_jump=timing.max_odometry_jump)

    def _between(self, first_ns: int, last_ns: int) -> list[EgoPose]:
        return [self._poses[stamp] for stamp in sorted(self._poses) if first_ns <= stamp <= last_ns]


def _arrays(trajectory: Any, pose: EgoPose | None) -> tuple[Array, Array, Array, Array]:
    """A Trajectory in ego: xyz [64, 3], rotation [64, 3, 3], actions [64, 2] and speed [65], as a prediction has them.

    Args:
        trajectory: its poses in the odometry's frame, or in ego.
        pose: of base_link at t0 in the odometry's frame; None for poses in ego.
    """
    points = trajectory.points
    positions, orientations = [each.pose.position for each in points], [each.pose.orientation for each in points]
    xyz = np.array([[p.x, p.y, p.z] for p in positions])
    rotation = matrix_from_quaternion(np.array([[q.x, q.y, q.z, q.w] for q in orientations]))
    if pose is not None:
        ego_from_world = matrix_from_quaternion(pose.orientation).T
        xyz = (xyz - pose.position) @ ego_from_world.T
        rotation = ego_from_world @ rotation
    speed = np.array([trajectory.initial_speed, *(each.speed for each in points)], dtype=float)
    held = np.array([[each.acceleration, each.curvature] for each in points], dtype=float)
    # a point tells the action that follows it, the last one that before it: the first is known from the speeds alone
    first = [(speed[1] - speed[0]) / (STEP_NS * 1e-9), held[0, 1]]
    return xyz, rotation, np.concatenate([[first], held[:-1]]), speed

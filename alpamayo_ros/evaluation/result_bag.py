"""The node's output topics as a bag: what it would have published, at the time at which it would have."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from alpamayo_ros.core.settings import Settings
from alpamayo_ros.core.trajectory_points import TIMES_FROM_START_NS, TrajectoryPoints, trajectory_points
from alpamayo_ros.core.types import Array
from alpamayo_ros.engine.base import EngineInfo
from alpamayo_ros.evaluation.bag import BagWriter, ros_types
from alpamayo_ros.evaluation.ground_truth import Future
from alpamayo_ros.evaluation.replay import Tick
from alpamayo_ros.evaluation.rig import NODE

SECOND_NS = 1_000_000_000
OUTPUT = f"/{NODE}/output"
DRIVEN = f"/{NODE}/evaluation/driven_path"  # the ground truth, which no node has
NAN = float("nan")


class ResultBag:
    """Writes ticks, as a context manager; the bag is there when it ends without an exception.

    Record times are the time at which the tick was decided plus what the engine took, as it was measured.
    """

    def __init__(self, path: Path, settings: Settings, engine: EngineInfo) -> None:
        self._bag = BagWriter(path)
        self._output = settings.output
        self._base_frame = settings.odometry.base_frame
        self._engine = engine
        self._published = 0
        self._skips: Counter[str] = Counter()

    def __enter__(self) -> ResultBag:
        self._bag.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bag.__exit__(kind, error, trace)

    def write(self, tick: Tick) -> None:
        """One tick's messages."""
        at_ns = tick.now_ns + round(tick.engine_ms * 1e6)
        if tick.skip is not None:
            self._skips[tick.skip.reason.value] += 1
        elif tick.observation is not None:
            self._published += 1
            self._write_prediction(tick, at_ns)
        self._send("status", self._status(tick, at_ns), at_ns)

    def write_driven(self, tick: Tick, future: Future) -> None:
        """What was driven after a tick that has an observation, in the odometry's frame, as far as it is known."""
        observation = tick.observation
        assert observation is not None
        position, orientation = future.in_odometry(observation.pose)
        path = _path(position, orientation, observation.t0_ns, tick.odometry_frame)
        self._bag.write(DRIVEN, path, tick.now_ns + round(tick.engine_ms * 1e6))

    def _write_prediction(self, tick: Tick, at_ns: int) -> None:
        observation, prediction, chosen = tick.observation, tick.prediction, tick.chosen
        assert observation is not None
        assert prediction is not None
        assert chosen is not None
        in_odom = self._output.frame == "odom"
        pose = observation.pose if in_odom else None
        header = _header(observation.t0_ns, tick.odometry_frame if in_odom else self._base_frame)
        points = trajectory_points(chosen.xyz, chosen.rotation, chosen.actions, chosen.speed, pose)
        samples = [
            trajectory_points(*arrays, pose)
            for arrays in zip(prediction.xyz, prediction.rotation, prediction.actions, prediction.speed, strict=True)
        ]
        of_text = max(chosen.index, 0)  # the mean of all has no text of its own
        text = prediction.reasoning[of_text]
        self._send("path", _path(points.position, points.orientation, observation.t0_ns, header.frame_id), at_ns)
        self._send("trajectory", self._trajectory(points, header), at_ns)
        self._send(
            "candidates",
            _new(
                "alpamayo_ros/msg/TrajectoryCandidates",
                header=header,
                candidates=[self._trajectory(each, header) for each in samples],
                reasoning=list(prediction.reasoning),
                chosen=chosen.index,
            ),
            at_ns,
        )
        self._send("reasoning", _new("std_msgs/msg/String", data=text), at_ns)
        self._send(
            "reasoning_stamped",
            _new(
                "alpamayo_ros/msg/Reasoning",
                header=header,
                text=text,
                token_ids=_array(prediction.reasoning_token_ids[of_text], "int32"),
                finish_reason=prediction.finish_reasons[of_text],
            ),
            at_ns,
        )

    def _trajectory(self, points: TrajectoryPoints, header: Any) -> Any:
        t0_ns = header.stamp.sec * SECOND_NS + header.stamp.nanosec
        return _new(
            "alpamayo_ros/msg/Trajectory",
            header=header,
            valid_until=_time(t0_ns + round(self._output.valid_for * SECOND_NS)),
            points=[
                _new(
                    "alpamayo_ros/msg/TrajectoryPoint",
                    time_from_start=_new(
                        "builtin_interfaces/msg/Duration", sec=after // SECOND_NS, nanosec=after % SECOND_NS
                    ),
                    pose=_pose(position, orientation),
                    speed=speed,
                    acceleration=acceleration,
                    curvature=curvature,
                )
                for after, position, orientation, speed, acceleration, curvature in points.rows()
            ],
            initial_speed=points.initial_speed,
            reason="",
        )

    def _status(self, tick: Tick, at_ns: int) -> Any:
        ok = tick.skip is None
        stages = {} if tick.prediction is None else dict(tick.prediction.timings.stages_ms)
        navigation = tick.observation.navigation if tick.observation is not None else None
        t0_ns = tick.t0_ns
        return _new(
            "alpamayo_ros/msg/InferenceStatus",
            header=_header(at_ns if t0_ns is None else t0_ns, ""),
            ok=ok,
            skip_reason="" if tick.skip is None else tick.skip.reason.value,
            detail="" if tick.skip is None else json.dumps(dict(tick.skip.numbers), default=str),
            lifecycle_state="active",
            engine=f"{self._engine.engine} on {self._engine.device}: {self._engine.model}",
            trained=self._engine.trained,
            stages=list(stages),
            stage_ms=_array(stages.values(), "float32"),
            age_at_publication=(at_ns - t0_ns) * 1e-9 if ok and t0_ns is not None else NAN,
            effective_rate=NAN,  # what a rate would be live; a replay has none
            navigation_age=NAN,
            navigation=navigation or "",
            cameras=[],
            odometry_received=0,
            odometry_dropped=0,
            odometry_age=NAN,
            ticks_published=self._published,
            ticks_skipped=sum(self._skips.values()),
            ticks_dropped=0,
            skip_reasons=list(self._skips),
            skip_counts=_array(self._skips.values(), "uint64"),
            gpu_memory_bytes=0,
            epoch=0 if tick.observation is None else tick.observation.epoch,
        )

    def _send(self, name: str, message: Any, at_ns: int) -> None:
        self._bag.write(f"{OUTPUT}/{name}", message, at_ns)


def _new(kind: str, **fields: Any) -> Any:
    return ros_types().types[kind](**fields)


def _array(values: Any, dtype: str) -> Any:
    return np.array(list(values), dtype=dtype)


def _time(ns: int) -> Any:
    return _new("builtin_interfaces/msg/Time", sec=ns // SECOND_NS, nanosec=ns % SECOND_NS)


def _header(ns: int, frame_id: str) -> Any:
    return _new("std_msgs/msg/Header", stamp=_time(ns), frame_id=frame_id)


def _pose(position: Array, orientation: Array) -> Any:
    x, y, z = position.tolist()
    qx, qy, qz, qw = orientation.tolist()
    return _new(
        "geometry_msgs/msg/Pose",
        position=_new("geometry_msgs/msg/Point", x=x, y=y, z=z),
        orientation=_new("geometry_msgs/msg/Quaternion", x=qx, y=qy, z=qz, w=qw),
    )


def _path(positions: Array, orientations: Array, t0_ns: int, frame_id: str) -> Any:
    """[n, 3] and [n, 4], n up to 64, 0.1 s apart."""
    poses = [
        _new(
            "geometry_msgs/msg/PoseStamped", header=_header(t0_ns + after, frame_id), pose=_pose(position, orientation)
        )
        for after, position, orientation in zip(TIMES_FROM_START_NS, positions, orientations, strict=False)
    ]
    return _new("nav_msgs/msg/Path", header=_header(t0_ns, frame_id), poses=poses)

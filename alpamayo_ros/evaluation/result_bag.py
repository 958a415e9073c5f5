"""The node's output topics as a bag: what it would have published, at the time at which it would have."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from alpamayo_ros.core.settings import Settings
from alpamayo_ros.core.tick_shapes import skip_shape, tick_shapes
from alpamayo_ros.core.trajectory_points import TrajectoryPoints, trajectory_points
from alpamayo_ros.core.types import Array
from alpamayo_ros.engine.base import EngineInfo
from alpamayo_ros.evaluation.bag import BagWriter
from alpamayo_ros.evaluation.ground_truth import Future
from alpamayo_ros.evaluation.replay import Tick
from alpamayo_ros.evaluation.result_messages import (
    SECOND_NS,
    array,
    duration_message,
    header_message,
    new,
    path_message,
    pose_message,
    skip_markers,
    tick_markers,
    time_message,
)
from alpamayo_ros.evaluation.rig import NODE

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
        self._in_a_row = 0  # skips
        self._place: tuple[Array, str] | None = None  # of the vehicle at the last tick, in the frame of that name

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
            self._in_a_row += 1
            if self._in_a_row == self._output.empty_after_skips:
                self._write_skip(tick.skip.reason.value, at_ns)
        elif tick.observation is not None:
            self._published += 1
            self._in_a_row = 0
            self._write_prediction(tick, at_ns)
        self._send("status", self._status(tick, at_ns), at_ns)

    def write_driven(self, tick: Tick, future: Future) -> None:
        """What was driven after a tick that has an observation, in the odometry's frame, as far as it is known."""
        observation = tick.observation
        assert observation is not None
        position, orientation = future.in_odometry(observation.pose)
        path = path_message(position, orientation, observation.t0_ns, tick.odometry_frame)
        self._bag.write(DRIVEN, path, tick.now_ns + round(tick.engine_ms * 1e6))

    def _write_prediction(self, tick: Tick, at_ns: int) -> None:
        observation, prediction, chosen = tick.observation, tick.prediction, tick.chosen
        assert observation is not None
        assert prediction is not None
        assert chosen is not None
        in_odom = self._output.frame == "odom"
        pose = observation.pose if in_odom else None
        header = header_message(observation.t0_ns, tick.odometry_frame if in_odom else self._base_frame)
        points = trajectory_points(chosen.xyz, chosen.rotation, chosen.actions, chosen.speed, pose)
        samples = [
            trajectory_points(*arrays, pose)
            for arrays in zip(prediction.xyz, prediction.rotation, prediction.actions, prediction.speed, strict=True)
        ]
        of_text = max(chosen.index, 0)  # the mean of all has no text of its own
        text = prediction.reasoning[of_text]
        self._send("path", path_message(points.position, points.orientation, observation.t0_ns, header.frame_id), at_ns)
        self._send("trajectory", self._trajectory(points, header), at_ns)
        self._send(
            "candidates",
            new(
                "alpamayo_ros/msg/TrajectoryCandidates",
                header=header,
                candidates=[self._trajectory(each, header) for each in samples],
                reasoning=list(prediction.reasoning),
                chosen=chosen.index,
            ),
            at_ns,
        )
        self._send("reasoning", new("std_msgs/msg/String", data=text), at_ns)
        self._send(
            "reasoning_stamped",
            new(
                "alpamayo_ros/msg/Reasoning",
                header=header,
                text=text,
                token_ids=array(prediction.reasoning_token_ids[of_text], "int32"),
                finish_reason=prediction.finish_reasons[of_text],
            ),
            at_ns,
        )

        place = np.zeros(3) if pose is None else pose.position
        self._place = None if pose is None else (place, header.frame_id)
        shapes = tick_shapes(points, samples, text, place)
        self._send("markers", tick_markers(shapes, observation.t0_ns, header.frame_id, locked=pose is None), at_ns)

    def _write_skip(self, reason: str, at_ns: int) -> None:
        place, frame_id = (np.zeros(3), self._base_frame) if self._place is None else self._place
        shape = skip_shape(reason, place)
        self._send("markers", skip_markers(shape, at_ns, frame_id, locked=self._place is None), at_ns)

    def _trajectory(self, points: TrajectoryPoints, header: Any) -> Any:
        t0_ns = header.stamp.sec * SECOND_NS + header.stamp.nanosec
        return new(
            "alpamayo_ros/msg/Trajectory",
            header=header,
            valid_until=time_message(t0_ns + round(self._output.valid_for * SECOND_NS)),
            points=[
                new(
                    "alpamayo_ros/msg/TrajectoryPoint",
                    time_from_start=duration_message(after),
                    pose=pose_message(position, orientation),
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
        return new(
            "alpamayo_ros/msg/InferenceStatus",
            header=header_message(at_ns if t0_ns is None else t0_ns, ""),
            ok=ok,
            skip_reason="" if tick.skip is None else tick.skip.reason.value,
            detail="" if tick.skip is None else json.dumps(dict(tick.skip.numbers), default=str),
            lifecycle_state="active",
            engine=f"{self._engine.engine} on {self._engine.device}: {self._engine.model}",
            trained=self._engine.trained,
            stages=list(stages),
            stage_ms=array(stages.values(), "float32"),
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
            skip_counts=array(self._skips.values(), "uint64"),
            gpu_memory_bytes=0,
            epoch=0 if tick.observation is None else tick.observation.epoch,
        )

    def _send(self, name: str, message: Any, at_ns: int) -> None:
        self._bag.write(f"{OUTPUT}/{name}", message, at_ns)

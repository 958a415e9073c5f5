"""Writes the lines of a scenario, with times that are exact to the nanosecond."""

from __future__ import annotations

import json
from dataclasses import fields

import numpy as np

from alpamayo_ros.core.builder_config import BuilderConfig
from alpamayo_ros.core.incoming import SECOND_NS
from alpamayo_ros.evaluation.scenario import ClockEvent, Event, FrameEvent, OdometryEvent


def config_line(config: BuilderConfig) -> str:
    """The first line: every value, also where it is the default."""
    cameras = {
        camera.name: {"index": camera.index, "required": camera.required, "time_offset": camera.time_offset}
        for camera in config.cameras
    }
    values = {field.name: getattr(config, field.name) for field in fields(config)}
    return json.dumps({"type": "config", **values, "cameras": cameras})


def event_line(event: Event) -> str:
    """One event."""
    times, rest = {"at": event.at_ns}, dict[str, object]()
    if isinstance(event, FrameEvent):
        times["stamp"] = event.stamp_ns
        rest["camera"] = event.camera
        if event.height or event.width:
            rest |= {"height": event.height, "width": event.width}
        return _line("frame", times, rest)
    if isinstance(event, OdometryEvent):
        pose = event.pose
        times["stamp"] = pose.stamp_ns
        rest |= {"position": pose.position.tolist(), "orientation": pose.orientation.tolist()}
        if pose.linear_velocity is not None and pose.angular_velocity is not None:
            rest["twist"] = np.concatenate([pose.linear_velocity, pose.angular_velocity]).tolist()
        return _line("odometry", times, {**rest, "frame_id": event.frame_id, "child_frame_id": event.child_frame_id})
    if isinstance(event, ClockEvent):
        return _line("clock", {**times, "now": event.now_ns}, {})
    return _line("tick", times, {})


def _line(kind: str, times: dict[str, int], rest: dict[str, object]) -> str:
    # a float has too few digits for a Unix time in nanoseconds
    texts = [f'"at": {_seconds(times.pop("at"))}', f'"type": "{kind}"']
    texts += [f'"{name}": {_seconds(ns)}' for name, ns in times.items()]
    texts += [f'"{name}": {json.dumps(value)}' for name, value in rest.items()]
    return "{" + ", ".join(texts) + "}"


def _seconds(ns: int) -> str:
    sign, (seconds, rest) = "-" if ns < 0 else "", divmod(abs(ns), SECOND_NS)
    return f"{sign}{seconds}.{rest:09d}"

"""The path and the trajectory of a tick as the bytes that go over the wire, which rclpy publishes as they are.

As messages their 64 points are some 500 Python objects each, which took most of the time between an engine's result and
the message, and far more of it while another thread holds Python's lock. As bytes they are one copy with the tick's
numbers put in. Where those belong is found once per frame_id, in what the middleware itself makes of such a message.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rclpy.serialization import serialize_message

from alpamayo_ros.core.incoming import SECOND_NS
from alpamayo_ros.core.trajectory_points import TIMES_FROM_START_NS, TrajectoryPoints
from alpamayo_ros.core.types import HORIZON
from alpamayo_ros.ros import convert

Words = NDArray[np.uint32]  # every number of a message is one or two of these, at a multiple of 4 bytes

_TIMES = np.array((0, *TIMES_FROM_START_NS))
_SAMPLE_T0_NS, _SAMPLE_VALID_NS = 1_234_567_890_123_456_789, 1_876_543_210
_FRAMES_KEPT = 8


def path_bytes(points: TrajectoryPoints, t0_ns: int, frame_id: str) -> bytes:
    """`convert.path_message`, serialized."""
    return _path_template(frame_id).filled(_path_words(points, t0_ns))


def trajectory_bytes(points: TrajectoryPoints, t0_ns: int, frame_id: str, valid_ns: int) -> bytes:
    """`convert.trajectory_message`, serialized.

    Raises:
        ValueError: a number is too large for the message.
    """
    return _trajectory_template(frame_id).filled(_trajectory_words(points, t0_ns, valid_ns))


def warm_up(frame_id: str) -> None:
    """Make what ticks in this frame need.

    Raises:
        ValueError: the middleware writes messages in another way than is known here.
    """
    _path_template(frame_id)
    _trajectory_template(frame_id)


class Template:
    """A serialized message whose numbers can be replaced by others; texts and lengths stay.

    Args:
        message: an example.
        words: its numbers, in the order in which the message declares them.
        runs: how many of these words lie side by side, run by run.

    Raises:
        ValueError: the middleware's bytes of the message don't hold these numbers in this order.
    """

    def __init__(self, message: Any, words: Words, runs: Iterable[int]) -> None:
        data = serialize_message(message)
        places, taken, at = [], 0, 0
        for run in runs:
            at = data.find(words[taken : taken + run].tobytes(), at)
            if at < 0 or at % 4:
                raise ValueError(
                    f"number {taken} of a {type(message).__name__} isn't found in its {len(data)} serialized bytes: "
                    "this ROS middleware doesn't write messages as CDR"
                )
            places.append(np.arange(at // 4, at // 4 + run))
            taken, at = taken + run, at + 4 * run
        self._length = len(data)
        self._words = np.frombuffer(data + bytes(-len(data) % 4), np.uint32)
        self._places = np.concatenate(places)

    def filled(self, words: Words) -> bytes:
        """The message with these numbers, in the example's order."""
        message = self._words.copy()
        message[self._places] = words
        return message.tobytes()[: self._length]


def _path_words(points: TrajectoryPoints, t0_ns: int) -> Words:
    stamps = _stamps(t0_ns + _TIMES)
    poses = np.concatenate([stamps[1:], _words(_poses(points))], axis=1)
    return np.concatenate([stamps[0], poses.reshape(-1)])


def _trajectory_words(points: TrajectoryPoints, t0_ns: int, valid_ns: int) -> Words:
    motion = _float32(np.stack([points.speed, points.acceleration, points.curvature], axis=1))
    each = np.concatenate([_words(_poses(points)), _words(motion)], axis=1)
    stamps = _stamps(np.array([t0_ns, t0_ns + valid_ns]))
    return np.concatenate([stamps.reshape(-1), each.reshape(-1), _words(_float32(np.array([points.initial_speed])))])


def _poses(points: TrajectoryPoints) -> NDArray[np.float64]:
    return np.concatenate([points.position, points.orientation], axis=1)


def _float32(numbers: NDArray[Any]) -> NDArray[np.float32]:
    """As rclpy does it, which refuses numbers that are too large instead of sending infinity."""
    if not (np.abs(numbers) <= np.finfo(np.float32).max).all():
        raise ValueError(f"a speed, acceleration or curvature is {np.abs(numbers).max():g}, which no float32 can hold")
    return numbers.astype(np.float32)


def _words(numbers: NDArray[Any]) -> Words:
    """[..., n] as [..., words of n]."""
    return np.ascontiguousarray(numbers).view(np.uint32)


def _stamps(ns: NDArray[np.int64]) -> Words:
    """[n] ns as [n, 2]: seconds, and the rest in ns."""
    return np.stack(np.divmod(ns, SECOND_NS), axis=1).astype(np.uint32)


@lru_cache(_FRAMES_KEPT)
def _path_template(frame_id: str) -> Template:
    example = _example()
    message = convert.path_message(example, _SAMPLE_T0_NS, frame_id)
    return Template(message, _path_words(example, _SAMPLE_T0_NS), (2, *(2, 14) * HORIZON))


@lru_cache(_FRAMES_KEPT)
def _trajectory_template(frame_id: str) -> Template:
    example = _example()
    message = convert.trajectory_message(example, _SAMPLE_T0_NS, frame_id, _SAMPLE_VALID_NS)
    return Template(message, _trajectory_words(example, _SAMPLE_T0_NS, _SAMPLE_VALID_NS), (2, 2, *(17,) * HORIZON, 1))


def _example() -> TrajectoryPoints:
    """Numbers that are found again, since none is there twice."""
    rng = np.random.default_rng(0)
    speed, acceleration, curvature = rng.random((3, HORIZON))
    return TrajectoryPoints(
        position=rng.random((HORIZON, 3)),
        orientation=rng.random((HORIZON, 4)),
        speed=speed,
        acceleration=acceleration,
        curvature=curvature,
        initial_speed=float(rng.random()),
    )

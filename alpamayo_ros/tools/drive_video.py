"""A closed loop as a video: what the front camera saw, the path that was followed, and what the model wrote."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import cv2
import numpy as np

from alpamayo_ros.core.types import AlpamayoError, Array
from alpamayo_ros.evaluation.drive_bag import BASE_LINK
from alpamayo_ros.sensors.overlay import TEXT_BACK, Picture, draw_paths, write_below
from alpamayo_ros.sim.journey import Journey
from alpamayo_ros.sim.renderer import Renderer
from alpamayo_ros.sim.rig import rig
from alpamayo_ros.sim.vehicle import VehicleState
from alpamayo_ros.sim.world import World
from alpamayo_ros.tools.drive_node import Answer, DriveNode

FRONT = "front_wide"
SIZE = (640, 384)  # pixels of the front camera's picture: the model's view, four times as large
HEIGHT = 578  # of the whole, with the model's own four pictures and up to three lines of text below
CODEC = "VP80"  # in WebM: what OpenCV can write, and browsers can show
EVERY = 2  # ticks: writing takes as long as driving
RATE_HZ = 10 / EVERY  # real time
GRAIN = 3  # pixels of a median filter: the camera's noise would make most of the file
KM_H = 3.6
LAST_WORDS_S = 0.3  # for the last tick's reasoning, which comes after its path


@dataclass(frozen=True, eq=False)
class _Moment:
    """A tick whose reasoning may not have come yet."""

    t0_ns: int
    picture: Picture
    facts: str


class DriveVideo:
    """Writes a WebM, a picture for every second trajectory. A context manager, whose end finishes the file.

    Args:
        path: of the file.
        world: of the drive.
        renderer: with the model's cameras.
        node: that hears the reasoning.

    Raises:
        AlpamayoError: OpenCV can't write such a video here.
    """

    def __init__(self, path: Path, world: World, renderer: Renderer, node: DriveNode) -> None:
        self._model_eyes, self._node = renderer, node
        self._front = Renderer(world, {FRONT: rig(*SIZE)[FRONT]})
        self._waiting: _Moment | None = None
        self._ticks = 0
        code = cv2.VideoWriter.fourcc(*CODEC)
        with _without_messages():  # OpenCV calls the codec unsupported, and writes it
            self._writer = cv2.VideoWriter(str(path), cv2.CAP_FFMPEG, code, RATE_HZ, (SIZE[0], HEIGHT))
        if not self._writer.isOpened():
            raise AlpamayoError(f"{path}: this OpenCV ({cv2.__version__}) can't write {CODEC} videos")

    def __enter__(self) -> DriveVideo:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None and self._waiting is not None:
            self._node.spin(LAST_WORDS_S)
        self._write_waiting()
        self._writer.release()

    def __call__(self, journey: Journey, answer: Answer) -> None:
        """Take a tick that was answered in lock step: the journey is where it was at t0."""
        self._write_waiting()
        self._ticks += 1
        if self._ticks % EVERY:
            return
        front, seen = self._front.draw(journey)[FRONT], self._model_eyes.draw(journey)
        clear = np.asarray(cv2.medianBlur(front, GRAIN), np.uint8)
        drawn = draw_paths(clear, self._front.cameras[FRONT], path_in_ego(answer, journey.vehicle))
        self._waiting = _Moment(answer.t0_ns, _above_each_other(drawn, seen), _facts(journey))

    def _write_waiting(self) -> None:
        if self._waiting is None:
            return
        moment, self._waiting = self._waiting, None
        reasoning = self._node.reasoning_at(moment.t0_ns)
        picture = write_below(write_below(moment.picture, moment.facts), f'The model: "{reasoning}"')
        whole = np.full((HEIGHT, SIZE[0], 3), TEXT_BACK, np.uint8)
        whole[: len(picture)] = picture[:HEIGHT]
        self._writer.write(cv2.cvtColor(whole, cv2.COLOR_RGB2BGR))


@contextmanager
def _without_messages() -> Iterator[None]:
    """Nothing reaches the standard error output, also of what libraries in C write there."""
    sys.stderr.flush()
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


def path_in_ego(answer: Answer, vehicle: VehicleState) -> Array:
    """The points [64, 3] m in the frame of the vehicle at t0."""
    xy = answer.xy
    if answer.frame_id != BASE_LINK:
        c, s = np.cos(vehicle.yaw), np.sin(vehicle.yaw)
        xy = (xy - [vehicle.x, vehicle.y]) @ np.array([[c, -s], [s, c]])
    return np.column_stack([xy, np.zeros(len(xy))])


def _above_each_other(front: Picture, seen: dict[str, Picture]) -> Picture:
    """The front camera's picture, and below in a row what the model saw."""
    width = SIZE[0] // len(seen)
    row = [
        cv2.resize(picture, (width, round(picture.shape[0] * width / picture.shape[1]))) for picture in seen.values()
    ]
    return np.concatenate([front, np.concatenate(row, axis=1)]).astype(np.uint8)


def _facts(journey: Journey) -> str:
    facts = [f"{journey.time_s:.1f} s", f"{journey.vehicle.speed * KM_H:.0f} km/h"]
    if journey.navigation:
        facts.append(f'navigation: "{journey.navigation}"')
    return ", ".join(facts)

"""From a recorded drive to what training needs of it, one example per tick."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from alpamayo_ros.core.types import HISTORY_LENGTH, HORIZON
from alpamayo_ros.model.action_space import UnicycleActionSpace
from alpamayo_ros.model.config import ModelConfig
from alpamayo_ros.model.images import target_size
from alpamayo_ros.model.resize import resize
from alpamayo_ros.sim.recorded_drive import RecordedDrive
from alpamayo_ros.sim.sentences import SENTENCE_CLASSES
from alpamayo_ros.training.observations import CAMERAS, FIRST_TICK, histories_of


@dataclass(frozen=True, eq=False)
class DriveExamples:
    """The ticks of one drive: T frames, of which the last M have a whole ego history."""

    images: NDArray[np.uint8]  # [T, cameras, height, width, 3] RGB, resized as the model takes them
    histories: NDArray[np.float32]  # [M, 16, 3] m in ego
    actions: NDArray[np.float32]  # [M, 64, 2] normalised
    paths: NDArray[np.float32]  # [M, 64, 2] m in ego, xy
    sentences: NDArray[np.str_]  # [M]
    navigation: NDArray[np.str_]  # [M]; "" for none
    cars: NDArray[np.float32]  # [M, 3] m, m/s and m/s^2 of the car ahead; NaN for none

    def __len__(self) -> int:
        return len(self.histories)

    def save(self, path: Path) -> None:
        """Write a file, all or nothing."""
        scratch = path.with_name(f".{path.name}")
        with scratch.open("wb") as stream:
            np.savez(stream, **{field.name: getattr(self, field.name) for field in fields(self)})
        scratch.rename(path)

    @classmethod
    def load(cls, path: Path) -> DriveExamples:
        """Read what `save` wrote."""
        with np.load(path) as content:
            return cls(**{field.name: content[field.name] for field in fields(cls)})


def blank_examples(image_size: tuple[int, int], config: ModelConfig) -> DriveExamples:
    """One tick that shows nothing: a batch of it has the shapes of every other, before any drive is there."""
    return DriveExamples(
        images=np.zeros((FIRST_TICK + 1, len(CAMERAS), *target_size(*image_size, config.images), 3), np.uint8),
        histories=np.zeros((1, HISTORY_LENGTH, 3), np.float32),
        actions=np.zeros((1, HORIZON, 2), np.float32),
        paths=np.zeros((1, HORIZON, 2), np.float32),
        sentences=np.array(SENTENCE_CLASSES[:1]),
        navigation=np.array([""]),
        cars=np.full((1, 3), np.nan, np.float32),
    )


def examples_of(drive: RecordedDrive, config: ModelConfig) -> DriveExamples:
    """Prepare a drive as the model reads it, by the model's own code.

    The actions are those that the action space fits to the planned future.
    """
    history_xyz, history_rotation = (torch.from_numpy(array) for array in histories_of(drive))
    futures = torch.from_numpy(np.asarray(drive.futures[FIRST_TICK:], dtype=np.float64))
    rotations = torch.from_numpy(np.asarray(drive.future_rotations[FIRST_TICK:], dtype=np.float64))
    space = UnicycleActionSpace(config.action_space)
    actions = space.trajectory_to_actions(futures, rotations, history_xyz, history_rotation)
    return DriveExamples(
        images=_resized(drive.images, config),
        histories=history_xyz.numpy().astype(np.float32),
        actions=actions.numpy().astype(np.float32),
        paths=futures[..., :2].numpy().astype(np.float32),
        sentences=np.array(drive.sentences[FIRST_TICK:]),
        navigation=np.array([text or "" for text in drive.navigation[FIRST_TICK:]]),
        cars=drive.cars[FIRST_TICK:].astype(np.float32),
    )


def _resized(images: NDArray[np.uint8], config: ModelConfig) -> NDArray[np.uint8]:
    """[T, cameras, H, W, 3] at the size that inference would resize them to."""
    height, width = images.shape[2:4]
    size = target_size(height, width, config.images)
    if size == (height, width):
        return images
    flat = torch.from_numpy(images).flatten(0, 1).permute(0, 3, 1, 2)
    small = resize(flat, *size).permute(0, 2, 3, 1)
    return small.unflatten(0, images.shape[:2]).contiguous().numpy()

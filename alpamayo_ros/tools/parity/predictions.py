"""Lets the engine itself predict what was recorded: images and poses in, paths out."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from alpamayo_ros.core.types import FRAMES_PER_CAMERA, EgoPose, Frame, Observation, SamplingOptions
from alpamayo_ros.engine.base import Engine
from alpamayo_ros.model.vocabulary import Vocabulary
from alpamayo_ros.tools.parity.case import CaseResult, close

XYZ_TOLERANCE = 2e-3  # m
ROTATION_TOLERANCE = 1e-3

_serials = itertools.count()


def check_predictions(
    name: str,
    arrays: Mapping[str, np.ndarray],
    settings: Mapping[str, Any],
    engine: Engine,
    vocabulary: Vocabulary,
    frames: np.ndarray,
    rows: Sequence[int],
) -> Iterator[CaseResult]:
    """Predict each row whose reasoning the engine can be given: one that ends as it should.

    Args:
        name, arrays, settings: Of the case.
        engine: Its image limits have to be the case's.
        vocabulary: The model's.
        frames: [images, 3, H, W] uint8.
        rows: The prompt of each row.
    """
    closing = [vocabulary.reasoning_end, vocabulary.future_start]
    more, samples = settings["diffusion_kwargs"], settings["num_traj_samples"]
    for row, prompt in enumerate(rows):
        plan = settings["forced_plan"] and settings["forced_plan"][row]
        if not plan or plan[-2:] != closing:
            continue
        noise = torch.from_numpy(arrays["x0_noise"][row : row + 1])
        vars(engine)["_noise"] = lambda _options, noise=noise: noise  # recorded noise in place of its own
        options = SamplingOptions(
            reasoning="given",
            given_reasoning=vocabulary.decode(plan[:-2]),
            flow_steps=more.get("inference_step"),
            noise_temperature=more.get("temperature", 1.0),
            guidance_weight=settings["guidance_alpha"],
        )
        prediction = engine.predict(recorded_observation(arrays, settings, frames, prompt), options)
        xyz, rotation = (arrays[key][prompt, 0, row % samples] for key in ("pred_xyz", "pred_rot"))
        yield close(f"{name}/predict/{row}/xyz", prediction.xyz[0], xyz, XYZ_TOLERANCE)
        yield close(f"{name}/predict/{row}/rotation", prediction.rotation[0], rotation, ROTATION_TOLERANCE)


def recorded_observation(
    arrays: Mapping[str, np.ndarray], settings: Mapping[str, Any], frames: np.ndarray, prompt: int
) -> Observation:
    """What the engine is given for one prompt of a case; its frames have serials that no other has."""
    height, width = settings["image_hw"]
    cameras = settings["cameras"] or range(len(frames) // FRAMES_PER_CAMERA)
    by_camera: dict[int, list[Frame]] = {camera: [] for camera in cameras}
    for index, pixels in enumerate(frames):
        camera = cameras[index // FRAMES_PER_CAMERA]
        data = np.ascontiguousarray(pixels.transpose(1, 2, 0))
        by_camera[camera].append(Frame(next(_serials), camera, index, data, "rgb8", height, width, 3 * width))
    texts = settings["nav_text"]
    return Observation(
        t0_ns=0,
        epoch=0,
        frames={camera: tuple(its) for camera, its in by_camera.items()},
        history_xyz=arrays["hist_xyz"][prompt, 0].astype(np.float64),
        history_rotation=arrays["hist_rot"][prompt, 0].astype(np.float64),
        pose=EgoPose(0, np.zeros(3), np.array([0.0, 0.0, 0.0, 1.0])),
        navigation=texts[prompt] if isinstance(texts, list) else texts,
    )

"""What an observation and a prediction must satisfy before they are used."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from alpamayo_ros.core.types import (
    FRAMES_PER_CAMERA,
    HISTORY_LENGTH,
    HORIZON,
    STEP_NS,
    AlpamayoError,
    Array,
    Observation,
    Prediction,
    Skip,
    SkipReason,
)

ORTHONORMAL = 1e-3  # how far R' R may be from the identity, and det R from 1
FIRST_POINT = 2.0  # m that the first point may be off from v0 * 0.1 s ahead
BEHIND = 1.0  # m that a vehicle that drives forward may end up behind itself
DRIVING_FORWARD = 1.0  # m/s
LONGEST_STEP = 15.0  # m between two points, 0.1 s apart: 540 km/h


class InvalidObservationError(AlpamayoError):
    """An observation that no engine could use: a mistake of the program, not of its input."""


def check_observation(observation: Observation) -> None:
    """Refuse an observation that breaks its own definition.

    Raises:
        InvalidObservationError: naming what is wrong.
    """
    if not observation.frames:
        raise InvalidObservationError("the observation has no camera; it has to have at least one")
    if list(observation.frames) != sorted(observation.frames):
        raise InvalidObservationError(f"the cameras are in the order {list(observation.frames)}; it has to be by index")
    for camera, frames in observation.frames.items():
        stamps = [frame.stamp_ns for frame in frames]
        if len(frames) != FRAMES_PER_CAMERA or any(b <= a for a, b in pairwise(stamps)):
            raise InvalidObservationError(f"camera {camera} has frames at {stamps}; they have to be 4, each later")
        if any(frame.camera != camera for frame in frames):
            raise InvalidObservationError(f"camera {camera} holds a frame of camera {frames[0].camera}")
    xyz, rotation = observation.history_xyz, observation.history_rotation
    if xyz.shape != (HISTORY_LENGTH, 3) or rotation.shape != (HISTORY_LENGTH, 3, 3):
        raise InvalidObservationError(
            f"the history has the shapes {xyz.shape} and {rotation.shape}; they have to be (16, 3) and (16, 3, 3)"
        )
    if not (np.isfinite(xyz).all() and is_rotation(rotation)):
        raise InvalidObservationError("the history holds a value that is not finite, or a matrix that is no rotation")
    if np.abs(xyz[-1]).max() > 1e-6 or np.abs(rotation[-1] - np.eye(3)).max() > 1e-6:
        raise InvalidObservationError("the history does not end at the ego frame's origin")


def check_prediction(prediction: Prediction, observation: Observation) -> Skip | None:
    """The skip "bad_output" for a prediction that must not be published; None when nothing is wrong with it."""
    numbers = _fault(observation, prediction)
    if numbers is None:
        return None
    return Skip(SkipReason.BAD_OUTPUT, observation.t0_ns, {SkipReason.BAD_OUTPUT.value: numbers})


def is_rotation(matrices: Array) -> bool:
    """Whether all of [..., 3, 3] are finite rotations."""
    if not np.isfinite(matrices).all():
        return False
    products = np.swapaxes(matrices, -1, -2) @ matrices
    close = np.abs(products - np.eye(3)).max() <= ORTHONORMAL
    return bool(close and np.abs(np.linalg.det(matrices) - 1).max() <= ORTHONORMAL)


def _fault(observation: Observation, prediction: Prediction) -> dict[str, Any] | None:
    if not isinstance(prediction, Prediction):
        return {"fault": f"the answer is a {type(prediction).__name__}", "expected": "Prediction"}
    samples = len(prediction.reasoning)
    for name in ("reasoning_token_ids", "finish_reasons"):
        if len(getattr(prediction, name)) != samples:
            return {"fault": f"{name} is of {len(getattr(prediction, name))} samples", "expected": samples}
    shapes = {
        "xyz": (samples, HORIZON, 3),
        "rotation": (samples, HORIZON, 3, 3),
        "actions": (samples, HORIZON, 2),
        "speed": (samples, HORIZON + 1),
    }
    for name, shape in shapes.items():
        values = getattr(prediction, name)
        if not isinstance(values, np.ndarray) or values.dtype.kind not in "fiu":
            kind = getattr(values, "dtype", type(values).__name__)
            return {"fault": f"{name} is of type {kind}", "expected": "an array of numbers"}
        if samples < 1 or values.shape != shape:
            return {"fault": f"{name} has the shape {list(values.shape)}", "expected": list(shape)}
        if not np.isfinite(values).all():
            return {"fault": f"{name} is not finite", "values": int((~np.isfinite(values)).sum())}
    if not is_rotation(prediction.rotation):
        return {"fault": "rotation holds a matrix that is no rotation"}
    steps = np.linalg.norm(np.diff(prediction.xyz, axis=1), axis=-1)
    if steps.max() > LONGEST_STEP:
        sample, point = (int(at) for at in np.unravel_index(steps.argmax(), steps.shape))
        fault = f"a step of {steps.max():.4g} m in 0.1 s, expected at most {LONGEST_STEP:g}"
        return {"fault": fault, "sample": sample, "point": point + 1}
    return _implausible_start(observation, prediction)


def _implausible_start(observation: Observation, prediction: Prediction) -> dict[str, Any] | None:
    """A first point far from where the vehicle will be, or a path behind a vehicle that drives forward.

    The speed is that of the observation, not of the prediction: the history's last step, or the twist.
    """
    step_s = STEP_NS * 1e-9
    velocity = -observation.history_xyz[-2] / step_s
    first = prediction.xyz[:, 0] - velocity * step_s
    off = np.linalg.norm(first[:, :2], axis=-1)
    if off.max() > FIRST_POINT:
        sample = int(off.argmax())
        return {"fault": "first point away from v0 * 0.1 s", "sample": sample, "off_m": round(float(off[sample]), 2)}
    if velocity[0] > DRIVING_FORWARD:
        behind = prediction.xyz[:, :, 0].min(axis=-1)
        circled = np.abs(prediction.xyz[:, :, 1]).max(axis=-1) > BEHIND  # a turn may lead back past the start
        bad = (behind < -BEHIND) & ~circled
        if bad.any():
            sample = int(bad.argmax())
            return {"fault": "behind the vehicle", "sample": sample, "x_m": round(float(behind[sample]), 2)}
    return None

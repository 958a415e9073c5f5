"""How far a whole model may be from a recording in float32, by the type of its weights."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Tolerances:
    """In the maximum norm."""

    hidden: float  # image features, logits, keys and values
    velocity: float  # of every Euler step, on the recorded state; the expert's input and output
    teacher_forced: bool  # nothing is compared that follows from the model's own tokens or states


# For float32 those of the golden data's README. For the others what the rounding of every layer was seen to do on a
# CPU, at most 0.17 and 0.39 in bfloat16, 0.02 and 0.04 in float16, with a margin: they find a gross mistake, and only
# float32 finds an expert whose positions are off by one.
TOLERANCES = {
    torch.float32: Tolerances(hidden=1e-4, velocity=1e-3, teacher_forced=False),
    torch.bfloat16: Tolerances(hidden=0.3, velocity=0.6, teacher_forced=True),
    torch.float16: Tolerances(hidden=0.05, velocity=0.1, teacher_forced=True),
}

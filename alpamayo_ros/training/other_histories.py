"""Ego histories as another way here would have left them, so that a model can't go on as its own history does.

A driver that learns from the expert alone finds out that the expert's next bend is mostly its last one, and then
follows its own mistakes. Here the history of some ticks bends and speeds up otherwise than the vehicle did, while where
it leads, and how fast the vehicle is at its end, stay as they are: only the pictures tell how to go on.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from alpamayo_ros.core.types import STEP_NS

STEP_S = STEP_NS * 1e-9
BEND, SPEEDING_UP = 0.02, 0.7  # 1/m and m/s^2: standard deviations of what is added
STANDING = 0.005  # m a step; a vehicle that stood isn't made to have moved


@dataclass(frozen=True, eq=False)
class OtherWay:
    """By how much the histories of B ticks differ from the vehicle's."""

    bend: Tensor  # [B] 1/m, added to the curvature; 0 leaves a history as it is
    speeding_up: Tensor  # [B] m/s^2, added to the acceleration

    @classmethod
    def draw(cls, count: int, share: float, generator: torch.Generator) -> OtherWay:
        """Differences for this share of ticks, on the generator's device; none for the rest."""
        noise = torch.randn(2, count, generator=generator, device=generator.device)
        differs = torch.rand(count, generator=generator, device=generator.device) < share
        bend, speeding_up = noise * differs
        return cls(BEND * bend, SPEEDING_UP * speeding_up)

    def of(self, histories: Tensor) -> Tensor:
        """The histories [B, H, 3] m in ego that the other way leaves, from those of the vehicle."""
        steps = histories.diff(dim=1)  # [B, H - 1, 3]
        age = STEP_S * (torch.arange(steps.shape[1], 0, -1, device=steps.device) - 0.5)  # s before t0, of its middle
        x, y, z = steps.unbind(-1)
        x = torch.where(x > STANDING, (x - self.speeding_up[:, None] * age * STEP_S).clamp(min=0.0), x)
        lengths = torch.hypot(x, y)
        left = lengths.flip(1).cumsum(1).flip(1) - lengths / 2  # m from a step's middle to t0
        turn = -self.bend[:, None] * left
        turned = torch.stack((turn.cos() * x - turn.sin() * y, turn.sin() * x + turn.cos() * y, z), -1)
        places = -turned.flip(1).cumsum(1).flip(1)
        others = torch.cat((places, torch.zeros_like(places[:, :1])), 1)
        differs = (self.bend != 0) | (self.speeding_up != 0)
        return torch.where(differs[:, None, None], others, histories)

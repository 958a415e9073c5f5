"""Flow matching at inference: Euler steps from noise (t = 0) to actions (t = 1).

Formulas from NVIDIA's public code (NVlabs/alpamayo1.5, diffusion/flow_matching.py). The state stays float32 whatever
the dtype of the velocity.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from alpamayo_ros.core.types import ConfigurationError
from alpamayo_ros.model.fields import read_fields

Velocity = Callable[[Tensor, Tensor], Tensor]  # (state [S, N, 2], time [S, 1, 1]) -> velocity [S, N, 2]


@dataclass(frozen=True)
class FlowMatchingConfig:
    """`diffusion_cfg` of config.json, with NVIDIA's names."""

    int_method: str = "euler"
    num_inference_steps: int = 10

    def __post_init__(self) -> None:
        if self.int_method != "euler":
            raise ConfigurationError(f'diffusion_cfg.int_method is {self.int_method!r}; it has to be "euler"')
        if self.num_inference_steps < 1:
            raise ConfigurationError(
                f"diffusion_cfg.num_inference_steps is {self.num_inference_steps}; it has to be at least 1"
            )

    @classmethod
    def from_json(cls, section: Mapping[str, Any]) -> FlowMatchingConfig:
        """Read `diffusion_cfg`. Its keys about training and about the shape of the state are passed over.

        Guidance is asked for tick by tick here, so its weight in the config doesn't count either.

        Raises:
            ConfigurationError: a value that can't be.
        """
        training = [key for key in section if key.startswith(("train_", "beta_"))]
        ignored = (*training, "x_dims", "use_classifier_free_guidance", "inference_guidance_weight")
        return read_fields(cls, section, "diffusion_cfg", ignored=ignored)


@dataclass(frozen=True, eq=False)
class Flow:
    """What an integration went through; the last state is the result."""

    times: Tensor  # [steps + 1] float32
    states: Tensor  # [steps + 1, ..., N, 2] float32
    velocities: Tensor  # [steps, ..., N, 2] as the velocity returned them

    @property
    def actions(self) -> Tensor:
        """The normalised actions [..., N, 2] at t = 1."""
        return self.states[-1]


def time_grid(steps: int, device: torch.device | str = "cpu") -> Tensor:
    """The times [steps + 1] from 0 to 1, the same float32 numbers on every device.

    Raises:
        ConfigurationError: less than one step.
    """
    if steps < 1:
        raise ConfigurationError(f"the flow has {steps} steps; it has to have at least 1")
    return torch.linspace(0.0, 1.0, steps + 1, dtype=torch.float32).to(device)


def integrate(velocity: Velocity, noise: Tensor, steps: int, temperature: float = 1.0) -> Flow:
    """Follow a velocity field from noise to actions: x += (t[i+1] - t[i]) v(x, t[i]).

    Args:
        velocity: The field.
        noise: [S, N, 2] float32, normally distributed.
        steps: Euler steps.
        temperature: Factor on the noise, not on the velocity.
    """
    return follow(velocity, noise.float() * temperature, time_grid(steps, noise.device))


def follow(velocity: Velocity, state: Tensor, times: Tensor) -> Flow:
    """Follow a velocity field from a state [S, N, 2] float32 along times [steps + 1] that lie on its device."""
    states, velocities = [state], []
    for now, then in pairwise(times):
        velocities.append(velocity(state, now.expand(state.shape[0], 1, 1)))
        state = state + (then - now) * velocities[-1]
        states.append(state)
    return Flow(times, torch.stack(states), torch.stack(velocities))


def mix_velocities(unguided: Tensor, guided: Tensor, weight: float | Tensor) -> Tensor:
    """Classifier-free guidance: (1 - weight) unguided + weight guided.

    Weight 0 ignores the navigation text, 1 follows it as the model does on its own, more exaggerates it.
    """
    return (1.0 - weight) * unguided + weight * guided

"""Turns noisy actions and the flow's time into the expert's input embeddings.

Layout and names are those of NVIDIA's `PerWaypointActionInProjV2` (NVlabs/alpamayo1.5, models/action_in_proj.py), so
that its weights load as they are: `encoder.trunk.{0,2,3,5,...}` and `norm`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from alpamayo_ros.core.types import ConfigurationError
from alpamayo_ros.model.fields import read_fields
from alpamayo_ros.model.pointwise import norm

ACTION_DIMENSIONS = 2  # acceleration and curvature


@dataclass(frozen=True)
class ActionProjectionConfig:
    """`action_in_proj_cfg` of config.json, with NVIDIA's names. Its values are the defaults."""

    hidden_size: int = 1024
    num_enc_layers: int = 4
    max_freq: float = 100.0
    num_fourier_feats: int = 20  # sines and cosines together, for each of acceleration, curvature and time

    def __post_init__(self) -> None:
        if self.num_fourier_feats < 2 or self.num_fourier_feats % 2:
            raise ConfigurationError(
                f"action_in_proj_cfg.num_fourier_feats is {self.num_fourier_feats}; it has to be even and at least 2"
            )
        for name in ("hidden_size", "num_enc_layers"):
            if getattr(self, name) < 1:
                raise ConfigurationError(f"action_in_proj_cfg.{name} is {getattr(self, name)}; it has to be positive")

    @classmethod
    def from_json(cls, section: Mapping[str, Any]) -> ActionProjectionConfig:
        """Read `action_in_proj_cfg`.

        Raises:
            ConfigurationError: a value that can't be.
        """
        # sizes that follow from others, and whether NVIDIA's code stores the frequencies
        ignored = ("in_dims", "out_dim", "fourier_persistent")
        return read_fields(cls, section, "action_in_proj_cfg", ignored=ignored)


class RootMeanSquareNorm(nn.Module):
    """x / sqrt(mean(x^2) + eps) in float32, cast back, times the weight."""

    def __init__(self, size: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """Normalise over the last dimension."""
        return norm(x, self.weight, self.eps)


class WaypointEncoder(nn.Module):
    """Linear and SiLU, then RMSNorm before each further layer; the last Linear has no activation."""

    def __init__(self, features: int, hidden: int, layers: int, out: int) -> None:
        super().__init__()
        blocks: list[nn.Module] = []
        for size in [features] + [hidden] * (layers - 1):
            blocks += [nn.Linear(size, hidden), nn.SiLU(), RootMeanSquareNorm(hidden)]
        self.trunk = nn.Sequential(*blocks, nn.Linear(hidden, out))

    def forward(self, features: Tensor) -> Tensor:
        """[..., features] to [..., out]."""
        return self.trunk(features.to(next(self.trunk.parameters()).dtype))


class ActionProjection(nn.Module):
    """Actions [S, N, 2] and times [S, 1, 1] to embeddings [S, N, out_features].

    Each of acceleration, curvature and time becomes sqrt(2) sin(2 pi f s) and sqrt(2) cos(2 pi f s) at frequencies f
    spaced logarithmically from 1 to `max_freq`. Time enters the expert here and nowhere else.

    The frequencies are no parameters. They stay float32 when the module changes its dtype, since an angle of up to
    2 pi 100 in bfloat16 would be noise; `bf16_constants` rounds their values to bfloat16 once, as NVIDIA's runtime
    does. With `upcast_inputs` (Alpamayo R1) inputs of lower precision are taken to float32 first; without (1.5) the
    angles have the dtype of the input.
    """

    frequencies: Tensor

    def __init__(
        self,
        config: ActionProjectionConfig,
        out_features: int,
        bf16_constants: bool = True,
        upcast_inputs: bool = False,
    ) -> None:
        super().__init__()
        self.config = config
        self.bf16_constants = bf16_constants
        self.upcast_inputs = upcast_inputs
        features = (ACTION_DIMENSIONS + 1) * config.num_fourier_feats
        self.encoder = WaypointEncoder(features, config.hidden_size, config.num_enc_layers, out_features)
        self.norm = nn.LayerNorm(out_features)
        self.register_buffer("frequencies", self._make_frequencies(), persistent=False)

    def fourier_features(self, actions: Tensor, times: Tensor) -> Tensor:
        """[S, N, 3 * num_fourier_feats]: sines then cosines of acceleration, of curvature, of time."""
        if self.upcast_inputs:
            actions, times = actions.float(), times.float()
        steps = times[..., -1:].expand(*actions.shape[:-1], 1)
        values = torch.cat((actions, steps.to(actions.dtype)), -1)
        angles = values[..., None] * self.frequencies.to(values.dtype) * (2 * math.pi)
        return (torch.cat((angles.sin(), angles.cos()), -1) * math.sqrt(2)).flatten(-2)

    def forward(self, actions: Tensor, times: Tensor) -> Tensor:
        """Embed every step of the noisy actions."""
        return self.norm(self.encoder(self.fourier_features(actions, times)))

    def _make_frequencies(self, device: torch.device | None = None) -> Tensor:
        count = self.config.num_fourier_feats // 2
        frequencies = torch.logspace(0, math.log10(self.config.max_freq), count, dtype=torch.float32, device="cpu")
        return (frequencies.bfloat16().float() if self.bf16_constants else frequencies).to(device)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> ActionProjection:
        # to(), cuda(), bfloat16(), to_empty(): the frequencies follow to the device only.
        super()._apply(fn, recurse)
        self.frequencies = self._make_frequencies(self.frequencies.device)
        return self

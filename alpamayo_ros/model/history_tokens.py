"""The ego history as tokens: each step's displacement, one bin per axis.

Formulas from NVIDIA's public code (NVlabs/alpamayo1.5, models/delta_tokenizer.py). Rotations aren't used.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from alpamayo_ros.core.types import ConfigurationError
from alpamayo_ros.model.fields import read_fields


@dataclass(frozen=True)
class HistoryTokenizerConfig:
    """`hist_traj_tokenizer_cfg` of config.json, with NVIDIA's names. Its values are the defaults."""

    ego_xyz_min: tuple[float, float, float] = (-4.0, -4.0, -10.0)  # m per step
    ego_xyz_max: tuple[float, float, float] = (4.0, 4.0, 10.0)
    num_bins: int = 1000
    predict_yaw: bool = False

    def __post_init__(self) -> None:
        if self.predict_yaw:
            raise ConfigurationError("hist_traj_tokenizer_cfg.predict_yaw is true; only false is supported")
        if self.num_bins < 2:
            raise ConfigurationError(f"hist_traj_tokenizer_cfg.num_bins is {self.num_bins}; it has to be at least 2")
        if any(low >= high for low, high in zip(self.ego_xyz_min, self.ego_xyz_max, strict=True)):
            raise ConfigurationError(
                f"hist_traj_tokenizer_cfg.ego_xyz_min is {self.ego_xyz_min}; "
                f"every value has to be below that of ego_xyz_max, {self.ego_xyz_max}"
            )

    @classmethod
    def from_json(cls, section: Mapping[str, Any]) -> HistoryTokenizerConfig:
        """Read `hist_traj_tokenizer_cfg`.

        Raises:
            ConfigurationError: a value that can't be, or that changes what is computed.
        """
        unused = ("ego_yaw_min", "ego_yaw_max", "load_weights", "load_from_checkpoint")
        # later models leave out the displacement from the origin
        only = {"pad_origin_at_beginning": True}
        return read_fields(cls, section, "hist_traj_tokenizer_cfg", ignored=unused, only=only)


class HistoryTokenizer:
    """Bins of displacements. A bin plus the vocabulary's first history id is a token id."""

    def __init__(self, config: HistoryTokenizerConfig) -> None:
        self.config = config

    def encode(self, history_xyz: Tensor) -> Tensor:
        """Bin the displacements of a history.

        The displacement into the first pose counts from the origin, so that it saturates for a car that moves: the
        model was trained with it. In float32, in this order: ((d - min) / (max - min)) * (bins - 1), rounded half to
        even, clamped.

        Args:
            history_xyz: [..., H, 3] m in ego, oldest first.

        Returns:
            [..., 3 H] int64, x y z of the oldest first.

        Raises:
            ConfigurationError: another shape, or a coordinate that isn't finite.
        """
        if history_xyz.ndim < 2 or history_xyz.shape[-1] != 3:
            raise ConfigurationError(f"history_xyz has the shape {tuple(history_xyz.shape)}; it has to be [..., H, 3]")
        if not history_xyz.isfinite().all():
            raise ConfigurationError("history_xyz holds NaN or infinity; every coordinate has to be finite")
        xyz = history_xyz.float()
        displacement = torch.cat((xyz[..., :1, :], xyz[..., 1:, :] - xyz[..., :-1, :]), -2)
        low, high = self._range(xyz)
        last = self.config.num_bins - 1
        bins = ((displacement - low) / (high - low) * last).round().clamp(0, last)
        return bins.long().flatten(-2)

    def decode(self, bins: Tensor) -> Tensor:
        """The positions [..., H, 3] in m, float32, that bins [..., 3 H] stand for."""
        displacement = bins.unflatten(-1, (-1, 3)).float()
        low, high = self._range(displacement)
        return (displacement / (self.config.num_bins - 1) * (high - low) + low).cumsum(-2)

    def _range(self, like: Tensor) -> tuple[Tensor, Tensor]:
        return like.new_tensor(self.config.ego_xyz_min), like.new_tensor(self.config.ego_xyz_max)

"""What the action expert reads in training: prefixes that gradients flow into, each before several noisy samples."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from alpamayo_ros.model.expert import rotary_angles
from alpamayo_ros.model.geometry import DecoderGeometry


@dataclass(frozen=True, eq=False)
class TrainingContext:
    """B prefixes, padded on the right, each before G samples of N action tokens; see `model.expert.Context`."""

    keys: tuple[Tensor, ...]  # per layer [B, kv_heads, S, head_dim], rotated
    values: tuple[Tensor, ...]
    samples: int
    cosines: Tensor  # [B, N, head_dim]
    sines: Tensor
    mask: Tensor  # [B G, 1, 1, S + N] bool, True is read

    @classmethod
    def after(
        cls,
        keys: tuple[Tensor, ...],
        values: tuple[Tensor, ...],
        ends: Tensor,
        rope_delta: int,
        samples: int,
        tokens: int,
        geometry: DecoderGeometry,
    ) -> TrainingContext:
        """Action tokens that follow prefixes.

        Args:
            keys, values: Per layer [B, kv_heads, S, head_dim].
            ends: [B] int64, where each prefix ends.
            rope_delta: Rotary position minus column of what comes after an end.
            samples, tokens: G and N.
            geometry: The expert's.
        """
        columns = torch.arange(keys[0].shape[2], device=ends.device)
        own = torch.ones(len(ends), tokens, dtype=torch.bool, device=ends.device)
        mask = torch.cat((columns < ends[:, None], own), 1).repeat_interleave(samples, 0)
        cosines, sines = rotary_angles(ends + rope_delta, tokens, geometry, torch.float32)
        return cls(keys, values, samples, cosines, sines, mask[:, None, None])

    def attend(self, index: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """See `Context`."""
        groups = query.shape[3] // key.shape[3]
        keys = self._with_prefix(self.keys[index], key.to(value.dtype), groups)
        values = self._with_prefix(self.values[index], value, groups)
        queries = query.to(value.dtype).flatten(0, 1).transpose(1, 2)
        mixed = functional.scaled_dot_product_attention(queries, keys, values, attn_mask=self.mask)
        return mixed.transpose(1, 2).unflatten(0, (-1, self.samples))

    def _with_prefix(self, prefix: Tensor, own: Tensor, groups: int) -> Tensor:
        """Prefix [B, kv, S, dim] and own [B, G, N, kv, dim] as [B G, kv groups, S + N, dim]."""
        before = prefix.to(own.dtype)[:, None].expand(-1, self.samples, -1, -1, -1).flatten(0, 1)
        joined = torch.cat((before, own.flatten(0, 1).transpose(1, 2)), 2)
        return joined.repeat_interleave(groups, 1)

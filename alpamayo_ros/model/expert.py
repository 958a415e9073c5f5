"""The action expert: Qwen3-VL text layers that read the backbone's KV cache and denoise the actions.

Layer k attends, without a causal mask, to layer k of the prefix and to its own action tokens. Layout and names are
those of NVIDIA's checkpoints (`expert.layers.N.*`, `expert.norm.weight`); the layers are Qwen3-VL's (transformers,
models/qwen3_vl), with a rotary position that is the same on all three axes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional

from alpamayo_ros.core.types import ConfigurationError
from alpamayo_ros.model.action_projection import RootMeanSquareNorm
from alpamayo_ros.model.geometry import DecoderGeometry
from alpamayo_ros.model.kv_cache import Prefix
from alpamayo_ros.model.pointwise import add_and_norm, gated, norm, norm_and_rotate


class Context(Protocol):
    """What the layers read, the same over all steps of a flow: B prefixes, each before G samples of N action tokens."""

    @property
    def samples(self) -> int:
        """G."""

    @property
    def cosines(self) -> Tensor:
        """[B, N, head_dim], of the rotary positions of the action tokens."""

    @property
    def sines(self) -> Tensor:
        """Likewise."""

    def attend(self, index: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Let action tokens attend to their prefix's layer `index` and to those of their own sample.

        Args:
            index: The layer.
            query: [B, G, N, heads, head_dim], rotated.
            key: [B, G, N, kv_heads, head_dim], rotated.
            value: Likewise, not rotated.

        Returns:
            [B, G, N, heads, head_dim].
        """


@dataclass(frozen=True, eq=False)
class ExpertContext:
    """Prefixes in a cache that has room for the action tokens after each."""

    prefix: Prefix
    samples: int  # G
    tokens: int  # N
    cosines: Tensor  # [B, N, head_dim]
    sines: Tensor
    mask: Tensor | None  # [B, 1, groups G N, L + G N] bool, True is read; None: everything

    def attend(self, index: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """See `Context`. The room after the prefix is overwritten."""
        kv_heads = key.shape[3]
        groups = query.shape[3] // kv_heads
        # Query heads of one KV head, and the samples of one prefix, become one long sequence of queries.
        queries = query.unflatten(3, (kv_heads, groups)).permute(0, 3, 4, 1, 2, 5).flatten(2, 4)
        start = self.prefix.length
        end = start + self.samples * self.tokens
        keys, values = self.prefix.keys[index], self.prefix.values[index]
        keys[:, :, start:end] = key.permute(0, 3, 1, 2, 4).flatten(2, 3)
        values[:, :, start:end] = value.permute(0, 3, 1, 2, 4).flatten(2, 3)
        mixed = functional.scaled_dot_product_attention(
            queries, keys[:, :, :end], values[:, :, :end], attn_mask=self.mask
        )
        return mixed.unflatten(2, (groups, self.samples, self.tokens)).permute(0, 3, 4, 1, 2, 5).flatten(3, 4)


class Expert(nn.Module):
    """A stack of layers and a final norm; it has no embedding, since its input are projected actions."""

    def __init__(self, geometry: DecoderGeometry) -> None:
        super().__init__()
        self.geometry = geometry
        self.layers = nn.ModuleList(ExpertLayer(geometry) for _ in range(geometry.num_hidden_layers))
        self.norm = RootMeanSquareNorm(geometry.hidden_size, geometry.rms_norm_eps)

    def read(self, prefix: Prefix, samples: int, tokens: int) -> ExpertContext:
        """Get ready to denoise `samples` sequences of `tokens` actions after each row of a prefix.

        The samples of a row share its prefix where it lies: their queries stand side by side in one long sequence, and
        a mask keeps each from the others' action tokens.

        Raises:
            ConfigurationError: the prefix has too little room for the action tokens.
        """
        columns = samples * tokens
        if prefix.room < columns:
            raise ConfigurationError(f"the prefix has room for {prefix.room} action tokens; {columns} are needed")
        dtype = self.norm.weight.dtype
        cosines, sines = rotary_angles(prefix.first_position, tokens, self.geometry, dtype)
        return ExpertContext(prefix, samples, tokens, cosines, sines, self._mask(prefix, samples, tokens))

    def forward(self, embeddings: Tensor, context: Context) -> Tensor:
        """Hidden states after the final norm.

        Args:
            embeddings: [B G, N, hidden_size], the samples of one prefix after another.
            context: What the layers read: from `read`, or another.
        """
        hidden = embeddings
        for index, layer in enumerate(self.layers):
            hidden = layer(hidden, context, index)
        return self.norm(hidden)

    def _mask(self, prefix: Prefix, samples: int, tokens: int) -> Tensor | None:
        if samples == 1 and prefix.blocked is None:
            return None
        device = prefix.first_position.device
        batch, length = len(prefix.first_position), prefix.length
        sample = torch.arange(samples, device=device).repeat_interleave(tokens)
        own = (sample[:, None] == sample)[None].expand(batch, -1, -1)
        shared = torch.ones(batch, 1, length, dtype=torch.bool, device=device)
        if prefix.blocked is not None:
            shared = ~prefix.blocked[:, None]
        mask = torch.cat((shared.expand(-1, samples * tokens, -1), own), -1)
        groups = self.geometry.num_attention_heads // self.geometry.num_key_value_heads
        return mask.repeat(1, groups, 1)[:, None]


class ExpertLayer(nn.Module):
    """Attention and MLP, each after a norm and with a residual."""

    def __init__(self, geometry: DecoderGeometry) -> None:
        super().__init__()
        self.self_attn = ExpertAttention(geometry)
        self.mlp = GatedMLP(geometry.hidden_size, geometry.intermediate_size)
        self.input_layernorm = RootMeanSquareNorm(geometry.hidden_size, geometry.rms_norm_eps)
        self.post_attention_layernorm = RootMeanSquareNorm(geometry.hidden_size, geometry.rms_norm_eps)

    def forward(self, hidden: Tensor, context: Context, index: int) -> Tensor:
        """[B G, N, hidden_size]; `index` is the layer whose prefix is read."""
        first, second = self.input_layernorm, self.post_attention_layernorm
        attended = self.self_attn(norm(hidden, first.weight, first.eps), context, index)
        hidden, normed = add_and_norm(hidden, attended, second.weight, second.eps)
        return hidden + self.mlp(normed)


class ExpertAttention(nn.Module):
    """Grouped-query attention to the prefix and to the sample's own action tokens."""

    def __init__(self, geometry: DecoderGeometry) -> None:
        super().__init__()
        self.heads = geometry.num_attention_heads
        self.kv_heads = geometry.num_key_value_heads
        self.head_dim = geometry.head_dim
        size = geometry.hidden_size
        self.q_proj = nn.Linear(size, self.heads * self.head_dim, bias=False)
        self.k_proj = nn.Linear(size, self.kv_heads * self.head_dim, bias=False)
        self.v_proj = nn.Linear(size, self.kv_heads * self.head_dim, bias=False)
        self.o_proj = nn.Linear(self.heads * self.head_dim, size, bias=False)
        self.q_norm = RootMeanSquareNorm(self.head_dim, geometry.rms_norm_eps)
        self.k_norm = RootMeanSquareNorm(self.head_dim, geometry.rms_norm_eps)

    def forward(self, hidden: Tensor, context: Context, index: int) -> Tensor:
        """[B G, N, hidden_size] to the same."""
        shape = (len(context.cosines), context.samples, hidden.shape[1], -1, self.head_dim)
        angles = context.cosines, context.sines
        query = norm_and_rotate(self.q_proj(hidden).view(shape), self.q_norm.weight, self.q_norm.eps, *angles)
        key = norm_and_rotate(self.k_proj(hidden).view(shape), self.k_norm.weight, self.k_norm.eps, *angles)
        value = self.v_proj(hidden).view(shape)
        mixed = context.attend(index, query, key, value)
        return self.o_proj(mixed.reshape(*hidden.shape[:2], self.heads * self.head_dim))


class GatedMLP(nn.Module):
    """down(silu(gate(x)) * up(x))."""

    def __init__(self, size: int, inner: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(size, inner, bias=False)
        self.up_proj = nn.Linear(size, inner, bias=False)
        self.down_proj = nn.Linear(inner, size, bias=False)

    def forward(self, hidden: Tensor) -> Tensor:
        """[..., size] to the same."""
        return self.down_proj(gated(self.gate_proj(hidden), self.up_proj(hidden)))


def rotary_angles(
    first_position: Tensor, tokens: int, geometry: DecoderGeometry, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """Cosines and sines [B, tokens, head_dim] of the positions that begin at `first_position` [B]."""
    position = first_position[:, None] + torch.arange(tokens, device=first_position.device)
    half = geometry.head_dim // 2
    exponent = torch.arange(half, device=position.device, dtype=torch.float32) / half
    angle = position[..., None] * (1.0 / geometry.rope_theta**exponent)
    angle = torch.cat((angle, angle), -1)
    return angle.cos().to(dtype), angle.sin().to(dtype)

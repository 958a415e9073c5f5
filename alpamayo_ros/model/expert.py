"""The action expert: Qwen3-VL's text layers, smaller, over the backbone's KV cache and 64 action tokens per sample.

Layer k attends to the backbone's layer k. No causal mask: every action token sees the whole prefix and all action
tokens of its own sample. Names are NVIDIA's (`layers.N.self_attn.q_proj`, ...), so that its weights load as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

KeyValue = tuple[Tensor, Tensor]  # keys (already rotated) and values, [kv heads, tokens, head_dim]


@dataclass(frozen=True)
class ExpertGeometry:
    """Sizes of the expert; kv heads, layers, head_dim and rotary settings have to be the backbone's."""

    hidden_size: int
    intermediate_size: int
    heads: int
    kv_heads: int
    head_dim: int
    layers: int
    norm_eps: float
    rope_theta: float
    mrope_section: tuple[int, int, int]


class RMSNorm(nn.Module):
    """x / sqrt(mean(x^2) + eps) in float32, cast back, times the weight (Qwen3)."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """Normalise over the last dimension."""
        wide = x.float()
        wide = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)
        return self.weight * wide.to(x.dtype)


class ExpertAttention(nn.Module):
    """Grouped-query attention with per-head norms of queries and keys."""

    def __init__(self, geometry: ExpertGeometry) -> None:
        super().__init__()
        g = self.geometry = geometry
        self.q_proj = nn.Linear(g.hidden_size, g.heads * g.head_dim, bias=False)
        self.k_proj = nn.Linear(g.hidden_size, g.kv_heads * g.head_dim, bias=False)
        self.v_proj = nn.Linear(g.hidden_size, g.kv_heads * g.head_dim, bias=False)
        self.o_proj = nn.Linear(g.heads * g.head_dim, g.hidden_size, bias=False)
        self.q_norm = RMSNorm(g.head_dim, g.norm_eps)
        self.k_norm = RMSNorm(g.head_dim, g.norm_eps)

    def forward(self, x: Tensor, rotation: Rotation, memory: LayerMemory, mask: Tensor | None) -> Tensor:
        """[tokens, hidden] to [tokens, hidden]; the tokens' own keys and values go behind the prefix in `memory`."""
        d = self.geometry.head_dim
        q = rotation(self.q_norm(self.q_proj(x).unflatten(-1, (-1, d))).transpose(0, 1))  # [heads, tokens, d]
        k = rotation(self.k_norm(self.k_proj(x).unflatten(-1, (-1, d))).transpose(0, 1))
        v = self.v_proj(x).unflatten(-1, (-1, d)).transpose(0, 1)
        keys, values = memory.append(k, v)
        out = functional.scaled_dot_product_attention(
            q[None].to(keys.dtype), keys[None], values[None], attn_mask=mask, enable_gqa=True
        )[0]
        return self.o_proj(out.transpose(0, 1).flatten(-2))


class ExpertMLP(nn.Module):
    """SwiGLU."""

    def __init__(self, geometry: ExpertGeometry) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(geometry.hidden_size, geometry.intermediate_size, bias=False)
        self.up_proj = nn.Linear(geometry.hidden_size, geometry.intermediate_size, bias=False)
        self.down_proj = nn.Linear(geometry.intermediate_size, geometry.hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """[tokens, hidden] to [tokens, hidden]."""
        return self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))


class ExpertLayer(nn.Module):
    """Attention and MLP, each behind a norm and around a residual."""

    def __init__(self, geometry: ExpertGeometry) -> None:
        super().__init__()
        self.self_attn = ExpertAttention(geometry)
        self.mlp = ExpertMLP(geometry)
        self.input_layernorm = RMSNorm(geometry.hidden_size, geometry.norm_eps)
        self.post_attention_layernorm = RMSNorm(geometry.hidden_size, geometry.norm_eps)

    def forward(self, x: Tensor, rotation: Rotation, memory: LayerMemory, mask: Tensor | None) -> Tensor:
        """[tokens, hidden] to [tokens, hidden]."""
        x = x + self.self_attn(self.input_layernorm(x), rotation, memory, mask)
        return x + self.mlp(self.post_attention_layernorm(x))


class Expert(nn.Module):
    """All layers and the final norm."""

    def __init__(self, geometry: ExpertGeometry) -> None:
        super().__init__()
        self.geometry = geometry
        self.layers = nn.ModuleList(ExpertLayer(geometry) for _ in range(geometry.layers))
        self.norm = RMSNorm(geometry.hidden_size, geometry.norm_eps)

    def forward(self, embeddings: Tensor, memory: ExpertMemory) -> Tensor:
        """One pass over the action tokens of all samples.

        Args:
            embeddings: [S, N, hidden].
            memory: of the prefix that the samples share, made for S samples of N tokens.

        Returns:
            [S, N, hidden], after the final norm.
        """
        samples, tokens, _ = embeddings.shape
        x = embeddings.flatten(0, 1)  # all samples are one sequence; the mask keeps them apart
        for layer, layer_memory in zip(self.layers, memory.layers, strict=True):
            x = layer(x, memory.rotation, layer_memory, memory.mask)
        return self.norm(x).unflatten(0, (samples, tokens))


class LayerMemory:
    """A layer's keys and values: the prefix, and behind it room for the action tokens, written anew at every pass."""

    def __init__(self, prefix: KeyValue, room: int) -> None:
        keys, values = prefix
        self._length = keys.shape[-2]
        shape = (keys.shape[0], self._length + room, keys.shape[-1])
        self._keys, self._values = keys.new_empty(shape), values.new_empty(shape)
        self._keys[:, : self._length] = keys
        self._values[:, : self._length] = values

    def append(self, keys: Tensor, values: Tensor) -> KeyValue:
        """Everything that is attended to, with these behind the prefix."""
        self._keys[:, self._length :] = keys
        self._values[:, self._length :] = values
        return self._keys, self._values


class ExpertMemory:
    """What the expert attends to for one prefix: shared by S samples, held once.

    Args:
        geometry: of the expert.
        prefix: per layer, the backbone's keys and values over prompt and reasoning.
        samples: S.
        tokens: N, action tokens per sample.
        first_position: rotary position of the first action token of each sample; the others follow.
    """

    def __init__(
        self, geometry: ExpertGeometry, prefix: Sequence[KeyValue], samples: int, tokens: int, first_position: int
    ) -> None:
        self.layers = [LayerMemory(each, samples * tokens) for each in prefix]
        keys = prefix[0][0]
        positions = (torch.arange(tokens, device=keys.device) + first_position).repeat(samples).expand(3, -1)
        self.rotation = Rotation(positions, geometry)
        self.mask = _sample_mask(samples, tokens, keys.shape[-2], keys.device)


class Rotation:
    """Rotary embedding at given multimodal positions [3, tokens]: time, row and column interleaved over frequencies.

    Of the head_dim / 2 frequencies, numbers 1, 4, 7, ... turn by the row and 2, 5, 8, ... by the column, as many as
    the sections say; all others by the time.
    """

    def __init__(self, positions: Tensor, geometry: ExpertGeometry) -> None:
        half = geometry.head_dim // 2
        exponents = torch.arange(half, dtype=torch.float32, device=positions.device) / half
        frequencies = 1.0 / geometry.rope_theta**exponents
        angles = positions[..., None].float() * frequencies  # [3, tokens, half]
        mixed = angles[0].clone()
        for axis in (1, 2):
            stop = geometry.mrope_section[axis] * 3
            mixed[:, axis:stop:3] = angles[axis][:, axis:stop:3]
        turns = torch.cat((mixed, mixed), -1)
        self._cos, self._sin = turns.cos(), turns.sin()

    def __call__(self, x: Tensor) -> Tensor:
        """Rotate [heads, tokens, head_dim]."""
        first, second = x.chunk(2, -1)
        turned = torch.cat((-second, first), -1)
        return x * self._cos.to(x.dtype) + turned * self._sin.to(x.dtype)


def _sample_mask(samples: int, tokens: int, prefix: int, device: torch.device) -> Tensor | None:
    """[S N, prefix + S N]: True where a token may look. None for one sample, which may look everywhere."""
    if samples == 1:
        return None
    sample = torch.arange(samples, device=device).repeat_interleave(tokens)
    own = sample[:, None] == sample[None, :]
    return torch.cat((own.new_ones(samples * tokens, prefix), own), -1)

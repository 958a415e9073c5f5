"""Qwen3-VL's text layers with fused matrices: queries, keys and values in one, gate and up in one.

What the layers compute is transformers' models/qwen3_vl; where keys and values lie, and how a token attends to them,
is the caller's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from alpamayo_ros.core.types import EngineError
from alpamayo_ros.engine.flow.paged_cache import LayerCache
from alpamayo_ros.engine.native.pieces import Pieces
from alpamayo_ros.model.geometry import BackboneGeometry, DecoderGeometry


@dataclass(frozen=True, eq=False)
class NewTokens:
    """Queries, keys and values of T tokens as a layer's product gives them, and what makes them ready for attention."""

    states: Tensor  # [T, (heads + 2 kv_heads) dim]
    head_norms: tuple[Tensor, Tensor]  # of queries and of keys, [dim]
    eps: float  # of the norms
    rotary: tuple[Tensor, Tensor]  # cosines and sines [T, dim]
    slots: Tensor  # [T] int64, where in a cache keys and values go
    pieces: Pieces[Any]

    def write(self, cache: LayerCache) -> Tensor:
        """Write keys and values into a layer's cache: the queries, [T, heads, dim]."""
        return self.pieces.norm_and_rotate(self.states, self.head_norms, self.eps, self.rotary, cache, self.slots)


# layer's cache, new tokens, which are not in it yet -> [T, heads, dim]; afterwards they are in it
Attend = Callable[[LayerCache, NewTokens], Tensor]


@dataclass(frozen=True, eq=False)
class TextLayer:
    """One layer's weights; those of products as its pieces keep them."""

    qkv: Any  # [(heads + 2 kv_heads) dim, hidden]
    out: Any  # [hidden, heads dim]
    gate_up: Any  # [2 intermediate, hidden]
    down: Any  # [hidden, intermediate]
    attention_norm: Tensor
    mlp_norm: Tensor
    head_norms: tuple[Tensor, Tensor]  # of queries and of keys, [dim]


@dataclass(frozen=True, eq=False)
class Deepstack:
    """What the first layers' outputs get on top, where images stand."""

    places: Tensor  # [N] int64
    features: Tensor  # [layers, N, hidden]


class TextModel:
    """The layers, the embedding before them and the logits after them.

    Args:
        vlm: Transformers' model. Its text layers are taken out of it one by one, so that no more than one of them is
            in memory twice.
        geometry: Its sizes.
        pieces: What the logits are made of.
        layer_pieces: What the layers are made of.
    """

    def __init__(self, vlm: Any, geometry: BackboneGeometry, pieces: Pieces[Tensor], layer_pieces: Pieces[Any]) -> None:
        text = geometry.json["text_config"]
        for key, value in (("hidden_act", "silu"), ("attention_bias", False)):
            if text.get(key, value) != value:
                raise EngineError(f"{geometry.origin}: {key} is {text[key]!r}; the native engine takes {value!r} alone")
        self.geometry: DecoderGeometry = geometry.text
        model = vlm.model.language_model
        self._embedding: Tensor = model.embed_tokens.weight
        self._norm: Tensor = model.norm.weight
        self._head: Tensor = vlm.lm_head.weight
        self._layers: list[TextLayer] = []
        for index in range(len(model.layers)):
            self._layers.append(_fuse(model.layers[index], layer_pieces.stored))
            model.layers[index] = nn.Identity()
            if self._embedding.is_cuda:
                torch.cuda.empty_cache()  # the freed pieces are too small for the next layer's fused ones
        self._pieces, self._layer_pieces = pieces, layer_pieces
        rope = text.get("rope_parameters") or text.get("rope_scaling") or {}
        self._axes = _axis_of_frequency(rope.get("mrope_section", [24, 20, 20])).to(self._embedding.device)
        exponent = torch.arange(0, self.geometry.head_dim, 2, dtype=torch.float32) / self.geometry.head_dim
        self._frequencies = (1.0 / self.geometry.rope_theta**exponent).to(self._embedding.device)

    @property
    def vocabulary_size(self) -> int:
        """V."""
        return self._head.shape[0]

    @property
    def dtype(self) -> torch.dtype:
        """Of weights and hidden states."""
        return self._embedding.dtype

    def embed(self, token_ids: Tensor) -> Tensor:
        """[T] to [T, hidden]."""
        return functional.embedding(token_ids, self._embedding)

    def rotary(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Cosines and sines [T, dim] of positions [3, T], or [T] where the three axes agree.

        The axes share the frequencies by turns, as `mrope_section` says (interleaved M-RoPE).
        """
        by_frequency = positions[self._axes].T if positions.ndim == 2 else positions[:, None]
        angle = by_frequency.float() * self._frequencies
        angle = torch.cat((angle, angle), -1)
        return angle.cos().to(self.dtype), angle.sin().to(self.dtype)

    def run(
        self,
        hidden: Tensor,
        rotary: tuple[Tensor, Tensor],
        caches: Sequence[LayerCache],
        slots: Tensor,
        attend: Attend,
        deepstack: Deepstack | None = None,
    ) -> Tensor:
        """The layers over hidden states [T, hidden], which may be overwritten.

        Args:
            hidden: Embedded tokens.
            rotary: Of their positions.
            caches: Of every layer.
            slots: [T] int64, where in the caches keys and values go: block times block size plus place.
            attend: Writes a layer's new tokens into its cache, and lets them attend.
            deepstack: Of the images among the tokens.

        Returns:
            [T, hidden], before the final norm.
        """
        do, eps = self._layer_pieces, self.geometry.rms_norm_eps
        for index, (layer, cache) in enumerate(zip(self._layers, caches, strict=True)):
            states = do.product(hidden, layer.attention_norm, eps, layer.qkv)
            new = NewTokens(states, layer.head_norms, eps, rotary, slots, do)
            hidden = do.added_product(hidden, attend(cache, new).flatten(1), layer.out)
            inner = do.gated_product(hidden, layer.mlp_norm, eps, layer.gate_up)
            hidden = do.added_product(hidden, inner, layer.down)
            if deepstack is not None and index < len(deepstack.features):
                hidden.index_add_(0, deepstack.places, deepstack.features[index])
        return hidden

    def logits(self, hidden: Tensor) -> Tensor:
        """[T, V] float32 of what `run` gave."""
        return self._pieces.product(hidden, self._norm, self.geometry.rms_norm_eps, self._head).float()


def _fuse(layer: Any, stored: Callable[[Tensor], Any]) -> TextLayer:
    attention, mlp = layer.self_attn, layer.mlp
    return TextLayer(
        qkv=stored(torch.cat([attention.q_proj.weight, attention.k_proj.weight, attention.v_proj.weight])),
        out=stored(attention.o_proj.weight.detach()),
        gate_up=stored(torch.cat([mlp.gate_proj.weight, mlp.up_proj.weight])),
        down=stored(mlp.down_proj.weight.detach()),
        attention_norm=layer.input_layernorm.weight.detach(),
        mlp_norm=layer.post_attention_layernorm.weight.detach(),
        head_norms=(attention.q_norm.weight.detach(), attention.k_norm.weight.detach()),
    )


def _axis_of_frequency(section: list[int]) -> Tensor:
    """Which axis (time, row, column) turns each frequency: rows and columns by turns up to their share, then time."""
    axes = torch.zeros(sum(section), dtype=torch.int64)
    for axis in (1, 2):
        axes[axis : 3 * section[axis] : 3] = axis
    return axes

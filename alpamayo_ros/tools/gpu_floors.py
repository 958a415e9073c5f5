"""The least time that a GPU could take for each stage of a tick: counted work over what the card was measured to reach.

A matrix product of n weights and t tokens is 2 n t operations; attention of t tokens to s others is 4 t s d in every
layer, d being the width of all heads; what is read once a pass (weights, keys and values) costs its bytes.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from alpamayo_ros.model.alpamayo import make_network_on_meta
from alpamayo_ros.model.config import ModelConfig

BYTES = 2  # of a bfloat16
FP8_BYTES = 1
REPETITIONS = 10


@dataclass(frozen=True)
class Ceilings:
    """What the card reaches here and now."""

    flops: float  # operations/s of a large bfloat16 matrix product
    bytes: float  # bytes/s, read and written, of a large copy on the device
    fp8_flops: float = 0.0  # operations/s of a large float8_e4m3 matrix product with bfloat16 results; 0: there is none

    @classmethod
    def measure(cls, device: torch.device) -> Ceilings:
        """A product of two 8192 x 8192 matrices, and a copy of 4 GB: the median of ten."""
        a, b = (torch.randn(8192, 8192, dtype=torch.bfloat16, device=device) for _ in range(2))
        flops = 2 * 8192**3 / _median_seconds(lambda: a @ b)
        fp8 = 2 * 8192**3 / _fp8_seconds(a, b) if torch.cuda.get_device_capability(device) >= (8, 9) else 0.0
        source = torch.empty(1 << 32, dtype=torch.uint8, device=device)
        target = torch.empty_like(source)
        return cls(flops, 2 * source.numel() / _median_seconds(lambda: target.copy_(source)), fp8)


def _fp8_seconds(a: Tensor, b: Tensor) -> float:
    left, right = a.to(torch.float8_e4m3fn), b.to(torch.float8_e4m3fn).t()
    one = torch.ones((), device=a.device)
    return _median_seconds(lambda: torch._scaled_mm(left, right, one, one, out_dtype=torch.bfloat16))


def _median_seconds(work) -> float:  # type: ignore[no-untyped-def]
    for _ in range(3):
        work()
    seconds = []
    for _ in range(REPETITIONS):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        work()
        end.record()
        end.synchronize()
        seconds.append(start.elapsed_time(end) * 1e-3)
    return sorted(seconds)[REPETITIONS // 2]


@dataclass(frozen=True)
class Work:
    """What a model's stages have to do."""

    config: ModelConfig
    decoder: int  # weights of the backbone's layers
    head: int
    vision: int
    expert: int  # with its projections

    @classmethod
    def of(cls, config: ModelConfig) -> Work:
        """Count the weights."""
        network = make_network_on_meta(config)
        vlm = network.vlm
        language = vlm.model.language_model
        action = (network.expert, network.action_in_proj, network.action_out_proj)
        return cls(
            config,
            decoder=_weights(language) - _weights(language.embed_tokens),
            head=_weights(vlm.lm_head),
            vision=_weights(vlm.model.visual) - _weights(vlm.model.visual.pos_embed),
            expert=sum(map(_weights, action)),
        )

    def vision_ms(self, ceilings: Ceilings, frames: int, patches: int) -> float:
        """Of so many new frames with so many patches each."""
        geometry = self.config.backbone.json["vision_config"]
        attention = 4 * patches**2 * geometry["hidden_size"] * geometry["depth"]
        return 1e3 * frames * (2 * self.vision * patches + attention) / ceilings.flops

    def prefill_ms(self, ceilings: Ceilings, tokens: int, fp8: bool = False) -> float:
        """Of a prompt; with FP8 layers attention stays bfloat16."""
        products = 2 * self.decoder * tokens / (ceilings.fp8_flops if fp8 else ceilings.flops)
        return 1e3 * (products + self._attention(tokens, tokens / 2) / ceilings.flops)

    def decode_ms(self, ceilings: Ceilings, tokens: int, fp8: bool = False) -> float:
        """Of one token after so many; with FP8 layers the head and the cache stay bfloat16."""
        weights = (FP8_BYTES if fp8 else BYTES) * self.decoder + BYTES * self.head
        return 1e3 * (weights + self._kv_bytes(tokens)) / ceilings.bytes

    def expert_ms(
        self, ceilings: Ceilings, tokens: int, samples: int, prefixes: int, steps: int, fp8: bool = False
    ) -> float:
        """Of all Euler steps: each reads the weights and every prefix once, and computes for all samples."""
        own = self.config.action_space.n_waypoints * samples
        weights = (FP8_BYTES if fp8 else BYTES) * self.expert
        read = (weights + prefixes * self._kv_bytes(tokens)) / ceilings.bytes
        products = 2 * self.expert * own / (ceilings.fp8_flops if fp8 else ceilings.flops)
        compute = products + self._attention(own, tokens) / ceilings.flops
        return 1e3 * steps * max(read, compute)

    def _attention(self, tokens: float, others: float) -> float:
        text = self.config.backbone.text
        return 4 * tokens * others * text.num_attention_heads * text.head_dim * text.num_hidden_layers

    def _kv_bytes(self, tokens: int) -> float:
        text = self.config.backbone.text
        return 2 * BYTES * tokens * text.num_key_value_heads * text.head_dim * text.num_hidden_layers


def _weights(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())

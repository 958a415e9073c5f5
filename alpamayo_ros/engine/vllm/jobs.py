"""What the engine tells vLLM's workers, and hears from them: plain data, which crosses processes."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from torch import Tensor

from alpamayo_ros.core.types import SamplingOptions
from alpamayo_ros.engine.flow.paged_cache import KVPrefix
from alpamayo_ros.engine.flow.shape import FlowShape
from alpamayo_ros.model.config import ModelConfig

DRAW_ARGUMENT = "alpamayo_draw"  # in SamplingParams.extra_args
PIN = "alpamayo_pin"  # in a request's kv_transfer_params: keep its blocks when it has finished
PINNED = "alpamayo_pinned"  # in its output's: what was kept


@dataclass(frozen=True)
class Draw:
    """How the tokens of one request are drawn; a token's place is the number of tokens before it."""

    seed: int
    sample: int
    temperature: float  # above 0
    top_p: float

    @classmethod
    def argument(cls, options: SamplingOptions, sample: int) -> dict[str, Any] | None:
        """What SamplingParams.extra_args takes; None where tokens are chosen greedily."""
        if not options.temperature:
            return None
        return {DRAW_ARGUMENT: asdict(cls(options.seed, sample, options.temperature, options.top_p))}


@dataclass(frozen=True)
class ExpertPlan:
    """What the worker needs to know to make the expert ready."""

    config: ModelConfig
    bf16_constants: bool
    sequence_tokens: int  # of a prefix, at most
    shapes: tuple[FlowShape, ...]  # to capture


@dataclass(frozen=True)
class ExpertReady:
    """What came of it."""

    parameters: int  # of the expert and its projections
    block_size: int  # tokens in a block of the KV cache
    layout: str  # of the KV cache, as proved


@dataclass(frozen=True, eq=False)
class FlowJob:
    """One tick's flow: R prefixes, K noises; K is a multiple of R."""

    prefixes: tuple[KVPrefix, ...]
    unguided: tuple[KVPrefix, ...]  # as many, or none
    noise: Tensor  # [K, N, 2] float32 on the CPU, already scaled
    steps: int
    weight: float  # of the guidance

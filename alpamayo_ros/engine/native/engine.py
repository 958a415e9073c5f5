"""The native engine: plain PyTorch with own kernels and graphs; no vLLM."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from alpamayo_ros.core.types import EngineError, SamplingOptions
from alpamayo_ros.engine.base import LoadOptions
from alpamayo_ros.engine.device import device_index, resize_for, resolve_device, resolve_dtype
from alpamayo_ros.engine.dummy import dummy_observation
from alpamayo_ros.engine.fp8 import check_fp8
from alpamayo_ros.engine.gpu_jpegs import GpuJpegs, jpegs_by_options
from alpamayo_ros.engine.guidance import branch_without_route
from alpamayo_ros.engine.load_model import load_model
from alpamayo_ros.engine.native.drawing import DeviceDraw
from alpamayo_ros.engine.native.kv_cache import PagedCache
from alpamayo_ros.engine.native.model import NativeModel
from alpamayo_ros.engine.native.own_thread import OwnThread
from alpamayo_ros.engine.native.sizes import BRANCHES, PROMPTS, Sizes
from alpamayo_ros.engine.native.writing import write_ahead
from alpamayo_ros.engine.reasoning import Reasoner
from alpamayo_ros.engine.stepwise_engine import Result, StepwiseEngine
from alpamayo_ros.engine.ticks import Reasoned, is_guided
from alpamayo_ros.model.backbone import PromptBatch
from alpamayo_ros.model.prompt import Prompt

WARM_UP_SAMPLES = (1, 6)


class NativeEngine(StepwiseEngine):
    """Runs NativeModel. Everything that a tick needs is made by `load` and `warm_up`."""

    most_ticks, most_rows = PROMPTS, BRANCHES  # what the cache has room for

    def __init__(
        self, model: NativeModel, name: str, max_samples: int, max_cameras: int, jpegs: GpuJpegs | None = None
    ) -> None:
        draw, resize = DeviceDraw(model.device), resize_for(model.device)
        super().__init__("native", model, name, max_samples, max_cameras, draw, resize, jpegs)
        self.info = replace(self.info, quantization=model.quantization, cache_tokens=model.pool.tokens)
        self._native = model
        index = device_index(model.device)
        self._thread = OwnThread("native", lambda: _use(index))

    @classmethod
    def load(cls, checkpoint: str, **options: Any) -> NativeEngine:
        """Load a checkpoint.

        Args:
            checkpoint: folder or Hugging Face name.
            options: fields of LoadOptions.

        Raises:
            ConfigurationError: a checkpoint that can't be used, or a quantization that the device doesn't have.
            EngineError: a device that isn't there, or has too little memory.
        """
        wanted = LoadOptions(**options)
        if wanted.quantization != "none":  # before the weights are read
            device = resolve_device(wanted.device)
            check_fp8(device, resolve_dtype(wanted.dtype, device))
        model = load_model(checkpoint, wanted)
        sizes = Sizes.of(model.config, model.dtype, wanted.max_cameras, wanted.max_samples, wanted.kv_cache_memory)
        try:
            native = NativeModel.take(model, sizes, wanted.quantization)
        except torch.OutOfMemoryError as error:
            raise EngineError(
                f"{checkpoint} fits into the memory of {model.device}, but its KV cache doesn't: {error}; lower "
                "engine.kv_cache_memory or the number of cameras"
            ) from error
        jpegs = jpegs_by_options(wanted, model.device)
        return cls(native, checkpoint, wanted.max_samples, wanted.max_cameras, jpegs)

    def warm_up(self) -> None:
        """Compile and capture, run a tick of the largest prompt in every way, and spare the garbage collector the rest.

        Raises:
            EngineError: the graphs don't fit into memory.
        """
        self._guarded(self._native.capture)
        observation = dummy_observation(self.info.max_cameras)
        guided = replace(observation, navigation="Turn left in 30m")
        for wanted in WARM_UP_SAMPLES:
            samples = min(wanted, self.info.max_samples)
            for reasoning in ("shared", "independent"):
                options = SamplingOptions(num_samples=samples, max_reasoning_tokens=2, reasoning=reasoning)
                prediction = self.predict(observation, options)
                self.predict(observation, replace(options, draft_token_ids=prediction.reasoning_token_ids[0]))
                self.predict(guided, replace(options, guidance_weight=1.5))
        self._frames.clear()
        gc.collect()
        gc.freeze()

    def _guarded(self, work: Callable[..., Result], *arguments: Any) -> Result:
        """In the engine's own thread, whoever asks: PyTorch keeps cuDNN's plans, which warm-up makes, by thread."""
        return self._thread.run(super()._guarded, work, *arguments)

    def _write(
        self,
        batch: PromptBatch,
        cache: PagedCache,
        logits: Tensor,
        reasoner: Reasoner,
        drafts: Sequence[int],
        options: SamplingOptions,
    ) -> tuple[int, Tensor | None]:
        """A step ahead."""
        backbone = self._native.backbone
        accepted, unread = write_ahead(backbone, batch, cache, logits, reasoner, drafts, options)
        if unread.numel() and len(unread) == 1 and is_guided(options):
            return accepted, unread
        if unread.numel():
            backbone.extend(batch, cache, unread, logits=0)
        return accepted, None

    def _read_without_route(
        self, prompt: Prompt, reasoned: Reasoned, written: Sequence[Sequence[int]], samples: int
    ) -> PagedCache:
        """In one pass with the end of the reasoning: each of them alone reads all weights."""
        if reasoned.unread is None:
            cache: PagedCache = super()._read_without_route(prompt, reasoned, written, samples)
            return cache
        branch, rest = branch_without_route(self._native, prompt, reasoned.cache, written, samples)
        self._native.backbone.extend_both(reasoned.batch, (reasoned.cache, branch), (reasoned.unread, rest))
        return branch

    def close(self) -> None:
        """Free the weights, the cache and all that was kept."""
        if not self._closed:
            gc.unfreeze()
            self._thread.close()
            del self._native
        super().close()


def _use(index: int | None) -> None:
    """Let a new thread work on this device; it would begin with the first."""
    if index is not None:
        torch.cuda.set_device(index)

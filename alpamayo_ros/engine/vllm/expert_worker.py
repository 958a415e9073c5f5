"""The action expert inside vLLM's worker, where the KV lies. Called by `collective_rpc`, in every rank."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from vllm.distributed.kv_transfer import get_kv_transfer_group

from alpamayo_ros.core.types import EngineError
from alpamayo_ros.engine.vllm.connector import PinningConnector
from alpamayo_ros.engine.vllm.flow_runner import FlowRunner, uses_flash_attention
from alpamayo_ros.engine.vllm.jobs import ExpertPlan, ExpertReady, FlowJob, FlowShape
from alpamayo_ros.engine.vllm.kv_layout import LayerCache, read_layers
from alpamayo_ros.engine.vllm.plugin import register
from alpamayo_ros.engine.vllm.random_loader import fill_action_network
from alpamayo_ros.model.alpamayo import ActionNetwork, Constants, open_weights

register()  # a worker that is a process of its own imports this file before it looks for the model class


class ResidentExpert:
    """The expert, loaded, and its runners by shape."""

    def __init__(self, plan: ExpertPlan, layers: list[LayerCache], dtype: torch.dtype, rank: int, ranks: int) -> None:
        config = plan.config
        checkpoint = open_weights(config)
        constants = Constants.of(config, checkpoint, plan.bf16_constants)
        device = layers[0].keys.device
        with torch.device("meta"):
            network = ActionNetwork(config, constants.bf16_frequencies).eval()
        if config.random_seed is None:
            checkpoint.load_into(network, device, dtype)
        else:
            fill_action_network(network, config, constants.bf16_frequencies, device, dtype)
        self.network = network.to(device)
        self.parameters = sum(parameter.numel() for parameter in network.parameters())
        if ranks > 1:
            from alpamayo_ros.engine.vllm.expert_shards import keep_shard

            keep_shard(self.network.expert, rank, ranks)
        self.layers = layers
        self._tokens = config.action_space.n_waypoints
        self._max_blocks = math.ceil(plan.sequence_tokens / layers[0].keys.shape[1])
        self._captured: dict[FlowShape, FlowRunner] = {}

    def capture(self, shapes: Sequence[FlowShape]) -> None:
        """Compile and record the flow of these shapes, where the kernels allow it; those recorded before stay."""
        new = [shape for shape in shapes if shape not in self._captured]
        if not new or not uses_flash_attention(self.layers):
            return
        pool = torch.cuda.graph_pool_handle()
        for shape in sorted(new, key=lambda shape: -shape.trajectories):  # the first sizes the pool
            runner = self.runner(shape)
            runner.capture(pool)
            self._captured[shape] = runner

    def runner(self, shape: FlowShape) -> FlowRunner:
        """A runner of its own, not captured."""
        return FlowRunner(self.network, self.layers, shape, self._tokens, self._max_blocks)

    def run(self, job: FlowJob) -> Tensor:
        """Denoise: [K, N, 2] float32 on the CPU."""
        rows, trajectories = len(job.prefixes), len(job.noise)
        wanted = FlowShape(rows, trajectories // rows, bool(job.unguided), job.steps)
        shape = self._smallest_captured(wanted)
        runner = self._captured[shape] if shape else self.runner(wanted)
        prefixes = [*job.prefixes]
        if job.unguided:
            spare = [prefixes[0]] * ((shape or wanted).rows - rows)
            prefixes += [*spare, *job.unguided]
        return runner.run(prefixes, job.noise, job.weight)[:trajectories].cpu()

    def _smallest_captured(self, wanted: FlowShape) -> FlowShape | None:
        """One row may be captured with more samples than wanted; more rows have one sample each, and may be more."""
        fitting = [
            shape
            for shape in self._captured
            if (shape.guided, shape.steps) == (wanted.guided, wanted.steps)
            and (shape.rows == 1) == (wanted.rows == 1)
            and shape.rows >= wanted.rows
            and shape.samples >= wanted.samples
        ]
        return min(fitting, key=lambda shape: shape.trajectories, default=None)


class ExpertWorker:
    """Mixed into vLLM's worker class (`worker_extension_cls`)."""

    model_runner: Any
    vllm_config: Any
    rank: int
    _alpamayo: ResidentExpert

    @torch.inference_mode()
    def alpamayo_load(self, plan: ExpertPlan) -> ExpertReady:
        """Load the expert, and prove the cache's layout.

        Raises:
            EngineError: a layout that isn't known, or too little memory.
        """
        layers, layout = self._read_layers()
        ranks = self.vllm_config.parallel_config.tensor_parallel_size
        with _room_for("the action expert"):
            self._alpamayo = ResidentExpert(plan, layers, self.vllm_config.model_config.dtype, self.rank, ranks)
        return ExpertReady(self._alpamayo.parameters, layers[0].keys.shape[1], layout)

    @torch.inference_mode()
    def alpamayo_capture(self, shapes: Sequence[FlowShape]) -> int:
        """Capture the flow's graphs.

        Returns:
            The bytes that torch holds on this rank's device then, vLLM's included; 0 on a CPU.

        Raises:
            EngineError: too little memory.
        """
        with _room_for("the action expert's graphs"):
            self._alpamayo.capture(shapes)
        device = self._alpamayo.layers[0].keys.device
        return torch.cuda.memory_allocated(device) if device.type == "cuda" else 0

    def alpamayo_layout(self) -> str:
        """The name of the cache's layout, proved anew; no request may be in the cache.

        Raises:
            EngineError: as in `alpamayo_load`.
        """
        return self._read_layers()[1]

    @torch.inference_mode()
    def alpamayo_flow(self, job: FlowJob) -> Tensor:
        """Denoise a tick's trajectories: [K, N, 2] float32 on the CPU."""
        return self._alpamayo.run(job)

    def alpamayo_release(self, requests: Sequence[str]) -> None:
        """Let go of pinned blocks, once everything that reads them is done."""
        if self._alpamayo.layers[0].keys.device.type == "cuda":
            read = torch.cuda.Event()
            read.record()
            read.synchronize()
        _connector().release(list(requests))

    def alpamayo_allow_trajectory_tokens(self, allowed: bool) -> None:
        """See the model class."""
        self.model_runner.get_model().allow_trajectory_tokens(allowed)

    def alpamayo_images_encoded(self) -> int:
        """Images that went through the vision tower so far."""
        return int(self.model_runner.get_model().images_encoded)

    def _read_layers(self) -> tuple[list[LayerCache], str]:
        attention = self.vllm_config.compilation_config.static_forward_context
        head_dim = self.vllm_config.model_config.get_head_size()
        return read_layers(_connector().kv_caches, attention, head_dim, _said_layout(self.vllm_config))


@contextmanager
def _room_for(what: str) -> Iterator[None]:
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise EngineError(
            f"no memory is left for {what}: {error}; lower engine.kv_cache_memory or the number of cameras, or use a "
            "device with more memory"
        ) from error


def _connector() -> PinningConnector:
    connector = get_kv_transfer_group()
    assert isinstance(connector, PinningConnector), "startup.py asks for no other"
    return connector


def _said_layout(vllm_config: Any) -> str:
    """What vLLM says of its cache's layout, for messages."""
    ask = getattr(vllm_config.cache_config, "get_resolved_kv_cache_layout", None)
    return f"layout {ask().name}" if ask is not None else "a vLLM that names no layout"

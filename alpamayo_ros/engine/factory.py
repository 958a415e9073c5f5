"""Engines by name. One that is asked for and can't start is an error; nothing takes its place silently."""

from __future__ import annotations

from alpamayo_ros.core.types import EngineError
from alpamayo_ros.engine.base import Engine

KINDS = ("transformers", "vllm", "null")


def create_engine(
    kind: str,
    checkpoint: str,
    *,
    device: str = "auto",
    dtype: str = "auto",
    base_model: str | None = None,
    max_samples: int = 64,
    max_cameras: int = 7,
    bf16_constants: bool = True,
    kv_cache_memory: float = 0.0,
    tensor_parallel_size: int = 1,
) -> Engine:
    """Load an engine; `warm_up` is still to be called.

    Args:
        kind: "transformers", "vllm" or "null".
        checkpoint: folder or Hugging Face name; not looked at for "null".
        device: "auto", "cpu", "cuda" or "cuda:N".
        dtype: "auto", "float32", "bfloat16" or "float16".
        base_model: folder or Hugging Face name for the backbone's config and tokenizer.
        max_samples: trajectories per tick at most.
        max_cameras: at most; sizes what is kept of frames.
        bf16_constants: normalisation constants and frequencies as bfloat16 rounds them, as NVIDIA's runtime has them.
        kv_cache_memory: GiB of vLLM's KV cache on each device; 0: what two ticks need. For vllm alone.
        tensor_parallel_size: devices that share the model. For vllm alone.

    Raises:
        EngineError: an unknown kind, or one that can't start here.
        ConfigurationError: a checkpoint that can't be used.
    """
    if kind != "vllm" and tensor_parallel_size != 1:
        raise EngineError(f"engine.tensor_parallel_size is {tensor_parallel_size}; only engine.kind vllm has several")
    if kind == "null":
        from alpamayo_ros.engine.null_engine import NullEngine

        return NullEngine()
    if kind not in KINDS:
        raise EngineError(f"engine.kind is {kind!r}; it has to be one of {', '.join(KINDS)}")
    if not checkpoint:
        raise EngineError(
            "engine.checkpoint is empty; give the folder of a checkpoint, or make a tiny one: "
            "python -m alpamayo_ros.tools.make_checkpoint --preset tiny --out DIR"
        )
    if kind == "vllm":
        from alpamayo_ros.engine.vllm.engine import VllmEngine

        return VllmEngine.load(
            checkpoint,
            device=device,
            dtype=dtype,
            base_model=base_model,
            max_samples=max_samples,
            max_cameras=max_cameras,
            bf16_constants=bf16_constants,
            kv_cache_memory=kv_cache_memory,
            tensor_parallel_size=tensor_parallel_size,
        )
    try:
        from alpamayo_ros.engine.transformers_engine import TransformersEngine
    except ImportError as error:
        raise EngineError(
            f"the transformers engine can't be imported ({error}); python -m pip install torch transformers tokenizers "
            "safetensors huggingface_hub"
        ) from error
    return TransformersEngine.load(
        checkpoint,
        device=device,
        dtype=dtype,
        base_model=base_model,
        max_samples=max_samples,
        max_cameras=max_cameras,
        bf16_constants=bf16_constants,
    )

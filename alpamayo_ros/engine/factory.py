"""Engines by name. One that is asked for and can't start is an error; nothing takes its place silently."""

from __future__ import annotations

from typing import Any

from alpamayo_ros.core.types import EngineError
from alpamayo_ros.engine.base import Engine

KINDS = ("transformers", "vllm", "null")


def create_engine(kind: str, checkpoint: str, **options: Any) -> Engine:
    """Load an engine; `warm_up` is still to be called.

    Args:
        kind: "transformers", "vllm" or "null".
        checkpoint: folder or Hugging Face name; not looked at for "null".
        options: fields of LoadOptions.

    Raises:
        EngineError: an unknown kind, or one that can't start here.
        ConfigurationError: a checkpoint that can't be used.
    """
    ranks = options.get("tensor_parallel_size", 1)
    if kind != "vllm" and ranks != 1:
        raise EngineError(f"engine.tensor_parallel_size is {ranks}; only engine.kind vllm has several")
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

        return VllmEngine.load(checkpoint, **options)
    try:
        from alpamayo_ros.engine.transformers_engine import TransformersEngine
    except ImportError as error:
        raise EngineError(
            f"the transformers engine can't be imported ({error}); python -m pip install torch transformers tokenizers "
            "safetensors huggingface_hub"
        ) from error
    return TransformersEngine.load(checkpoint, **options)

"""Engines by name. One that is asked for and can't start is an error; nothing takes its place silently."""

from __future__ import annotations

from alpamayo_ros.core.types import ConfigurationError, EngineError
from alpamayo_ros.engine.base import Engine

KINDS = ("transformers", "vllm", "null")
PROCESSES = ("auto", "in_process", "subprocess")


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
    process: str = "auto",
    python: str = "",
    hang_timeout: float = 0.0,
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
        process: "in_process"; "subprocess": in a process of its own; "auto": in its own for vllm or with `python`.
        python: interpreter of that process; "": the one that runs this.
        hang_timeout: s that a tick may take there before the process is ended and started anew; 0: for ever.

    Raises:
        EngineError: an unknown kind, or one that can't start here.
        ConfigurationError: a checkpoint that can't be used.
    """
    if kind not in KINDS:
        raise EngineError(f"engine.kind is {kind!r}; it has to be one of {', '.join(KINDS)}")
    if needs_process(kind, process, python):
        from alpamayo_ros.engine.process.client import ProcessEngine

        options = {
            "device": device,
            "dtype": dtype,
            "base_model": base_model,
            "max_samples": max_samples,
            "max_cameras": max_cameras,
            "bf16_constants": bf16_constants,
        }
        return ProcessEngine(kind, checkpoint, options, python, hang_timeout)
    if kind == "null":
        from alpamayo_ros.engine.null_engine import NullEngine

        return NullEngine()
    if kind == "vllm":
        raise EngineError("the vllm engine is not part of this version; use engine.kind transformers")
    if not checkpoint:
        raise EngineError(
            "engine.checkpoint is empty; give the folder of a checkpoint, or make a tiny one: "
            "python -m alpamayo_ros.tools.make_checkpoint --preset tiny --out DIR"
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


def needs_process(kind: str, process: str, python: str) -> bool:
    """Whether the engine gets a process of its own.

    Raises:
        ConfigurationError: an unknown `process`, or an interpreter for a process that there won't be.
    """
    if process not in PROCESSES:
        raise ConfigurationError(f"engine.process is {process!r}; it has to be one of {', '.join(PROCESSES)}")
    if process == "in_process" and python:
        raise ConfigurationError(
            f"engine.python is {python!r}, but engine.process is in_process: another interpreter needs subprocess"
        )
    return process == "subprocess" or (process == "auto" and (kind == "vllm" or bool(python)))

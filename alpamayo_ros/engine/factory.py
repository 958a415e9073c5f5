"""Engines by name. One that is asked for and can't start is an error; nothing takes its place silently."""

from __future__ import annotations

from os.path import expanduser
from typing import Any

from alpamayo_ros.core.settings import Settings
from alpamayo_ros.core.types import ConfigurationError, EngineError
from alpamayo_ros.engine.base import Engine

KINDS = ("transformers", "native", "vllm", "null")
QUANTIZATIONS = ("none", "fp8", "fp8_expert")
PROCESSES = ("auto", "in_process", "subprocess")


def engine_by_settings(settings: Settings) -> Engine:
    """The engine that the node's parameters ask for; `warm_up` is still to be called.

    Raises:
        EngineError, ConfigurationError: as `create_engine`.
    """
    engine = settings.engine
    return create_engine(
        engine.kind,
        engine.checkpoint,
        process=engine.process,
        python=engine.python,
        hang_timeout=engine.hang_timeout,
        device=engine.device,
        dtype=engine.dtype,
        quantization=engine.quantization,
        base_model=engine.base_model or None,
        max_cameras=len(settings.cameras),
        kv_cache_memory=engine.kv_cache_memory,
        jpeg_decoder=engine.jpeg_decoder,
        tensor_parallel_size=engine.tensor_parallel_size,
    )


def create_engine(
    kind: str,
    checkpoint: str,
    *,
    process: str = "auto",
    python: str = "",
    hang_timeout: float = 0.0,
    **options: Any,
) -> Engine:
    """Load an engine; `warm_up` is still to be called.

    Args:
        kind: "transformers", "native", "vllm" or "null".
        checkpoint: folder, with ~ for the home folder, or Hugging Face name; not looked at for "null".
        process: "in_process"; "subprocess": in a process of its own; "auto": in its own for vllm or with `python`.
        python: interpreter of that process, with ~ as well; "": the one that runs this.
        hang_timeout: s that a tick may take there before the process is ended and started anew; 0: for ever.
        options: fields of LoadOptions.

    Raises:
        EngineError: an unknown kind, or one that can't start here.
        ConfigurationError: a checkpoint that can't be used, or a quantization that this kind or device doesn't have.
    """
    if kind not in KINDS:
        raise EngineError(f"engine.kind is {kind!r}; it has to be one of {', '.join(KINDS)}")
    checkpoint, python = expanduser(checkpoint), expanduser(python)  # no shell has, where they stand in a file
    ranks = options.get("tensor_parallel_size", 1)
    if kind != "vllm" and ranks != 1:
        raise EngineError(f"engine.tensor_parallel_size is {ranks}; only engine.kind vllm has several")
    _check_quantization(kind, options.get("quantization", "none"))
    if needs_process(kind, process, python):
        from alpamayo_ros.engine.process.client import ProcessEngine

        return ProcessEngine(kind, checkpoint, options, python, hang_timeout)
    if kind == "null":
        from alpamayo_ros.engine.null_engine import NullEngine

        return NullEngine()
    if not checkpoint:
        raise EngineError(
            "engine.checkpoint is empty; give a checkpoint's folder, or mini for the one of the synthetic world"
        )
    if kind == "vllm":
        from alpamayo_ros.engine.vllm.engine import VllmEngine

        return VllmEngine.load(checkpoint, **options)
    try:
        if kind == "native":
            from alpamayo_ros.engine.native.engine import NativeEngine

            return NativeEngine.load(checkpoint, **options)
        from alpamayo_ros.engine.transformers_engine import TransformersEngine
    except ImportError as error:
        raise EngineError(
            f"the {kind} engine can't be imported ({error}); python -m pip install torch transformers tokenizers "
            "safetensors huggingface_hub opencv-python-headless"
        ) from error
    return TransformersEngine.load(checkpoint, **options)


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


def _check_quantization(kind: str, quantization: str) -> None:
    if quantization not in QUANTIZATIONS:
        raise ConfigurationError(
            f"engine.quantization is {quantization!r}; it has to be one of {', '.join(QUANTIZATIONS)}"
        )
    if quantization != "none" and kind != "native":
        raise ConfigurationError(
            f"engine.quantization is {quantization!r}, but engine.kind is {kind!r}: native alone quantizes; set "
            "engine.kind to native, or engine.quantization to none"
        )

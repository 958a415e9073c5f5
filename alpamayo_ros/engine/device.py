"""Devices and number types by their names."""

from __future__ import annotations

import logging
import os

import torch

from alpamayo_ros.core.types import EngineError
from alpamayo_ros.model.resize import Resize, resize

logger = logging.getLogger(__name__)

TINY = 100_000_000  # parameters; the threads of a smaller model wait for each other longer than they compute

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def resolve_device(name: str) -> torch.device:
    """The device of a name: "auto", "cpu", "cuda" or "cuda:N".

    Raises:
        EngineError: it isn't known, or isn't there.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise EngineError(f"device is {name!r}; it has to be auto, cpu, cuda or cuda:N") from error
    if device.type == "cuda":
        if not torch.cuda.is_available():
            raise EngineError(
                f"device is {name!r}, but this torch ({torch.__version__}) sees no CUDA device; install a CUDA build "
                "of torch and NVIDIA's driver, or set device to cpu"
            )
        if device.index is not None and device.index >= torch.cuda.device_count():
            raise EngineError(f"device is {name!r}, but there are only {torch.cuda.device_count()} CUDA devices")
    return device


def device_index(device: torch.device) -> int | None:
    """A CUDA device's number, where "cuda" alone is the calling thread's; None: it isn't CUDA."""
    if device.type != "cuda":
        return None
    return torch.cuda.current_device() if device.index is None else device.index


def resolve_dtype(name: str, device: torch.device) -> torch.dtype:
    """The type of the weights: by name, or with "auto" bfloat16 on CUDA and float32 elsewhere.

    Raises:
        EngineError: it isn't known.
    """
    if name == "auto":
        return torch.bfloat16 if device.type == "cuda" else torch.float32
    if name not in DTYPES:
        raise EngineError(f"dtype is {name!r}; it has to be auto or one of {', '.join(DTYPES)}")
    return DTYPES[name]


def limit_threads(device: torch.device, parameters: int) -> None:
    """Let torch compute with one thread from now on, in this whole process, for a tiny model on a CPU.

    On a machine with other work a second thread makes it many times slower. OMP_NUM_THREADS, where it is set, decides
    instead.
    """
    if device.type == "cpu" and parameters < TINY and "OMP_NUM_THREADS" not in os.environ:
        logger.info("one thread for a model of %.1f million parameters", parameters / 1e6)
        torch.set_num_threads(1)


def resize_for(device: torch.device) -> Resize:
    """How images are resized there: by the kernel on CUDA, by plain torch elsewhere."""
    if device.type != "cuda":
        return resize
    from alpamayo_ros.engine.kernels.resize import resize as resize_by_kernels  # Triton is there where CUDA is

    return resize_by_kernels

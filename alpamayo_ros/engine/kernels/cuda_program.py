"""Programs in CUDA C++, compiled when they are needed by NVRTC, which comes with PyTorch as cuda-bindings does."""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import torch
from torch import Tensor

LOG = logging.getLogger(__name__)
SOURCES = files(__package__) / "cuda"
HEADERS = ("hopper.cuh",)


@dataclass(frozen=True)
class MachineCode:
    """What a source was compiled to."""

    code: bytes
    log: str  # of the compiler: registers and what did not fit into them


def compile_source(name: str, constants: Mapping[str, int], architecture: str = "sm_90a") -> MachineCode:
    """Compile `cuda/NAME.cu`; needs no GPU.

    Args:
        name: Of the source.
        constants: What it leaves open.
        architecture: Of the GPU.

    Raises:
        ImportError: there is no cuda-bindings.
        RuntimeError: it doesn't compile, or there is no NVRTC; the message is the compiler's.
    """
    from cuda.bindings import nvrtc

    headers = [(SOURCES / header).read_bytes() for header in HEADERS]
    source = (SOURCES / f"{name}.cu").read_bytes()
    names = [header.encode() for header in HEADERS]
    program = _checked(nvrtc.nvrtcCreateProgram(source, f"{name}.cu".encode(), len(headers), headers, names))
    options = ["--std=c++17", "--ptxas-options=-v", f"--gpu-architecture={architecture}"]
    options += [f"-D{key}={value}" for key, value in constants.items()]
    (failed,) = nvrtc.nvrtcCompileProgram(program, len(options), [option.encode() for option in options])
    log = bytes(_checked(nvrtc.nvrtcGetProgramLogSize(program)))
    _checked(nvrtc.nvrtcGetProgramLog(program, log))
    text = log.decode(errors="replace").strip("\0\n ")
    if failed.value:
        raise RuntimeError(f"{name}.cu does not compile:\n{text}")
    code = bytes(_checked(nvrtc.nvrtcGetCUBINSize(program)))
    _checked(nvrtc.nvrtcGetCUBIN(program, code))
    _checked(nvrtc.nvrtcDestroyProgram(program))
    return MachineCode(code, text)


@dataclass(frozen=True, eq=False)
class CudaKernel:
    """A kernel on a device. It has to wait itself for the one before it, since it may be started earlier."""

    function: Any
    device: torch.device
    shared_bytes: int  # all that a program can have

    def launch(self, grid: tuple[int, int], threads: int, arguments: tuple[Tensor | int | float, ...]) -> None:
        """Queue it on the device's current stream.

        Args:
            grid: Programs.
            threads: Of a program.
            arguments: Tensors are pointers, ints 64 bits, floats 32.
        """
        from cuda.bindings import driver

        config = driver.CUlaunchConfig()
        config.gridDimX, config.gridDimY, config.gridDimZ = (*grid, 1)
        config.blockDimX, config.blockDimY, config.blockDimZ = threads, 1, 1
        config.sharedMemBytes = self.shared_bytes
        config.hStream = driver.CUstream(torch.cuda.current_stream(self.device).cuda_stream)
        early = driver.CUlaunchAttribute()
        early.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
        early.value.programmaticStreamSerializationAllowed = 1
        config.attrs, config.numAttrs = [early], 1
        values = tuple(each.data_ptr() if isinstance(each, Tensor) else each for each in arguments)
        _checked(driver.cuLaunchKernelEx(config, self.function, (values, tuple(map(_c_type, arguments))), 0))


@cache
def usable_kernel(name: str, constants: tuple[tuple[str, int], ...], device: torch.device) -> CudaKernel | None:
    """The kernel of `cuda/NAME.cu`, of the same name, compiled once in a process.

    None, with a warning: it can't be compiled or loaded here. On GPUs that it isn't made for: None.
    """
    if device.type != "cuda" or torch.cuda.get_device_capability(device) != (9, 0):
        return None
    assert not torch.cuda.is_current_stream_capturing(), "what is recorded runs once before"
    try:
        return _load(name, compile_source(name, dict(constants)).code, device)
    except (ImportError, RuntimeError) as error:
        LOG.warning("%s.cu can't be used, and what takes its place is slower: %s", name, error)
        return None


def _load(name: str, code: bytes, device: torch.device) -> CudaKernel:
    from cuda.bindings import driver

    torch.cuda.synchronize(device)  # the device has a context now
    with torch.cuda.device(device):
        module = _checked(driver.cuModuleLoadData(code))
    function = _checked(driver.cuModuleGetFunction(module, name.encode()))
    most = _checked(
        driver.cuDeviceGetAttribute(
            driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, device.index or 0
        )
    )
    limit = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    _checked(driver.cuFuncSetAttribute(function, limit, most))
    return CudaKernel(function, device, most)


def in_pieces(memory: Tensor) -> bool:
    """Whether its rows can be copied 16 bytes at once, as `tensor_map` wants them."""
    *strides, last = memory.stride()
    return last == 1 and not any(stride * memory.itemsize % 16 for stride in strides) and memory.data_ptr() % 16 == 0


MAP_BYTES = 128


def tensor_map(memory: Tensor, box: Sequence[int]) -> bytes:
    """How the tensor memory accelerator finds boxes of a bfloat16 tensor; it turns them by 128 bytes as it copies.

    Args:
        memory: At most five dimensions, in pieces.
        box: The size of a box in each; 64 in the last one.

    Raises:
        RuntimeError: the driver can't describe it.
    """
    from cuda.bindings import driver

    assert memory.dtype == torch.bfloat16
    sizes = [driver.cuuint64_t(size) for size in reversed(memory.shape)]
    strides = [driver.cuuint64_t(stride * memory.itemsize) for stride in reversed(memory.stride()[:-1])]
    described = _checked(
        driver.cuTensorMapEncodeTiled(
            driver.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
            memory.ndim,
            memory.data_ptr(),
            sizes,
            strides,
            [driver.cuuint32_t(size) for size in reversed(box)],
            [driver.cuuint32_t(1)] * memory.ndim,
            driver.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
            driver.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_128B,
            driver.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
            driver.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        )
    )
    return ctypes.string_at(described.getPtr(), MAP_BYTES)


def on_device(described: bytes, device: torch.device) -> Tensor:
    """Bytes that kernels read, such as maps."""
    assert not torch.cuda.is_current_stream_capturing(), "what is recorded runs once before"
    return torch.frombuffer(bytearray(described), dtype=torch.uint8).to(device)


def _c_type(argument: Tensor | float) -> Any:
    if isinstance(argument, Tensor):
        return ctypes.c_void_p
    return ctypes.c_longlong if isinstance(argument, int) else ctypes.c_float


def _checked(answer: tuple[Any, ...]) -> Any:
    """What a function of cuda-bindings gives after its error code."""
    error, *values = answer
    if error.value:
        raise RuntimeError(f"CUDA: {error.name}")
    return values[0] if values else None

"""Programs in CUDA C++, compiled when they are needed by NVRTC, which comes with PyTorch as cuda-bindings does."""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any

import torch
from torch import Tensor

LOG = logging.getLogger(__name__)
SOURCES = files(__package__) / "cuda"
HEADERS = ("hopper.cuh",)
ARCHITECTURE = "sm_90a"  # Hopper with what other GPUs don't have


@dataclass(frozen=True)
class MachineCode:
    """What a source was compiled to."""

    code: bytes
    log: str  # of the compiler: registers and what did not fit into them


def compile_source(name: str, constants: Mapping[str, int]) -> MachineCode:
    """Compile `cuda/NAME.cu`; needs no GPU.

    Args:
        name: Of the source.
        constants: What it leaves open.

    Raises:
        ImportError: there is no cuda-bindings.
        RuntimeError: it doesn't compile, or there is no NVRTC; the message is the compiler's.
    """
    from cuda.bindings import nvrtc

    headers = [(SOURCES / header).read_bytes() for header in HEADERS]
    source = (SOURCES / f"{name}.cu").read_bytes()
    names = [header.encode() for header in HEADERS]
    program = _checked(nvrtc.nvrtcCreateProgram(source, f"{name}.cu".encode(), len(headers), headers, names))
    options = ["--std=c++17", "--ptxas-options=-v", f"--gpu-architecture={ARCHITECTURE}"]
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
    shared_bytes: int  # of a program

    def launch(self, grid: tuple[int, int], threads: int, arguments: tuple[Any, ...]) -> None:
        """Queue it on the device's current stream.

        Args:
            grid: Programs.
            threads: Of a program.
            arguments: Tensors are pointers, ints 64 bits, floats 32; tensor maps are copied, also into a graph.
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
    """The kernel of `cuda/NAME.cu`, of the same name, compiled once in a process. The source says in `shared_bytes`
    how much shared memory it takes.

    None, with a warning: it can't be compiled or loaded here. On GPUs that it isn't made for: None.
    """
    if device.type != "cuda" or torch.cuda.get_device_capability(device) != (9, 0):
        return None
    assert not torch.cuda.is_current_stream_capturing(), "what is recorded runs once before"
    try:
        return _load(name, compile_source(name, dict(constants)).code, device)
    except (ImportError, OSError, RuntimeError) as error:
        LOG.warning(
            "%s.cu can't be used, and what takes its place is slower; it needs cuda-bindings and nvidia-cuda-nvrtc of "
            "PyTorch's CUDA version: %s",
            name,
            error,
        )
        return None


def _load(name: str, code: bytes, device: torch.device) -> CudaKernel:
    from cuda.bindings import driver

    torch.cuda.synchronize(device)  # the device has a context now
    with torch.cuda.device(device):
        module = _checked(driver.cuModuleLoadData(code))
        function = _checked(driver.cuModuleGetFunction(module, name.encode()))
        said, size = _checked(driver.cuModuleGetGlobal(module, b"shared_bytes"))
        shared = ctypes.c_uint32()
        _checked(driver.cuMemcpyDtoH(ctypes.addressof(shared), said, size))
        limit = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        _checked(driver.cuFuncSetAttribute(function, limit, shared.value))
    return CudaKernel(function, device, shared.value)


def in_pieces(memory: Tensor) -> bool:
    """Whether its rows can be copied 16 bytes at once, as `tensor_map` wants them."""
    *strides, last = memory.stride()
    return last == 1 and not any(stride * memory.itemsize % 16 for stride in strides) and memory.data_ptr() % 16 == 0


MAP_BYTES, MAP_ALIGNMENT = 128, 128
BFLOAT16, NOT_INTERLEAVED, TURNED_BY_128_BYTES, PROMOTED_TO_256_BYTES, ZERO_OUTSIDE = 9, 0, 3, 3, 0  # as in cuda.h


class Map(ctypes.Structure):
    """CUtensorMap, as an argument of a kernel."""

    _fields_ = (("opaque", ctypes.c_char * MAP_BYTES),)


def tensor_map(memory: Tensor, box: Sequence[int]) -> Any:
    """How the tensor memory accelerator finds boxes of a bfloat16 tensor; it turns them by 128 bytes as it copies.

    Args:
        memory: At most five dimensions, in pieces.
        box: The size of a box in each; 64 in the last one.

    Returns:
        An argument of a kernel (`const __grid_constant__`), or None, with a warning: the driver can't describe it.
    """
    assert memory.dtype == torch.bfloat16
    return _described(memory.data_ptr(), tuple(memory.shape), memory.stride(), tuple(box))


@lru_cache(maxsize=1024)
def _described(address: int, shape: tuple[int, ...], strides: tuple[int, ...], box: tuple[int, ...]) -> Any:
    """By the driver itself: cuda-bindings gives it memory that isn't aligned (NVIDIA/cuda-python, 1692)."""
    rank = len(shape)
    memory = ctypes.create_string_buffer(MAP_BYTES + MAP_ALIGNMENT)
    described = (ctypes.c_char * MAP_BYTES).from_buffer(memory, -ctypes.addressof(memory) % MAP_ALIGNMENT)
    error = _driver().cuTensorMapEncodeTiled(
        ctypes.byref(described),
        BFLOAT16,
        ctypes.c_uint32(rank),
        ctypes.c_void_p(address),
        (ctypes.c_uint64 * rank)(*reversed(shape)),
        (ctypes.c_uint64 * (rank - 1))(*(stride * torch.bfloat16.itemsize for stride in reversed(strides[:-1]))),
        (ctypes.c_uint32 * rank)(*reversed(box)),
        (ctypes.c_uint32 * rank)(*[1] * rank),
        NOT_INTERLEAVED,
        TURNED_BY_128_BYTES,
        PROMOTED_TO_256_BYTES,
        ZERO_OUTSIDE,
    )
    if error:
        LOG.warning("no tensor map for %s by %s, and what takes its place is slower: error %d", shape, strides, error)
        return None
    return Map.from_buffer_copy(described)


@cache
def _driver() -> ctypes.CDLL:
    return ctypes.CDLL("libcuda.so.1")  # which PyTorch has loaded


def _c_type(argument: Any) -> Any:
    if isinstance(argument, Tensor):
        return ctypes.c_void_p
    return {int: ctypes.c_longlong, float: ctypes.c_float}.get(type(argument))  # None: what the bindings point to


def _checked(answer: tuple[Any, ...]) -> Any:
    """What a function of cuda-bindings gives after its error code."""
    error, *values = answer
    if error.value:
        raise RuntimeError(f"CUDA: {error.name}")
    return None if not values else values[0] if len(values) == 1 else values

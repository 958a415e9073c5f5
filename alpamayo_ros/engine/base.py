"""The engine protocol: an observation in, K trajectories and the reasoning out. No ROS, no clock, no hidden state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from alpamayo_ros.core.types import Frame, Observation, Prediction, SamplingOptions

__all__ = ["Engine", "EngineInfo", "LoadOptions", "SamplingOptions"]


@dataclass(frozen=True)
class LoadOptions:
    """How a checkpoint is loaded, whatever the engine."""

    device: str = "auto"  # "auto", "cpu", "cuda" or "cuda:N"
    dtype: str = "auto"  # of the weights: "auto", "float32", "bfloat16" or "float16"
    base_model: str | None = None  # folder or Hugging Face name for the backbone's config and tokenizer
    max_samples: int = 64  # trajectories per tick at most
    max_cameras: int = 7  # at most; sizes what is kept of frames
    bf16_constants: bool = True  # round normalisation constants and frequencies to bfloat16, as NVIDIA's runtime does
    quantization: str = (
        "none"  # "fp8": the backbone's layers in FP8, approximate; "fp8_expert": the expert's too; native
    )
    kv_cache_memory: float = 0.0  # GiB of the KV cache of native and vllm, on each device; 0: what they find enough
    jpeg_decoder: str = "opencv"  # "opencv", or "nvjpeg" on the GPU
    tensor_parallel_size: int = 1  # devices that share the model; vllm alone can


@dataclass(frozen=True)
class EngineInfo:
    """What an engine is, for the log, the status and the report."""

    engine: str  # "transformers", "native", "vllm", "null"
    model: str  # name or folder of the checkpoint
    model_type: str  # "alpamayo1_5", "alpamayo_r1", ...
    device: str
    dtype: str
    parameters: int
    trained: bool  # False: random weights; the trajectories mean nothing
    max_samples: int
    max_cameras: int
    max_tokens: int  # prompt and reasoning together
    checkpoint_hash: str = ""  # sha256 over the weight files' headers and sizes; "" when there is none
    quantization: str = "none"  # as in LoadOptions; answers are approximate unless "none"
    prompt_tokens: int = 0  # of the largest prompt of the rig, with a usual route; 0: without meaning here
    cache_tokens: int = 0  # of a KV cache from which a tick takes all that its texts may need at once; 0: none such
    image_tokens: int = 0  # of the smallest image in a prompt

    def describe(self) -> str:
        """One line for logs."""
        size = f"{self.parameters / 1e6:,.1f} million parameters" if self.parameters else "no parameters"
        kind = self.dtype if self.quantization == "none" else f"{self.dtype} and {self.quantization}"
        return f"{self.engine} engine with {self.model} ({self.model_type}, {size}, {kind}) on {self.device}"


@runtime_checkable
class Engine(Protocol):
    """A resident model. Frames' data are only there during a call: what is kept of them has to be copied."""

    @property
    def info(self) -> EngineInfo:
        """What it is."""

    @property
    def prepares_alongside(self) -> bool:
        """Whether `prepare` may run in one thread while the engine is at a tick or a question in another."""

    def warm_up(self) -> None:
        """Compile, capture, allocate: nothing of this happens while driving."""

    def prepare(self, frames: Sequence[Frame]) -> None:
        """Decode and encode frames early. Idempotent; may do nothing; raises nothing for a bad image.

        What `predict` answers doesn't depend on it. An engine that prepares alongside encodes a frame once, whoever
        asks first: a prediction waits for its frames that are on their way.
        """

    def predict(self, observation: Observation, options: SamplingOptions) -> Prediction:
        """Predict one tick.

        Raises:
            BadImageError: a frame can't be decoded, or differs in size from its camera's other frames.
            EngineError: anything else that kept the engine from answering.
        """

    def predict_batch(
        self, observations: Sequence[Observation], options: Sequence[SamplingOptions]
    ) -> list[Prediction]:
        """Predict several ticks, with the same results as one by one up to rounding."""

    def ask(self, observation: Observation, question: str, options: SamplingOptions) -> str:
        """Answer a question about the scene in words."""

    def close(self) -> None:
        """Free everything. Idempotent."""


@dataclass(frozen=True)
class EngineHealth:
    """How an engine that lives in a process of its own is now."""

    ready: bool  # False: it is being started anew, or was given up
    state: str  # in words
    restarts: int = 0
    pid: int = 0  # of its process; 0 when there is none that is ready
    device_memory_bytes: int = 0  # that its process holds


@runtime_checkable
class SupervisedEngine(Engine, Protocol):
    """An engine that can be away for a while, and that can be closed at any time, also while it is at work."""

    @property
    def health(self) -> EngineHealth:
        """How it is now."""

    def wait_until_ready(self) -> None:
        """Return when a restart is over: it is ready, or was given up."""

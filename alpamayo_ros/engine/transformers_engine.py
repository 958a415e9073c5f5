"""The reference engine: transformers' Qwen3-VL and the expert in plain torch, on any device.

One prefill serves all samples; samples with the same reasoning share one prefix, which the expert reads once for all.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from alpamayo_ros.core.types import (
    AlpamayoError,
    EgoPose,
    EngineError,
    Frame,
    Observation,
    Prediction,
    SamplingOptions,
    Timings,
)
from alpamayo_ros.engine.base import EngineInfo
from alpamayo_ros.engine.frame_cache import EncodingCost, FrameCache
from alpamayo_ros.engine.reasoning import Writer, Written, device_synchroniser, given
from alpamayo_ros.engine.sampling import flow_noise
from alpamayo_ros.model.action_space import Trajectory, UnicycleActionSpace
from alpamayo_ros.model.alpamayo import Alpamayo
from alpamayo_ros.model.backbone import Backbone, ImageFeatures, Reading
from alpamayo_ros.model.checkpoint import Checkpoint
from alpamayo_ros.model.config import ModelConfig
from alpamayo_ros.model.expert import ExpertMemory
from alpamayo_ros.model.flow_matching import Flow, integrate, mix_velocities
from alpamayo_ros.model.history_tokens import HistoryTokenizer
from alpamayo_ros.model.prompt import Prompt, build_driving_prompt, build_question_prompt
from alpamayo_ros.model.vocabulary import Vocabulary

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
TICKS_KEPT = 2  # ticks whose frames' features are kept
WARM_UP_IMAGE = (1080, 1920)


class TransformersEngine:
    """See engine/base.py for the protocol.

    Args:
        checkpoint: NVIDIA's folder.
        device: "auto", "cpu", "cuda" or "cuda:N".
        dtype: "auto" (bfloat16 on CUDA, float32 elsewhere), "float32", "bfloat16" or "float16".
        base_model: folder of the backbone's config and tokenizer, where the checkpoint has none.
        max_samples: K at most.
        max_cameras: at most; sizes what is kept of frames.
        bf16_constants: normalisation constants and frequencies as bfloat16 rounds them, as NVIDIA's runtime has them.
    """

    def __init__(
        self,
        checkpoint: str | Path,
        device: str = "auto",
        dtype: str = "auto",
        base_model: str | Path | None = None,
        max_samples: int = 64,
        max_cameras: int = 7,
        bf16_constants: bool = True,
    ) -> None:
        folder = Path(checkpoint)
        base = Path(base_model) if base_model else None
        self._device = resolve_device(device)
        if dtype != "auto" and dtype not in DTYPES:
            raise EngineError(f"dtype is {dtype!r}; it has to be auto or one of {', '.join(DTYPES)}")
        self._dtype = (
            DTYPES["bfloat16" if self._device.type == "cuda" else "float32"] if dtype == "auto" else DTYPES[dtype]
        )
        stored = Checkpoint(folder)
        self.config = ModelConfig.load(folder, base)
        self.vocabulary = Vocabulary(stored.tokenizer(base), self.config.vocabulary)
        self._history = HistoryTokenizer(self.config.history)
        constants, frequencies = stored.constants(), stored.frequencies()
        space = self.config.action_space.with_constants(constants)
        self.action_space = UnicycleActionSpace(space, bf16_constants and not constants)
        self.model = Alpamayo(self.config, bf16_constants)
        stored.load_into(self.model, self._device, self._dtype)
        if frequencies is not None:
            self.model.action_in_proj.frequencies = frequencies.to(self._device)
        self.backbone = Backbone(self.model.vlm)
        self._synchronise = device_synchroniser(self._device)
        frames = max_cameras * 4 * TICKS_KEPT
        self._frames = FrameCache(self.backbone, self.config.images, frames, self._synchronise)
        self._closed = False
        self.info = EngineInfo(
            engine="transformers",
            model=str(folder),
            model_type=self.config.model_type,
            device=str(self._device),
            dtype=str(self._dtype).removeprefix("torch."),
            parameters=sum(parameter.numel() for parameter in self.model.parameters()),
            trained=not self.config.random_weights,
            max_samples=max_samples,
            max_cameras=max_cameras,
            max_tokens=int(self.config.backbone["text_config"].get("max_position_embeddings", 0)),
            checkpoint_hash=stored.hash,
        )

    def warm_up(self) -> None:
        """Run the largest tick once, so that kernels are chosen and memory is taken."""
        height, width = WARM_UP_IMAGE
        image = np.zeros((height, width, 3), np.uint8)

        def frame(camera: int, number: int) -> Frame:
            serial = -1 - 4 * camera - number  # received frames have positive ones
            return Frame(serial, camera, 1 + number, image, "rgb8", height, width, 3 * width)

        frames = {camera: tuple(frame(camera, i) for i in range(4)) for camera in range(self.info.max_cameras)}
        still = EgoPose(4, np.zeros(3), np.array([0.0, 0.0, 0.0, 1.0]))
        observation = Observation(4, 0, frames, np.zeros((16, 3)), np.tile(np.eye(3), (16, 1, 1)), still)
        self.predict(observation, SamplingOptions(max_reasoning_tokens=2))
        self._frames.clear()

    def prepare(self, frames: Sequence[Frame]) -> None:
        """Decode and encode frames early; see the protocol."""
        self._frames.prepare(frames)

    def predict(self, observation: Observation, options: SamplingOptions) -> Prediction:
        """Predict one tick; see the protocol."""
        with torch.inference_mode(), self._named_errors():
            return self._predict(observation, options)

    def predict_batch(
        self, observations: Sequence[Observation], options: Sequence[SamplingOptions]
    ) -> list[Prediction]:
        """Predict several ticks, one after the other."""
        return [self.predict(each, its) for each, its in zip(observations, options, strict=True)]

    def ask(self, observation: Observation, question: str, options: SamplingOptions) -> str:
        """Answer a question about the scene in words."""
        with torch.inference_mode(), self._named_errors():
            features = self._look(observation.frames, EncodingCost())
            counts = [len(each.embeddings) for each in features]
            prompt = build_question_prompt(self.vocabulary, counts, question, self._captions(observation.frames))
            reading = self.backbone.read(prompt, features)
            tokens = Writer(self.vocabulary, options, 0, self._deadline(options)).answer(reading)
            return self._text(prompt, tokens, "answer")

    def close(self) -> None:
        """Free the weights."""
        if self._closed:
            return
        self._closed = True
        self._frames.clear()
        del self.model, self.backbone
        if self._device.type == "cuda":
            torch.cuda.empty_cache()

    # One tick

    def _predict(self, observation: Observation, options: SamplingOptions) -> Prediction:
        self._check(observation, options)
        cost = EncodingCost()
        deadline = self._deadline(options)
        features = self._look(observation.frames, cost)
        stages = dict(cost.stages_ms)
        clock = _Clock(stages, self._synchronise)
        prompt = self._prompt(observation, features)
        reading = self.backbone.read(prompt, features)
        clock.lap("prefill")
        groups = self._write(reading, prompt, options, deadline)
        written = {sample: text for text, samples in groups for sample in samples}
        clock.lap("reasoning")
        actions = self._expert(reading, prompt, features, groups, options)
        clock.lap("expert")
        trajectory = self._drive(actions, observation)
        clock.lap("trajectory")
        texts = [written[sample] for sample in range(options.num_samples)]
        return Prediction(
            xyz=_array(trajectory.xyz),
            rotation=_array(trajectory.rotation),
            actions=_array(trajectory.actions),
            speed=_array(trajectory.speed),
            reasoning=tuple(self._text(prompt, text.token_ids, "cot") for text in texts),
            reasoning_token_ids=tuple(text.token_ids for text in texts),
            finish_reasons=tuple(text.finish_reason for text in texts),
            seed=options.seed,
            drafts_accepted=sum(text.drafts_accepted for text, _ in groups),
            timings=Timings(stages, cost.encoded, cost.reused, sum(len(text.token_ids) for text, _ in groups)),
        )

    def _look(self, frames: Mapping[int, tuple[Frame, ...]], cost: EncodingCost) -> list[ImageFeatures]:
        return [features for camera in frames.values() for features in self._frames.encode(camera, cost)]

    def _captions(self, frames: Mapping[int, tuple[Frame, ...]]) -> list[int] | None:
        """The camera of every image, for the prompt; None for a model that isn't told."""
        return [camera for camera, its in frames.items() for _ in its] if self.config.names_cameras else None

    def _prompt(self, observation: Observation, features: Sequence[ImageFeatures]) -> Prompt:
        prompt = build_driving_prompt(
            self.vocabulary,
            [len(each.embeddings) for each in features],
            self.config.tokens_per_history,
            self._captions(observation.frames),
            observation.navigation,
        )
        bins = self._history.encode(torch.from_numpy(observation.history_xyz.astype(np.float32)))
        return prompt.with_history((bins + self.vocabulary.history_ids.start).tolist())

    def _write(
        self, reading: Reading, prompt: Prompt, options: SamplingOptions, deadline: float | None
    ) -> list[tuple[Written, list[int]]]:
        """Reasoning texts, each with the samples that drive by it. The reading ends after the prompt again."""
        everybody = list(range(options.num_samples))
        if options.reasoning == "off":
            return [(given(self.vocabulary, ""), everybody)]
        if options.reasoning == "given":
            return [(given(self.vocabulary, options.given_reasoning), everybody)]
        writers = everybody if options.reasoning == "independent" else everybody[:1]
        first = reading.snapshot()
        groups: dict[tuple[int, ...], tuple[Written, list[int]]] = {}
        for sample in writers:
            own = options if sample == 0 else replace(options, draft_token_ids=())
            written = Writer(self.vocabulary, own, sample, deadline).reasoning(reading)
            groups.setdefault(written.token_ids, (written, []))[1].append(sample)
            reading.restore(first)
        if options.reasoning == "shared":
            return [(text, everybody) for text, _ in groups.values()]
        return list(groups.values())

    def _expert(
        self,
        reading: Reading,
        prompt: Prompt,
        features: Sequence[ImageFeatures],
        groups: Sequence[tuple[Written, list[int]]],
        options: SamplingOptions,
    ) -> Tensor:
        """Normalised actions [K, N, 2]."""
        guided = options.guidance_weight is not None and options.guidance_weight != 1.0
        other = self.backbone.read(prompt.without_route(), features) if guided else None
        actions = torch.empty(options.num_samples, self.config.action_space.n_waypoints, 2, device=self._device)
        for text, samples in groups:
            memories = [self._memory(reading, text, len(samples))]
            if other is not None:
                memories.append(self._memory(other, text, len(samples)))
            noise = torch.stack([flow_noise(options.seed, k, actions.shape[1]) for k in samples]).to(self._device)
            actions[samples] = self.flow(memories, noise, options).actions
        return actions

    def _memory(self, reading: Reading, text: Written, samples: int) -> ExpertMemory:
        """What the expert attends to after this text. The reading ends after the prompt again."""
        first = reading.snapshot()
        reading.follow(text.token_ids)
        memory = self.memory(reading, samples)
        reading.restore(first)
        return memory

    def memory(self, reading: Reading, samples: int, offset: int | None = None) -> ExpertMemory:
        """What the expert attends to: everything read so far, up to `offset`; its tokens follow there."""
        length = len(reading) if offset is None else offset
        waypoints = self.config.action_space.n_waypoints
        geometry = self.model.expert.geometry
        return ExpertMemory(geometry, reading.prefix(length), samples, waypoints, length + reading.delta)

    def flow(self, memories: Sequence[ExpertMemory], noise: Tensor, options: SamplingOptions) -> Flow:
        """Denoise [S, N, 2] under one memory, or under a guided and an unguided one."""
        weight = options.guidance_weight if options.guidance_weight is not None else 1.0

        def velocity(actions: Tensor, times: Tensor) -> Tensor:
            velocities = [self.model.velocity(actions, times, memory) for memory in memories]
            return velocities[0] if len(velocities) == 1 else mix_velocities(velocities[1], velocities[0], weight)

        steps = options.flow_steps or self.config.flow.num_inference_steps
        return integrate(velocity, noise, steps, options.noise_temperature)

    def _drive(self, actions: Tensor, observation: Observation) -> Trajectory:
        """Actions to trajectories, in float32 on the CPU as NVIDIA's code does it in float32."""
        samples = actions.shape[0]
        xyz = torch.from_numpy(observation.history_xyz.astype(np.float32)).expand(samples, -1, -1)
        rotation = torch.from_numpy(observation.history_rotation.astype(np.float32)).expand(samples, -1, -1, -1)
        return self.action_space.actions_to_trajectory(actions.float().cpu(), xyz, rotation)

    def _text(self, prompt: Prompt, token_ids: Sequence[int], component: str) -> str:
        """What was written, without special tokens; the prompt's last token opened the component."""
        return self.vocabulary.text_between([prompt.token_ids[-1], *token_ids], component).strip()

    def _check(self, observation: Observation, options: SamplingOptions) -> None:
        if not 1 <= options.num_samples <= self.info.max_samples:
            raise EngineError(f"num_samples is {options.num_samples}; it has to be 1 to {self.info.max_samples}")
        if len(observation.frames) > self.info.max_cameras:
            raise EngineError(f"the observation has {len(observation.frames)} cameras; {self.info.max_cameras} at most")
        if options.reasoning not in ("shared", "independent", "off", "given"):
            raise EngineError(f"reasoning is {options.reasoning!r}; it has to be shared, independent, off or given")

    def _deadline(self, options: SamplingOptions) -> float | None:
        return None if options.deadline_ms is None else time.monotonic() + options.deadline_ms * 1e-3

    def _named_errors(self) -> _NamedErrors:
        if self._closed:
            raise EngineError("the engine is closed; make a new one")
        return _NamedErrors()


class _Clock:
    """Laps by a monotonic clock, each ending when the device is done."""

    def __init__(self, stages_ms: dict[str, float], synchronise: object) -> None:
        self._stages_ms = stages_ms
        self._synchronise = synchronise
        self._last = time.monotonic()

    def lap(self, stage: str) -> None:
        """End a stage."""
        self._synchronise()  # type: ignore[operator]
        now = time.monotonic()
        self._stages_ms[stage] = (now - self._last) * 1e3
        self._last = now


class _NamedErrors:
    """Turns torch's out-of-memory into an EngineError that says what to lower."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, AlpamayoError) or not isinstance(error, torch.OutOfMemoryError):
            return
        torch.cuda.empty_cache()
        raise EngineError(f"out of device memory ({error}); lower num_samples or the number of cameras") from error


def resolve_device(device: str) -> torch.device:
    """The device by its name.

    Raises:
        EngineError: it isn't there.
    """
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        resolved = torch.device(device)
    except RuntimeError as error:
        raise EngineError(f"device is {device!r}; it has to be auto, cpu, cuda or cuda:N") from error
    if resolved.type == "cuda" and not torch.cuda.is_available():
        raise EngineError(
            f"device is {device!r}, but this torch ({torch.__version__}) sees no CUDA device; install a CUDA build of "
            "torch and NVIDIA's driver, or set device to cpu"
        )
    return resolved


def _array(tensor: Tensor) -> np.ndarray:
    return tensor.double().numpy()

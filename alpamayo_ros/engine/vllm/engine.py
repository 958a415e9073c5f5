"""The production engine: the backbone in vLLM, the action expert on its KV cache in place."""

from __future__ import annotations

import gc
import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from alpamayo_ros.core.types import (
    FRAMES_PER_CAMERA,
    EngineError,
    Frame,
    Observation,
    Prediction,
    SamplingOptions,
    Timings,
)
from alpamayo_ros.engine.assemble import Assembly
from alpamayo_ros.engine.base import EngineInfo, LoadOptions
from alpamayo_ros.engine.device import resize_for, resolve_dtype
from alpamayo_ros.engine.dummy import dummy_observation
from alpamayo_ros.engine.flow.paged_cache import KVPrefix
from alpamayo_ros.engine.flow.shape import shapes_to_capture
from alpamayo_ros.engine.frame_features import FrameFeatures
from alpamayo_ros.engine.gpu_jpegs import GpuJpegs, jpegs_by_options
from alpamayo_ros.engine.limits import largest_prompt
from alpamayo_ros.engine.options import check_length, check_options
from alpamayo_ros.engine.reasoning import Text, answer_ends, answer_text
from alpamayo_ros.engine.sampling import flow_noise
from alpamayo_ros.engine.stage_clock import StageClock
from alpamayo_ros.engine.tick_prompt import TickPrompts, check_sizes
from alpamayo_ros.engine.vllm.backbone import Pinned, Reading, VllmBackbone, Writing
from alpamayo_ros.engine.vllm.faults import room_for, vllm_faults
from alpamayo_ros.engine.vllm.jobs import Draw, ExpertPlan, FlowJob
from alpamayo_ros.engine.vllm.pictures import Picture
from alpamayo_ros.engine.vllm.reasoner import VllmReasoner
from alpamayo_ros.engine.vllm.startup import (
    GIB,
    Sizes,
    check_device,
    check_ranks,
    set_environment,
    start_vllm,
    stop_vllm,
)
from alpamayo_ros.engine.vllm.tick import Reasoned, Tick
from alpamayo_ros.engine.vllm.versions import check_vllm
from alpamayo_ros.engine.vllm.vision import HostVision, load_vision
from alpamayo_ros.model.alpamayo import Constants, check_weights, make_network_on_meta, open_weights
from alpamayo_ros.model.config import ModelConfig
from alpamayo_ros.model.rope_positions import rope_positions

logger = logging.getLogger(__name__)

WARM_UP_SAMPLES = 6  # the node's default


class VllmEngine:
    """One resident model. See the Engine protocol in base.py.

    A tick: requests write the reasoning; follow-up requests read it to its last token and pin the sequences in the KV
    cache; the flow reads the pinned blocks where they lie; they are released. Draft tokens are not used.
    """

    prepares_alongside = True  # the vision tower shares nothing with vLLM

    def __init__(
        self,
        config: ModelConfig,
        constants: Constants,
        info: EngineInfo,
        backbone: VllmBackbone,
        vision: HostVision,
        jpegs: GpuJpegs | None,
    ) -> None:
        self.info = info
        self._config = config
        self._vocabulary = config.load_vocabulary()
        self._action_space = constants.action_space
        self._backbone = backbone
        self._prompts = TickPrompts(config, self._vocabulary)
        self._device = torch.device(info.device)
        # a tick's frames twice over: those in use, and those that come until they are
        capacity = 2 * FRAMES_PER_CAMERA * info.max_cameras
        self._frames = FrameFeatures(vision, config.images, self._device, capacity, resize_for(self._device), jpegs)
        self._reasoner = VllmReasoner(backbone, self._prompts, self._vocabulary, info, StageClock(self._device))
        self._closed = False

    @classmethod
    def load(cls, checkpoint: str, **options: Any) -> VllmEngine:
        """Load a checkpoint.

        Args:
            checkpoint: folder or Hugging Face name.
            options: fields of LoadOptions.

        Raises:
            ConfigurationError: a checkpoint that can't be used.
            EngineError: no vLLM, one of another version, no device, or too little memory.
        """
        wanted = LoadOptions(**options)
        check_vllm()  # first: without it the checkpoint doesn't matter
        return cls.from_config(ModelConfig.load(checkpoint, wanted.base_model), checkpoint, wanted)

    @classmethod
    def from_config(cls, config: ModelConfig, name: str, wanted: LoadOptions) -> VllmEngine:
        """The same for a config that was read before and a vLLM that was checked."""
        set_environment()
        where = check_device(wanted.device)
        kind = resolve_dtype(wanted.dtype, where)
        files = open_weights(config)
        constants = Constants.of(config, files, wanted.bf16_constants)
        network = make_network_on_meta(config, constants.bf16_frequencies)
        if config.random_seed is None:
            check_weights(config, files, network)
        ranks = wanted.tensor_parallel_size
        check_ranks(config.expert, ranks)
        parameters = sum(parameter.numel() for parameter in network.parameters())
        sizes = Sizes.of(config, kind, wanted.max_cameras, wanted.max_samples, wanted.kv_cache_memory, ranks)
        engine = start_vllm(config, sizes, where, kind, ranks, parameters)
        try:
            shapes = shapes_to_capture(config.flow.num_inference_steps, wanted.max_samples)
            plan = ExpertPlan(config, wanted.bf16_constants, sizes.sequence_tokens, shapes)
            backbone = VllmBackbone(engine, plan)
            with room_for("the vision tower"):
                vision = load_vision(config, files, network, where, kind)
            jpegs = jpegs_by_options(wanted, where)
        except BaseException:
            stop_vllm(engine)
            raise
        info = EngineInfo(
            engine="vllm",
            model=name,
            model_type=config.model_type,
            device=str(where),
            dtype=str(kind).removeprefix("torch."),
            parameters=parameters,
            trained=config.trained,
            max_samples=wanted.max_samples,
            max_cameras=wanted.max_cameras,
            max_tokens=sizes.sequence_tokens,
            checkpoint_hash=files.hash,
            prompt_tokens=largest_prompt(wanted.max_cameras, config.images.max_tokens),
            image_tokens=config.images.min_tokens,
        )
        logger.info("%s: %s", name, backbone.describe())
        return cls(config, constants, info, backbone, vision, jpegs)

    def warm_up(self) -> None:
        """Capture the flow's graphs, run a tick of the largest prompt in every way, and keep the garbage collector off.

        Raises:
            EngineError: too little memory; the message says what to lower.
        """
        self._check_open()
        with vllm_faults(self.info.device):
            held = self._backbone.call("alpamayo_capture")
        if held:
            logger.info("%s: %.2f GiB on the device", self.info.model, held / GIB)
        samples = min(WARM_UP_SAMPLES, self.info.max_samples)
        observation = dummy_observation(self.info.max_cameras)
        guided = replace(observation, navigation="Turn left in 30m")
        for reasoning in ("shared", "independent"):
            options = SamplingOptions(num_samples=samples, max_reasoning_tokens=2, reasoning=reasoning)
            self.predict(observation, options)
            self.predict(guided, replace(options, guidance_weight=1.5))
        self._frames.clear()
        gc.collect()
        gc.freeze()

    @torch.inference_mode()
    def prepare(self, frames: Sequence[Frame]) -> None:
        """Decode and encode frames early, also beside a `predict`, which names what can't be decoded."""
        self._check_open()
        with vllm_faults(self.info.device), room_for("the vision tower"):
            self._frames.prepare(frames)

    def predict(self, observation: Observation, options: SamplingOptions) -> Prediction:
        """Predict one tick.

        Raises:
            BadImageError: a frame can't be decoded, or differs in size from its camera's other frames.
            EngineError: options or an observation that this engine can't serve, or a fault of the device.
        """
        self._check_open()
        with vllm_faults(self.info.device):
            tick = self._open(observation, options)
            return self._drive(tick, self._reasoner.write([tick])[0])

    def predict_batch(
        self, observations: Sequence[Observation], options: Sequence[SamplingOptions]
    ) -> list[Prediction]:
        """Predict several ticks: all reasoning is written side by side, then each tick's flow runs.

        Raises:
            BadImageError, EngineError: as in `predict`, for all ticks if for one.
        """
        self._check_open()
        with vllm_faults(self.info.device):
            ticks = [self._open(each, its) for each, its in zip(observations, options, strict=True)]
            reasoned = self._reasoner.write(ticks)
            return [self._drive(tick, its) for tick, its in zip(ticks, reasoned, strict=True)]

    def ask(self, observation: Observation, question: str, options: SamplingOptions) -> str:
        """Answer a question about the scene in words.

        Raises:
            BadImageError, EngineError: as in `predict`.
        """
        self._check_open()
        with vllm_faults(self.info.device):
            tick = self._open(observation, replace(options, num_samples=1), question)
            if not options.max_reasoning_tokens:
                return ""
            ends = answer_ends(self._vocabulary)
            writing = Writing(tick.reading, ends, options.max_reasoning_tokens, Draw.argument(options, sample=0))
            self._backbone.call("alpamayo_allow_trajectory_tokens", True)
            try:
                written = self._backbone.write([writing], tick.clock)[0]
            finally:
                self._backbone.call("alpamayo_allow_trajectory_tokens", False)
            return answer_text(self._vocabulary, written.token_ids)

    def close(self) -> None:
        """Free the weights, the cache and all that was kept."""
        if not self._closed:
            self._closed = True
            self._frames.clear()
            self._backbone.close()
            gc.unfreeze()
            del self._backbone, self._reasoner, self._frames
            gc.collect()

    def _open(self, observation: Observation, options: SamplingOptions, question: str | None = None) -> Tick:
        """Check everything, and write the prompt."""
        check_options(options, observation, self.info, self._vocabulary)
        clock = StageClock(self._device)
        frames = [frame for of_camera in observation.frames.values() for frame in of_camera]
        with torch.inference_mode(), room_for("the vision tower"):
            found = self._frames.get(frames, clock)
        check_sizes(observation, [(each.height, each.width) for each in found.frames])
        pictures = [Picture.of(frame, each) for frame, each in zip(frames, found.frames, strict=True)]
        counts = [picture.rows * picture.columns for picture in pictures]
        if question is None:
            prompt = self._prompts.driving(observation, counts)
        else:
            prompt = self._prompts.question(observation, question, counts)
        check_length(len(prompt), options, self.info)
        return Tick(observation, options, clock, tuple(pictures), found.encoded, prompt)

    def _drive(self, tick: Tick, reasoned: Reasoned) -> Prediction:
        """From the reasoning to the path."""
        actions = self._denoise(tick, reasoned.texts)
        with tick.clock.host_stage("trajectory"):
            assembly = Assembly.begin(
                tick.observation, tick.options, reasoned.texts, self._action_space, self._vocabulary
            )
            prediction = assembly.finish(actions)
        timings = Timings(
            stages_ms=tick.clock.stages_ms,
            frames_encoded=tick.encoded,
            frames_reused=len(tick.pictures) - tick.encoded,
            reasoning_tokens=reasoned.written,
        )
        return replace(prediction, timings=timings)

    def _denoise(self, tick: Tick, texts: Sequence[Text]) -> Tensor:
        """Normalised actions [K, N, 2]."""
        options = tick.options
        readings = tick.readings(texts)
        with tick.clock.host_stage("prefix"):
            pinned = self._backbone.pin(readings)
        try:
            prefixes = [_prefix(reading, its) for reading, its in zip(readings, pinned, strict=True)]
            job = FlowJob(
                prefixes=tuple(prefixes[: len(texts)]),
                unguided=tuple(prefixes[len(texts) :]),
                noise=self._noise(options) * options.noise_temperature,
                steps=options.flow_steps or self._config.flow.num_inference_steps,
                weight=1.0 if options.guidance_weight is None else options.guidance_weight,
            )
            with tick.clock.host_stage("expert"):
                actions: Tensor = self._backbone.call("alpamayo_flow", job)
        finally:
            with tick.clock.host_stage("release"):
                self._backbone.release(pinned)
        return actions

    def _noise(self, options: SamplingOptions) -> Tensor:
        """What the flow starts from: [K, N, 2]."""
        return flow_noise(options.seed, range(options.num_samples), self._config.action_space.n_waypoints)

    def _check_open(self) -> None:
        if self._closed:
            raise EngineError("the engine is closed")


def _prefix(reading: Reading, pinned: Pinned) -> KVPrefix:
    if pinned.length != reading.length:
        raise EngineError(f"vLLM has {pinned.length} tokens of a sequence in its cache; {reading.length} were given")
    sizes = [(picture.rows, picture.columns) for picture in reading.pictures]
    delta = rope_positions(reading.prompt, sizes).delta
    return KVPrefix(pinned.block_ids, pinned.length, pinned.length + delta)

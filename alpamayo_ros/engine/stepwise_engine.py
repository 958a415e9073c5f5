"""An engine's logic over a resident model: prompts, reasoning with drafts, guidance, samples and batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any, TypeVar

import torch
from torch import Tensor

from alpamayo_ros.core.types import (
    FRAMES_PER_CAMERA,
    ConfigurationError,
    EngineError,
    Frame,
    Observation,
    Prediction,
    SamplingOptions,
)
from alpamayo_ros.engine.assemble import Assembly
from alpamayo_ros.engine.base import EngineInfo
from alpamayo_ros.engine.dummy import dummy_observation
from alpamayo_ros.engine.frame_features import FrameFeatures
from alpamayo_ros.engine.gpu_jpegs import GpuJpegs
from alpamayo_ros.engine.guidance import read_without_route
from alpamayo_ros.engine.limits import largest_prompt
from alpamayo_ros.engine.options import check_length, check_options
from alpamayo_ros.engine.prompt_reading import PromptReader, Read
from alpamayo_ros.engine.reasoning import Answerer, Reasoner, Text, answer_text, write
from alpamayo_ros.engine.resident_model import ResidentModel
from alpamayo_ros.engine.sampling import DrawTokens, flow_noise
from alpamayo_ros.engine.stage_clock import StageClock
from alpamayo_ros.engine.tick_prompt import TickPrompts, check_sizes
from alpamayo_ros.engine.ticks import MOST_TICKS, Reasoned, Tick, group, is_guided, rows_of, timings_of
from alpamayo_ros.model.backbone import ImageFeatures, PromptBatch, batch_prompts
from alpamayo_ros.model.prompt import Prompt
from alpamayo_ros.model.resize import Resize, resize
from alpamayo_ros.model.to_device import to_device

Result = TypeVar("Result")
WARM_UP_SAMPLES = 6  # the node's default; more take their memory when they are first asked for


class StepwiseEngine:
    """One resident model. See the Engine protocol in base.py.

    One prefill serves all samples: with shared reasoning they share the whole prefix, with independent reasoning the
    cache branches after the prompt. The unguided prompt of guidance is the guided one without its route, so it shares
    everything before the route.
    """

    prepares_alongside = True  # the vision tower shares nothing with the rest that either writes
    most_ticks = MOST_TICKS  # that a batch may have
    most_rows: int | None = None  # texts that a batch of several ticks may have; None: as many as a tick has samples

    def __init__(
        self,
        kind: str,
        model: ResidentModel,
        name: str,
        max_samples: int,
        max_cameras: int,
        draw: DrawTokens,
        resize: Resize = resize,
        jpegs: GpuJpegs | None = None,
    ) -> None:
        self.info = EngineInfo(
            engine=kind,
            model=name,
            model_type=model.config.model_type,
            device=str(model.device),
            dtype=str(model.dtype).removeprefix("torch."),
            parameters=model.parameters,
            trained=model.config.trained,
            max_samples=max_samples,
            max_cameras=max_cameras,
            max_tokens=model.max_tokens,
            checkpoint_hash=model.checkpoint_hash,
            prompt_tokens=largest_prompt(max_cameras, model.config.images.max_tokens),
            image_tokens=model.config.images.min_tokens,
        )
        self._model = model
        self._draw = draw
        self._prompts = TickPrompts(model.config, model.vocabulary)
        self._read = PromptReader(model, self._prompts, self.info)
        # a tick's frames twice over: those in use, and those that come until they are
        capacity = 2 * FRAMES_PER_CAMERA * max_cameras
        self._frames = FrameFeatures(model.backbone, model.config.images, model.device, capacity, resize, jpegs)
        self._closed = False

    def warm_up(self) -> None:
        """Run one tick of the largest prompt, and forget its frames."""
        samples = min(WARM_UP_SAMPLES, self.info.max_samples)
        options = SamplingOptions(num_samples=samples, max_reasoning_tokens=2)
        self.predict(dummy_observation(self.info.max_cameras), options)
        self._frames.clear()

    @torch.inference_mode()
    def prepare(self, frames: Sequence[Frame]) -> None:
        """Decode and encode frames early, also beside a `predict`, which names what can't be decoded."""
        self._check_open()
        self._frames.prepare(frames)

    def predict(self, observation: Observation, options: SamplingOptions) -> Prediction:
        """Predict one tick.

        Raises:
            BadImageError: a frame can't be decoded, or differs in size from its camera's other frames.
            EngineError: options or an observation that this engine can't serve, or a fault of the device.
        """
        return self.predict_batch([observation], [options])[0]

    def predict_batch(
        self, observations: Sequence[Observation], options: Sequence[SamplingOptions]
    ) -> list[Prediction]:
        """Predict several ticks; those whose options differ by the seed alone are read and written side by side.

        Side by side drafts aren't used, a deadline is that of all, and each tick is said to have taken its share.

        Raises:
            BadImageError, EngineError: as in `predict`, for all ticks if for one.
        """
        self._check_open()
        pairs = list(zip(observations, options, strict=True))
        for observation, its in pairs:
            check_options(its, observation, self.info, self._model.vocabulary)
        predictions: dict[int, Prediction] = {}
        most_rows = min(self.most_rows or self.info.max_samples, self.info.max_samples)
        for places in group(options, most_rows, self.most_ticks):
            done = self._guarded(self._predict, [pairs[place] for place in places])
            predictions.update(zip(places, done, strict=True))
        return [predictions[place] for place in range(len(pairs))]

    def ask(self, observation: Observation, question: str, options: SamplingOptions) -> str:
        """Answer a question about the scene in words.

        Raises:
            BadImageError, EngineError: as in `predict`.
        """
        self._check_open()
        options = replace(options, num_samples=1)
        check_options(options, observation, self.info, self._model.vocabulary)
        return self._guarded(self._ask, observation, options, question)

    def first_logits(self, observation: Observation, options: SamplingOptions) -> Tensor:
        """What a tick's reasoning begins with, for comparisons: the logits [V] float32 after its prompt, on the CPU.

        Raises:
            EngineError: the model failed, or the engine is closed.
        """
        self._check_open()
        return self._guarded(self._first_logits, observation, options)

    def close(self) -> None:
        """Free the weights and all that was kept."""
        if not self._closed:
            self._closed = True
            self._frames.clear()
            device = self._model.device
            del self._model, self._frames, self._read
            if device.type == "cuda":
                torch.cuda.empty_cache()

    @torch.inference_mode()
    def _first_logits(self, observation: Observation, options: SamplingOptions) -> Tensor:
        model = self._model
        tick = self._tick(observation, options, StageClock(model.device))
        batch = batch_prompts([tick.prompt], [tick.features], model.vocabulary.pad, model.device)
        logits: Tensor = model.backbone.read(batch, model.new_cache(batch.length))[0, -1]
        return logits.cpu()

    @torch.inference_mode()
    def _predict(self, pairs: Sequence[tuple[Observation, SamplingOptions]]) -> list[Prediction]:
        """Predict ticks whose options are alike."""
        clock = StageClock(self._model.device)
        with ExitStack() as encoding:
            ticks = [self._tick(*pair, clock) for pair in pairs[:-1]]
            ticks.append(encoding.enter_context(self._coming_tick(*pairs[-1], clock)))
            prompts = self._read(ticks, clock)  # queued behind the last tick's encoding
        noise = torch.cat([self._noise(tick.options) for tick in ticks])
        noise = to_device(noise * ticks[0].options.noise_temperature, self._model.device)
        reasoned = self._reason(ticks, prompts, clock)
        rows = len(reasoned.texts) // len(ticks)
        texts = [reasoned.texts[start : start + rows] for start in range(0, len(reasoned.texts), rows)]
        with clock.stage("expert"):
            denoised = self._denoise(ticks, reasoned, noise)
            assemblies = [  # while the device is at work
                Assembly.begin(tick.observation, tick.options, own, self._model.action_space, self._model.vocabulary)
                for tick, own in zip(ticks, texts, strict=True)
            ]
            actions = denoised.cpu()
        with clock.host_stage("trajectory"):
            predictions = [
                assembly.finish(its) for assembly, its in zip(assemblies, actions.chunk(len(ticks)), strict=True)
            ]
        share = {name: ms / len(ticks) for name, ms in clock.stages_ms.items()}
        accepted = reasoned.drafts_accepted
        return [
            replace(prediction, drafts_accepted=accepted, timings=timings_of(tick, own, accepted, share))
            for prediction, tick, own in zip(predictions, ticks, texts, strict=True)
        ]

    def _tick(self, observation: Observation, options: SamplingOptions, clock: StageClock) -> Tick:
        with self._coming_tick(observation, options, clock) as tick:
            return tick

    @contextmanager
    def _coming_tick(self, observation: Observation, options: SamplingOptions, clock: StageClock) -> Iterator[Tick]:
        """A tick whose frames the device may still be encoding, for work that is queued behind that."""
        with self._encoding(observation, clock) as (features, encoded):
            prompt = self._prompts.driving(observation, [len(each.embeddings) for each in features])
            check_length(len(prompt), options, self.info)
            yield Tick(observation, options, features, encoded, prompt)

    @torch.inference_mode()
    def _ask(self, observation: Observation, options: SamplingOptions, question: str) -> str:
        clock = StageClock(self._model.device)
        with self._encoding(observation, clock) as (features, _):
            pass
        vocabulary = self._model.vocabulary
        counts = [len(each.embeddings) for each in features]
        prompt = self._prompts.question(observation, question, counts)
        check_length(len(prompt), options, self.info)
        batch = batch_prompts([prompt], [features], vocabulary.pad, self._model.device)
        cache = self._model.new_cache(batch.length + options.max_reasoning_tokens)
        answerer = Answerer(vocabulary, options, self._draw)
        write(self._model.backbone, batch, cache, self._model.backbone.read(batch, cache), answerer)
        return answer_text(vocabulary, answerer.token_ids)

    @contextmanager
    def _encoding(self, observation: Observation, clock: StageClock) -> Iterator[tuple[list[ImageFeatures], int]]:
        """All frames' features, and how many of them are being encoded for this; see `FrameFeatures.use`."""
        with self._frames.use(_frames_of(observation), clock) as found:
            check_sizes(observation, [(frame.height, frame.width) for frame in found.frames])
            yield [frame.features for frame in found.frames], found.encoded

    def _reason(self, ticks: Sequence[Tick], read: Read, clock: StageClock) -> Reasoned:
        """Write the reasoning after prompts."""
        batch, cache, logits, drafts = read.batch, read.cache, read.logits, read.drafts
        vocabulary, options = self._model.vocabulary, ticks[0].options
        if read.fixed:
            return Reasoned(batch, cache, read.fixed, [batch.length] * len(read.fixed))
        texts = [Text(sample, seed=tick.options.seed) for tick in ticks for sample in range(rows_of(options))]
        with clock.stage("reasoning"):
            reasoner = Reasoner(vocabulary, options, texts, self._draw)
            if drafts:
                reasoner.foresee(logits[0], drafts)
            accepted, unread = self._write(batch, cache, logits, reasoner, drafts, options)
        ends = [batch.length - len(drafts) + len(text.token_ids) for text in texts]
        return Reasoned(batch, cache, texts, ends, accepted, unread)

    def _denoise(self, ticks: Sequence[Tick], reasoned: Reasoned, noise: Tensor) -> Tensor:
        """Normalised actions [ticks K, N, 2]."""
        model, options = self._model, ticks[0].options
        samples = options.num_samples // rows_of(options)
        batch, weight = reasoned.batch, 1.0 if options.guidance_weight is None else options.guidance_weight
        without_route = self._without_route(ticks[0], reasoned, samples) if is_guided(options) else None
        prefix = reasoned.cache.prefix(reasoned.ends, batch.padding, batch.rope_deltas)
        steps = options.flow_steps or model.config.flow.num_inference_steps
        return model.denoise(prefix, without_route, weight, samples, noise, steps)

    def _noise(self, options: SamplingOptions) -> Tensor:
        """What the flow starts from: [K, N, 2]."""
        return flow_noise(options.seed, range(options.num_samples), self._model.config.action_space.n_waypoints)

    def _without_route(self, tick: Tick, reasoned: Reasoned, samples: int) -> Any:
        """What the expert reads of a tick that doesn't know the route."""
        prompt, batch = tick.prompt, reasoned.batch
        cache = self._read_without_route(prompt, reasoned, [text.token_ids for text in reasoned.texts], samples)
        shorter = [end - len(prompt.route) for end in reasoned.ends]
        return cache.prefix(shorter, batch.padding, batch.rope_deltas)

    def _read_without_route(
        self, prompt: Prompt, reasoned: Reasoned, written: Sequence[Sequence[int]], samples: int
    ) -> Any:
        """See `read_without_route`. An engine whose `_write` leaves tokens unread overrides it."""
        return read_without_route(self._model, prompt, reasoned.batch, reasoned.cache, written, samples)

    def _write(
        self,
        batch: PromptBatch,
        cache: Any,
        logits: Tensor,
        reasoner: Reasoner,
        drafts: Sequence[int],
        options: SamplingOptions,
    ) -> tuple[int, Tensor | None]:
        """Write the reasoning; see `write`. An engine that has a faster way overrides it.

        Returns:
            How many drafts stood, and what of the end of a guided tick's one text isn't read yet: [1, n].
        """
        return write(self._model.backbone, batch, cache, logits, reasoner, drafts), None

    def _guarded(self, work: Callable[..., Result], *arguments: Any) -> Result:
        try:
            return work(*arguments)
        except ConfigurationError as error:
            raise EngineError(str(error)) from error
        except RuntimeError as error:  # torch: out of memory, a lost device
            raise EngineError(f"the model failed on {self.info.device}: {error}") from error

    def _check_open(self) -> None:
        if self._closed:
            raise EngineError("the engine is closed")


def _frames_of(observation: Observation) -> list[Frame]:
    return [frame for frames in observation.frames.values() for frame in frames]

"""Checks end_to_end_<checkpoint>.npz in the vLLM engine: each row alone, its recorded tokens given as prompt."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from alpamayo_ros.core.types import SamplingOptions
from alpamayo_ros.engine.base import LoadOptions
from alpamayo_ros.engine.flow.paged_cache import KVPrefix
from alpamayo_ros.engine.flow.shape import FlowShape
from alpamayo_ros.engine.stage_clock import StageClock
from alpamayo_ros.engine.vllm.backbone import Reading, Writing
from alpamayo_ros.engine.vllm.engine import VllmEngine
from alpamayo_ros.engine.vllm.jobs import FlowJob
from alpamayo_ros.engine.vllm.versions import check_vllm
from alpamayo_ros.model.config import ModelConfig
from alpamayo_ros.model.flow_matching import Velocity, integrate
from alpamayo_ros.model.rope_positions import rope_positions
from alpamayo_ros.tools.parity.case import (
    Case,
    CaseResult,
    Checker,
    Machine,
    close,
    equal,
    not_applicable,
    not_supported,
)
from alpamayo_ros.tools.parity.end_to_end import STATE_TOLERANCE, as_stored
from alpamayo_ros.tools.parity.predictions import (
    ROTATION_TOLERANCE,
    XYZ_TOLERANCE,
    check_predictions,
    recorded_observation,
)
from alpamayo_ros.tools.parity.recipes import recipe_images
from alpamayo_ros.tools.parity.tolerances import TOLERANCES

Arrays = Mapping[str, np.ndarray]

HIDDEN_TOLERANCE = TOLERANCES[torch.float32].hidden
VELOCITY_TOLERANCE = TOLERANCES[torch.float32].velocity

INSIDE = "vLLM counts them inside; keys are rotated by them, and are compared"
PADDING = "vLLM has no padding: rows of different lengths stand in blocks of their own"
JUNK = "vLLM reads nothing behind a row's end: columns that NVIDIA's code fills until the longest row is done"


class OneEngine:
    """The engine of the case at hand: a process can have one at a time."""

    _open: VllmEngine | None = None  # of the whole process
    _is: tuple[object, ...] = ()  # what it was opened for

    @classmethod
    def get(cls, checkpoint: Path, tokenizer: Path, bf16_constants: bool, limits: Mapping[str, int]) -> VllmEngine:
        """An engine with these constants and pixel limits."""
        wanted = (checkpoint, bf16_constants, *limits.values())
        if cls._open is None or cls._is != wanted:
            if cls._open is not None:
                cls._open.close()
            check_vllm()
            config = ModelConfig.load(checkpoint, tokenizer)
            images = replace(config.images, min_pixels=limits["min_pixels"], max_pixels=limits["max_pixels"])
            cls._open = VllmEngine.from_config(
                replace(config, images=images),
                str(checkpoint),
                LoadOptions(dtype="float32", max_samples=4, max_cameras=6, bf16_constants=bf16_constants),
            )
            cls._is = wanted
        return cls._open


def _cases(path: Path, machine: Machine) -> Iterator[Case]:
    settings = json.loads(path.with_suffix(".json").read_text())
    checkpoint = path.parent / settings["model"]
    for name, case in settings["cases"].items():
        yield Case(f"{path.stem}/{name}", partial(_check, f"{path.stem}/{name}", path, name, case, checkpoint))


def _check(name: str, path: Path, key: str, settings: Mapping[str, Any], checkpoint: Path) -> Iterator[CaseResult]:
    if settings.get("autocast_bf16"):
        yield not_supported(name, "it was recorded under autocast in bfloat16")
        return
    with np.load(path) as file:
        arrays = {k.removeprefix(f"{key}/"): file[k] for k in file.files if k.startswith(f"{key}/")}
    limits = {limit: settings[limit] for limit in ("min_pixels", "max_pixels")}
    bf16_constants = settings["constants"] == "bf16-rounded"
    engine = OneEngine.get(checkpoint, path.parent / "tokenizer", bf16_constants, limits)
    with torch.inference_mode():
        yield from _Run(name, arrays, settings, engine).results()


@dataclass(frozen=True, eq=False)
class _Row:
    """One row of a recording, as the engine reads it."""

    index: int
    prompt_index: int
    reading: Reading  # of the prompt
    written: tuple[int, ...]  # up to <|traj_future_start|>, or everything
    padding: int  # columns before it in the recording
    closed: bool  # it wrote <|traj_future_start|>; otherwise the token written last was never read

    @property
    def read(self) -> tuple[int, ...]:
        """The written tokens that are in the cache."""
        return self.written if self.closed else self.written[:-1]

    def reading_of(self, *, route: bool) -> Reading:
        """Prompt and written tokens, with or without the route."""
        prompt = self.reading.prompt if route else self.reading.prompt.without_route()
        return Reading(prompt, self.reading.pictures, self.read)

    def prefix(self, pinned: Any, reading: Reading) -> KVPrefix:
        """NVIDIA's positions go on one behind the last written token, whether that was read or not."""
        sizes = [(picture.rows, picture.columns) for picture in reading.pictures]
        first = len(reading.prompt) + len(self.written) + rope_positions(reading.prompt, sizes).delta
        return KVPrefix(pinned.block_ids, pinned.length, first)


@dataclass(frozen=True, eq=False)
class _Run:
    """One case, run again."""

    name: str
    arrays: Arrays
    settings: Mapping[str, Any]
    engine: VllmEngine

    def results(self) -> Iterator[CaseResult]:
        """Every comparison, row by row."""
        rows = self._rows()
        yield not_applicable(f"{self.name}/prompt_position_ids", INSIDE)
        if any(row.padding for row in rows):
            yield not_applicable(f"{self.name}/attention_mask", PADDING)
        for row in rows:
            yield from self._prompt_arrays(row)
            yield from self._logits(row)
            if self.settings["forced_plan"] is None:
                yield from self._greedy_tokens(row)
            pinned = self.engine._backbone.pin([row.reading_of(route=True)])
            try:
                if row.index == 0:
                    yield from self._image_arrays(row)
                yield from self._kv_arrays("kv", row, row.prefix(pinned[0], row.reading_of(route=True)))
            finally:
                self.engine._backbone.release(pinned)
        if "x0_noise" in self.arrays:
            for row in rows:
                yield from self._flow(row)
            yield from check_predictions(
                self.name,
                self.arrays,
                self.settings,
                self.engine,
                self.engine._vocabulary,
                self._frames,
                [row.prompt_index for row in rows],
            )

    @cached_property
    def _frames(self) -> np.ndarray:
        return recipe_images(self.settings)

    def _rows(self) -> list[_Row]:
        samples = self.settings["num_traj_samples"]
        sequences = self.arrays["sequences_raw"]
        length = self.arrays["prompt_ids"].shape[1]
        vocabulary = self.engine._vocabulary
        rows: list[_Row] = []
        readings: dict[int, Reading] = {}
        for index, sequence in enumerate(sequences.tolist()):
            prompt = index // samples
            if prompt not in readings:
                readings[prompt] = self._reading(prompt)
            tokens = sequence[length:]
            closed = vocabulary.future_start in tokens and self.settings["question"] is None
            end = tokens.index(vocabulary.future_start) + 1 if closed else len(tokens)
            padding = length - len(readings[prompt].prompt)
            rows.append(_Row(index, prompt, readings[prompt], tuple(tokens[:end]), padding, closed))
        return rows

    def _reading(self, prompt: int) -> Reading:
        arrays = self.arrays
        if "hist_xyz" not in arrays:  # a question has none
            still = {"hist_xyz": np.zeros((1, 1, 16, 3)), "hist_rot": np.tile(np.eye(3), (1, 1, 16, 1, 1))}
            arrays = {**arrays, **still}
        observation = recorded_observation(arrays, self.settings, self._frames, prompt)
        options = SamplingOptions(max_reasoning_tokens=self.settings["max_new_tokens"])
        tick = self.engine._open(observation, options, self.settings["question"])
        return Reading(tick.prompt, tick.pictures)

    def _prompt_arrays(self, row: _Row) -> Iterator[CaseResult]:
        key = "fused_prompt_ids" if "fused_prompt_ids" in self.arrays else "prompt_ids"
        recorded = self.arrays[key][row.prompt_index][row.padding :]
        yield equal(f"{self.name}/{key}/{row.index}", np.array(row.reading.prompt.token_ids), recorded)

    def _image_arrays(self, row: _Row) -> Iterator[CaseResult]:
        names = [picture.name for picture in row.reading.pictures]
        encoded = torch.cat(
            self.engine._backbone.inspect(
                lambda worker: [worker.model_runner.encoder_cache[name].float().cpu() for name in names]
            )
        )
        size = self.engine._config.backbone.text.hidden_size
        embeddings, *deepstack = encoded.split(size, -1)
        for key, values in (("image_embeds", embeddings), ("deepstack_embeds", torch.stack(deepstack))):
            if key in self.arrays:
                recorded = self.arrays[key]
                yield close(f"{self.name}/{key}", as_stored(values, recorded), recorded, HIDDEN_TOLERANCE)

    def _logits(self, row: _Row) -> Iterator[CaseResult]:
        """Before the mask of `<i*>`, as they were recorded."""
        if "logits_top_ids" not in self.arrays:
            return
        steps = min(len(row.written), self.arrays["logits_top_ids"].shape[1])
        logits = torch.stack([self._next_logits(row, row.written[:step]) for step in range(steps)])
        recorded = self.arrays["logits_top_values"][row.index][:steps]
        ids = torch.from_numpy(self.arrays["logits_top_ids"][row.index][:steps]).long()
        yield close(f"{self.name}/logits_top_ids/{row.index}", logits.gather(-1, ids), recorded, HIDDEN_TOLERANCE)
        if "logits_step0_every97" in self.arrays:
            first = self.arrays["logits_step0_every97"][row.index]
            yield close(f"{self.name}/logits_step0_every97/{row.index}", logits[0, ::97], first, HIDDEN_TOLERANCE)
        if steps < self.arrays["logits_top_ids"].shape[1]:
            yield not_applicable(f"{self.name}/logits_top_ids/{row.index}/{steps}..", JUNK)

    def _next_logits(self, row: _Row, before: tuple[int, ...]) -> Tensor:
        """[V] float32: what comes after the prompt and these tokens."""
        seen: list[Tensor] = []
        backbone = self.engine._backbone
        hook: Callable[[Any], Any] = lambda worker: _note_logits(worker.model_runner.get_model(), seen)  # noqa: E731
        backbone.call("alpamayo_allow_trajectory_tokens", True)
        try:
            backbone.inspect(hook)
            reading = replace(row.reading, further=before)
            backbone.write([Writing(reading, (), 1)], StageClock(torch.device("cpu")))
        finally:
            backbone.inspect(lambda worker: worker.model_runner.get_model().__dict__.pop("compute_logits", None))
            backbone.call("alpamayo_allow_trajectory_tokens", False)
        return seen[-1]

    def _greedy_tokens(self, row: _Row) -> Iterator[CaseResult]:
        """What vLLM itself writes at temperature 0."""
        asks = self.settings["question"] is not None
        self.engine._backbone.call("alpamayo_allow_trajectory_tokens", asks)
        try:
            writing = Writing(row.reading, (), len(row.written))
            written = self.engine._backbone.write([writing], StageClock(torch.device("cpu")))[0]
        finally:
            self.engine._backbone.call("alpamayo_allow_trajectory_tokens", False)
        yield equal(f"{self.name}/sequences_raw/{row.index}", np.array(written.token_ids), np.array(row.written))

    def _kv_arrays(self, kind: str, row: _Row, prefix: KVPrefix) -> Iterator[CaseResult]:
        key_of = lambda part, index: f"{kind}_{part}_layer{index}"  # noqa: E731
        total = self.settings["kv_len" if kind == "kv" else "kv_len_unguided"]
        layers = self.engine._backbone.inspect(lambda worker: worker._alpamayo.layers)
        for index, layer in enumerate(layers):
            for part, cache in (("key", layer.keys), ("value", layer.values)):
                if key_of(part, index) not in self.arrays:
                    continue
                recorded = torch.from_numpy(self.arrays[key_of(part, index)][row.index])  # [heads, columns, dim]
                first = total - recorded.shape[1]  # the column of the recording that comes first
                ours = cache[list(prefix.block_ids)].flatten(0, 1)[: prefix.length].transpose(0, 1).cpu()
                ours = ours[:, max(first - row.padding, 0) :]
                theirs = recorded[:, max(row.padding - first, 0) :][:, : ours.shape[1]]
                yield close(f"{self.name}/{key_of(part, index)}/{row.index}", ours, theirs, HIDDEN_TOLERANCE)
        if row.padding + prefix.length < total:
            columns = f"{row.padding + prefix.length}..{total}"
            yield not_applicable(f"{self.name}/{kind}/{row.index}/columns {columns}", JUNK)

    def _flow(self, row: _Row) -> Iterator[CaseResult]:
        alpha = self.settings["guidance_alpha"]
        kinds = ["guided"] if alpha is None else ["guided", "unguided"]
        readings = [row.reading_of(route=kind == "guided") for kind in kinds]
        pinned = self.engine._backbone.pin(readings)
        try:
            prefixes = [row.prefix(its, reading) for its, reading in zip(pinned, readings, strict=True)]
            if alpha is not None:
                yield from self._kv_arrays("unguided_kv", row, prefixes[1])
            yield from self._flow_arrays(row, dict(zip(kinds, prefixes, strict=True)), alpha)
        finally:
            self.engine._backbone.release(pinned)

    def _flow_arrays(self, row: _Row, prefixes: Mapping[str, KVPrefix], alpha: float | None) -> Iterator[CaseResult]:
        name, index = self.name, row.index
        steps = len(self.arrays["velocities_guided"])
        expert = self.engine._backbone.inspect(lambda worker: worker._alpamayo)
        states, times = (torch.from_numpy(self.arrays[key]) for key in ("states", "times"))
        for kind, prefix in prefixes.items():
            positions = prefix.first_position + torch.arange(states.shape[2])
            recorded = self.arrays[f"expert_position_ids_{kind}"][:, index]
            yield equal(f"{name}/expert_position_ids_{kind}/{index}", positions.expand(3, -1), recorded)
            field = expert.flows.runner(FlowShape(1, 1, False, steps)).velocity([prefix])
            of_step0: list[tuple[Tensor, Tensor]] = []
            hook = expert.network.expert.register_forward_hook(
                lambda _module, given, hidden, of_step0=of_step0: of_step0.append((given[0], hidden))
            )
            ours = [_at(field, states[step, index], times[step], expert) for step in range(steps)]
            hook.remove()
            for key, values in zip(("embeds", "last_hidden"), of_step0[0], strict=True):
                recorded = self.arrays[f"expert_step0_{key}_{kind}"][index]
                yield close(f"{name}/expert_step0_{key}_{kind}/{index}", values[0], recorded, VELOCITY_TOLERANCE)
            recorded = self.arrays[f"velocities_{kind}"][:, index]
            yield close(f"{name}/velocities_{kind}/{index}", torch.stack(ours), recorded, VELOCITY_TOLERANCE)
        noise = torch.from_numpy(self.arrays["x0_noise"][index : index + 1])
        noise = noise * self.settings["diffusion_kwargs"].get("temperature", 1.0)
        weight = 1.0 if alpha is None else alpha
        both = list(prefixes.values())
        runner = expert.flows.runner(FlowShape(1, 1, alpha is not None, steps))
        device = expert.layers[0].keys.device
        flow = integrate(runner.velocity(both, weight), noise.to(device), steps)
        yield close(f"{name}/states/{index}", flow.states[:, 0], self.arrays["states"][:, index], STATE_TOLERANCE)
        job = FlowJob((both[0],), tuple(both[1:]), noise, steps, weight)
        actions: Tensor = self.engine._backbone.call("alpamayo_flow", job)
        yield close(f"{name}/action/{index}", actions[0], self.arrays["action"][index], STATE_TOLERANCE)
        yield from self._path_arrays(row, actions)

    def _path_arrays(self, row: _Row, actions: Tensor) -> Iterator[CaseResult]:
        history = [torch.from_numpy(self.arrays[key][row.prompt_index]) for key in ("hist_xyz", "hist_rot")]
        path = self.engine._action_space.actions_to_trajectory(actions, *history)
        place = (row.prompt_index, 0, row.index % self.settings["num_traj_samples"])
        for key, values, tolerance in (
            ("pred_xyz", path.xyz[0], XYZ_TOLERANCE),
            ("pred_rot", path.rotation[0], ROTATION_TOLERANCE),
        ):
            yield close(f"{self.name}/{key}/{row.index}", values, self.arrays[key][place], tolerance)


def _note_logits(model: Any, seen: list[Tensor]) -> None:
    compute = type(model).compute_logits

    def noting(hidden_states: Tensor) -> Tensor:
        logits: Tensor = compute(model, hidden_states)
        seen.append(logits[-1].float().cpu())
        return logits

    model.compute_logits = noting


def _at(field: Velocity, state: Tensor, time: Tensor, expert: Any) -> Tensor:
    device = expert.layers[0].keys.device
    return field(state[None].to(device), time.to(device).expand(1, 1, 1))[0].cpu()


VLLM_END_TO_END = Checker("end_to_end_*.npz", _cases)

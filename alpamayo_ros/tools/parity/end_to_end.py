"""Checks end_to_end_<checkpoint>.npz: from pixels to paths, every recorded array, tokens and noise as recorded."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from alpamayo_ros.engine.guidance import read_without_route
from alpamayo_ros.engine.reasoning import write
from alpamayo_ros.engine.stepwise_engine import StepwiseEngine
from alpamayo_ros.engine.transformers_engine import TransformersEngine
from alpamayo_ros.model.alpamayo import AlpamayoModel
from alpamayo_ros.model.backbone import ImageFeatures, PromptBatch, batch_prompts
from alpamayo_ros.model.config import ModelConfig
from alpamayo_ros.model.flow_matching import Velocity, integrate, mix_velocities
from alpamayo_ros.model.history_tokens import HistoryTokenizer
from alpamayo_ros.model.images import ImageConfig, preprocess
from alpamayo_ros.model.prompt import Prompt, build_driving_prompt, build_question_prompt
from alpamayo_ros.model.vocabulary import Vocabulary
from alpamayo_ros.tools.parity.case import Case, CaseResult, Checker, Machine, close, equal, not_supported, same_text
from alpamayo_ros.tools.parity.predictions import ROTATION_TOLERANCE, XYZ_TOLERANCE, check_predictions
from alpamayo_ros.tools.parity.recipes import recipe_images
from alpamayo_ros.tools.parity.recorded_writer import RecordedWriter
from alpamayo_ros.tools.parity.tolerances import TOLERANCES, Tolerances

STATE_TOLERANCE = 2e-3  # free-running
SPEED_TOLERANCE = 1e-4  # m/s, as in action_space.npz
PIXEL_TOLERANCE = 1e-6
CONSTANT_TOLERANCE = 1e-6  # relative

Arrays = Mapping[str, np.ndarray]
ModelWith = Callable[[bool], Any]  # bf16_constants -> model


def cases(path: Path, machine: Machine, kind: type[EndToEndRun]) -> Iterator[Case]:
    """The cases of a file, each to be run by `kind`."""
    settings = json.loads(path.with_suffix(".json").read_text())

    @cache
    def model_with(bf16_constants: bool) -> Any:
        config = ModelConfig.load(path.parent / settings["model"], path.parent / "tokenizer")
        return kind.model_of(AlpamayoModel.load(config, machine.device, machine.dtype, bf16_constants))

    with np.load(path) as file:
        keys = file.files
    for name, case in settings["cases"].items():
        wanted = [key for key in keys if key.startswith(f"{name}/")]
        yield Case(
            f"{path.stem}/{name}", partial(_check, f"{path.stem}/{name}", path, wanted, case, model_with, machine, kind)
        )


def _check(
    name: str,
    path: Path,
    keys: Sequence[str],
    settings: Mapping[str, Any],
    model_with: ModelWith,
    machine: Machine,
    kind: type[EndToEndRun],
) -> Iterator[CaseResult]:
    if settings.get("autocast_bf16"):
        yield not_supported(name, "it was recorded under autocast in bfloat16")
        return
    with np.load(path) as file:
        arrays = {key.partition("/")[2]: file[key] for key in keys}
    model = model_with(settings["constants"] == "bf16-rounded")
    tolerances = TOLERANCES[machine.dtype]
    if tolerances.teacher_forced:
        settings = {**settings, "forced_plan": _written(arrays)}
    with torch.inference_mode():
        yield from kind(name, arrays, settings, model, machine, tolerances).results()


def _written(arrays: Arrays) -> list[list[int]]:
    """The tokens that each row of a recording wrote."""
    written: list[list[int]] = arrays["sequences_raw"][:, arrays["prompt_ids"].shape[1] :].tolist()
    return written


@dataclass(frozen=True, eq=False)
class EndToEndRun:
    """One case, run again by the transformers engine's model."""

    name: str
    arrays: Arrays
    settings: Mapping[str, Any]
    model: Any  # a ResidentModel whose single steps can be looked at: `network`, `context` and `velocity`
    machine: Machine
    tolerances: Tolerances

    @staticmethod
    def model_of(loaded: AlpamayoModel) -> Any:
        """What the cases run."""
        return loaded

    def engine_of(self, model: Any) -> StepwiseEngine:
        """The engine on a model."""
        return TransformersEngine(model, self.name, max_samples=1, max_cameras=7)

    def results(self) -> Iterator[CaseResult]:
        """Every comparison, in the order of the computation."""
        yield from self._constants()
        yield from self._inputs()
        features = self._features()
        yield from self._image_features(features)
        prompts = self._prompts(features)
        batch = batch_prompts(prompts, [features] * len(prompts), self.vocabulary.pad, self.model.device)
        yield from self._prompt_arrays(prompts, batch)

        samples, generated = self.settings["num_traj_samples"], self.settings["generated"]
        rows = [row for row in range(len(prompts)) for _ in range(samples)]
        prompt_cache = self.model.new_cache(batch.length)
        logits = self.model.backbone.read(batch, prompt_cache)
        tokens_and_room = batch.length + generated + self.model.room(1)
        kv = prompt_cache.branch(rows, batch.length, tokens_and_room)
        batch = batch.take(rows)
        writer = RecordedWriter(self.settings, self.vocabulary, len(rows))
        write(self.model.backbone, batch, kv, logits[rows], writer)
        yield from self._reasoning_arrays(batch, rows, prompts, writer, kv)
        if "x0_noise" in self.arrays:
            yield from self._flow_arrays(batch, rows, prompts, writer, kv)
        if "x0_noise" in self.arrays and not self.tolerances.teacher_forced:
            config = replace(self.model.config, images=self._image_config)
            model = replace(self.model, config=config)
            engine = self.engine_of(model)
            yield from check_predictions(
                self.name, self.arrays, self.settings, engine, self.vocabulary, self.frames, rows
            )

    @property
    def vocabulary(self) -> Vocabulary:
        """The model's."""
        return self.model.vocabulary

    @cached_property
    def frames(self) -> np.ndarray:
        """uint8 [images, 3, H, W]."""
        return recipe_images(self.settings)

    def _constants(self) -> Iterator[CaseResult]:
        config = self.model.action_space.config
        used = [config.accel_mean, config.accel_std, config.curvature_mean, config.curvature_std]
        for key, values in (
            ("constants_used", torch.tensor(used)),
            ("freqs_used", self.model.network.action_in_proj.frequencies.cpu()),
        ):
            if key in self.arrays:
                recorded = torch.from_numpy(self.arrays[key])
                if self.settings["constants"] == "bf16-rounded":
                    # Alpamayo 1.5's frequencies are recorded as they were before the rounding; that the run had the
                    # rounded ones shows in expert_step0_embeds, which differ by 0.02 otherwise.
                    recorded = recorded.bfloat16().float()
                yield close(f"{self.name}/{key}", values / recorded, np.ones(len(values)), CONSTANT_TOLERANCE)

    def _inputs(self) -> Iterator[CaseResult]:
        if "frames_corner" in self.arrays:
            yield equal(f"{self.name}/frames_corner", self.frames[:, :, :4, :6], self.arrays["frames_corner"])
        if "frames_sha256" in self.settings:
            digest = hashlib.sha256(self.frames.tobytes()).hexdigest()
            yield same_text(f"{self.name}/frames_sha256", digest, self.settings["frames_sha256"])

    @cached_property
    def patches(self) -> Any:
        """What the vision tower is given."""
        pictures = [frame.transpose(1, 2, 0) for frame in self.frames]
        return preprocess(pictures, self._image_config, self.model.device)

    @property
    def _image_config(self) -> ImageConfig:
        limits = {name: self.settings[name] for name in ("min_pixels", "max_pixels")}
        return replace(self.model.config.images, **limits)

    def _features(self) -> list[ImageFeatures]:
        return self.model.backbone.encode(self.patches)

    def _image_features(self, features: Sequence[ImageFeatures]) -> Iterator[CaseResult]:
        repeats = len(self.arrays["image_grid_thw"]) // len(features)
        grids = self.patches.grid_thw.repeat(repeats, 1)
        yield equal(f"{self.name}/image_grid_thw", grids, self.arrays["image_grid_thw"])
        if "pixel_values_rows_0_1_last" in self.arrays:
            rows = self.patches.pixel_values[[0, 1, -1]]
            recorded = self.arrays["pixel_values_rows_0_1_last"]
            yield close(f"{self.name}/pixel_values_rows_0_1_last", rows, recorded, PIXEL_TOLERANCE)
        embeddings = torch.cat([image.embeddings for image in features])
        deepstack = torch.cat([image.deepstack for image in features], 1)
        for key, values in (("image_embeds", embeddings), ("deepstack_embeds", deepstack)):
            if key in self.arrays:
                recorded = self.arrays[key]
                yield close(f"{self.name}/{key}", as_stored(values, recorded), recorded, self.tolerances.hidden)

    def _prompts(self, features: Sequence[ImageFeatures]) -> list[Prompt]:
        """One per row of the batch, with the history's placeholders."""
        counts = [len(image.embeddings) for image in features]
        cameras = self.settings["cameras"]
        if cameras is not None:
            cameras = [camera for camera in cameras for _ in range(len(counts) // len(cameras))]
        if self.settings["question"] is not None:
            return [build_question_prompt(self.vocabulary, counts, self.settings["question"], cameras)]
        texts = self.settings["nav_text"]
        texts = texts if isinstance(texts, list) else [texts] * len(self.arrays["prompt_ids"])
        places = self.model.config.history_tokens
        prompts = [build_driving_prompt(self.vocabulary, counts, places, cameras, text) for text in texts]
        bins = HistoryTokenizer(self.model.config.history).encode(torch.from_numpy(self.arrays["hist_xyz"][:, 0]))
        ids = (bins + self.vocabulary.history_ids.start).tolist()
        return [prompt.with_history(row) for prompt, row in zip(prompts, ids, strict=True)]

    def _prompt_arrays(self, prompts: Sequence[Prompt], batch: PromptBatch) -> Iterator[CaseResult]:
        fused = batch.token_ids
        unfused = fused.clone()
        for row, (prompt, empty) in enumerate(zip(prompts, batch.padding, strict=True)):
            unfused[row, empty + prompt.history.start : empty + prompt.history.stop] = (
                self.vocabulary.history_placeholder
            )
        attention = torch.ones_like(fused) if batch.attention is None else batch.attention
        samples = self.settings["num_traj_samples"]
        deltas = torch.tensor(batch.rope_deltas).repeat_interleave(samples)[:, None]
        computed: dict[str, Tensor] = {
            "prompt_ids": unfused,
            "fused_prompt_ids": fused,
            "attention_mask": attention,
            "prompt_position_ids": batch.positions,
            "rope_deltas": deltas,
        }
        if "history_token_bins" in self.arrays:
            history = [
                fused[row, fused.shape[1] - len(p) :][p.history.start : p.history.stop] for row, p in enumerate(prompts)
            ]
            computed["history_token_bins"] = torch.stack(history) - self.vocabulary.history_ids.start
        for key, values in computed.items():
            if key in self.arrays:
                yield equal(f"{self.name}/{key}", values, self.arrays[key])

    def _reasoning_arrays(
        self, batch: PromptBatch, rows: Sequence[int], prompts: Sequence[Prompt], writer: RecordedWriter, kv: Any
    ) -> Iterator[CaseResult]:
        sequences = torch.cat((batch.token_ids.cpu(), torch.tensor(writer.rows)), 1)
        yield equal(f"{self.name}/sequences_raw", sequences, self.arrays["sequences_raw"])
        yield equal(f"{self.name}/kv_len", kv.length, self.settings["kv_len"])
        logits = torch.stack(writer.logits, 1)
        if "logits_top_ids" in self.arrays:
            recorded = self.arrays["logits_top_values"]
            ids = self.machine.tensor(self.arrays["logits_top_ids"]).long()
            yield close(f"{self.name}/logits_top_ids", logits.gather(-1, ids), recorded, self.tolerances.hidden)
            top = logits.topk(ids.shape[-1]).values
            yield close(f"{self.name}/logits_top_values", top, recorded, self.tolerances.hidden)
        if "logits_step0_every97" in self.arrays:
            recorded_logits = self.arrays["logits_step0_every97"]
            yield close(
                f"{self.name}/logits_step0_every97", logits[:, 0, ::97], recorded_logits, self.tolerances.hidden
            )
        yield from self._kv_arrays("kv", kv, None)
        texts = {key: np.ravel(np.array(value)).tolist() for key, value in self.settings.get("text", {}).items()}
        for component, expected in texts.items():
            for row, text in enumerate(expected):
                actual = self.vocabulary.text_between(
                    [*prompts[rows[row]].token_ids, *writer.up_to_end(row)], component
                )
                yield same_text(f"{self.name}/text/{component}/{row}", actual, text)

    def _kv_arrays(self, kind: str, kv: Any, ends: Sequence[int] | None) -> Iterator[CaseResult]:
        """Compare keys and values; from a row's end on, columns that nobody reads are left out."""
        for index in range(self.model.config.backbone.text.num_hidden_layers):
            for part, values in zip(("key", "value"), kv.written(index), strict=True):
                key = f"{kind}_{part}_layer{index}"
                if key in self.arrays:
                    recorded = self.machine.tensor(self.arrays[key])
                    ours = values[:, :, values.shape[2] - recorded.shape[2] :]
                    recorded = self.readable(recorded, kv)
                    if ends is not None:
                        column = torch.arange(ours.shape[2], device=ours.device)
                        unread = (column >= torch.tensor(ends, device=ours.device)[:, None])[:, None, :, None]
                        ours, recorded = ours.masked_fill(unread, 0), recorded.masked_fill(unread, 0)
                    yield close(f"{self.name}/{key}", ours, recorded.cpu(), self.tolerances.hidden)

    def readable(self, recorded: Tensor, kv: Any) -> Tensor:
        """Recorded keys or values, as far as this kind of cache has them."""
        return recorded

    def positions_and_mask(self, prefix: Any, padding: Sequence[int], length: int) -> tuple[Tensor, Tensor]:
        """The first action token's position [B], and which of the columns [B, length] nobody may read."""
        blocked = prefix.blocked
        if blocked is None:
            blocked = torch.zeros(len(prefix.first_position), length, dtype=torch.bool)
        return prefix.first_position.cpu(), blocked.cpu()

    def _flow_arrays(
        self, batch: PromptBatch, rows: Sequence[int], prompts: Sequence[Prompt], writer: RecordedWriter, kv: Any
    ) -> Iterator[CaseResult]:
        written = [writer.up_to_end(row) for row in range(len(rows))]
        ends = [batch.length + len(tokens) for tokens in written]
        prefix = kv.prefix(ends, batch.padding, batch.rope_deltas)
        prefixes = {"guided": prefix}
        if self.settings["guidance_alpha"] is not None:
            prompt = prompts[0]
            padded = [[*tokens, *[self.vocabulary.pad] * (len(writer.rows[0]) - len(tokens))] for tokens in written]
            unguided = read_without_route(self.model, prompt, batch, kv, padded, 1)
            shorter = [end - len(prompt.route) for end in ends]
            yield equal(f"{self.name}/kv_len_unguided", unguided.length, self.settings["kv_len_unguided"])
            yield from self._kv_arrays("unguided_kv", unguided, shorter)
            prefixes["unguided"] = unguided.prefix(shorter, batch.padding, batch.rope_deltas)
        velocities = {kind: self.model.velocity(prefix, 1) for kind, prefix in prefixes.items()}
        for kind, prefix in prefixes.items():
            length = kv.length if kind == "guided" else unguided.length
            yield from self._expert_arrays(kind, prefix, batch.padding, length)
            yield from self._velocity_arrays(kind, velocities[kind])

        if not self.tolerances.teacher_forced:
            yield from self._own_flow(velocities, rows)

    def _own_flow(self, velocities: Mapping[str, Velocity], rows: Sequence[int]) -> Iterator[CaseResult]:
        """Compare where the model gets by its own states."""
        velocity = velocities["guided"]
        alpha = self.settings["guidance_alpha"]
        if alpha is not None:
            velocity = lambda x, t: mix_velocities(velocities["unguided"](x, t), velocities["guided"](x, t), alpha)  # noqa: E731
        more = self.settings["diffusion_kwargs"]
        steps = more.get("inference_step", self.model.config.flow.num_inference_steps)
        noise = self.machine.tensor(self.arrays["x0_noise"])
        flow = integrate(velocity, noise, steps, more.get("temperature", 1.0))
        yield close(f"{self.name}/times", flow.times, self.arrays["times"], PIXEL_TOLERANCE)
        yield close(f"{self.name}/states", flow.states, self.arrays["states"], STATE_TOLERANCE)
        yield close(f"{self.name}/action", flow.actions, self.arrays["action"], STATE_TOLERANCE)
        yield from self._path_arrays(flow.actions, rows)

    def _expert_arrays(self, kind: str, prefix: Any, padding: Sequence[int], length: int) -> Iterator[CaseResult]:
        waypoints = self.model.config.action_space.n_waypoints
        first, unreadable = self.positions_and_mask(prefix, padding, length)
        batch = len(first)
        blocked = torch.cat((unreadable, torch.zeros(batch, waypoints, dtype=torch.bool)), 1)
        positions = (first[:, None] + torch.arange(waypoints)).expand(3, -1, -1)
        yield equal(f"{self.name}/expert_position_ids_{kind}", positions, self.arrays[f"expert_position_ids_{kind}"])
        yield equal(f"{self.name}/expert_mask_blocked_{kind}", blocked, self.arrays[f"expert_mask_blocked_{kind}"])
        network = self.model.network
        noise = self.machine.tensor(self.arrays["states"][0])
        embeddings = network.action_in_proj(noise, noise.new_zeros(batch, 1, 1))
        hidden = network.expert(embeddings, self.model.context(prefix, 1))
        for key, values in (("embeds", embeddings), ("last_hidden", hidden)):
            recorded = self.arrays[f"expert_step0_{key}_{kind}"]
            yield close(f"{self.name}/expert_step0_{key}_{kind}", values, recorded, self.tolerances.velocity)

    def _velocity_arrays(self, kind: str, velocity: Velocity) -> Iterator[CaseResult]:
        states, times = self.machine.tensor(self.arrays["states"]), self.machine.tensor(self.arrays["times"])
        recorded = self.arrays[f"velocities_{kind}"]
        ours = [velocity(states[step], times[step].expand(states.shape[1], 1, 1)) for step in range(len(recorded))]
        tolerance = self.tolerances.velocity
        if self.tolerances.teacher_forced:
            for step, (our, its) in enumerate(zip(ours, recorded, strict=True)):
                yield close(f"{self.name}/velocities_{kind}/step{step}", our, its, tolerance)
        else:
            yield close(f"{self.name}/velocities_{kind}", torch.stack(ours), recorded, tolerance)

    def _path_arrays(self, actions: Tensor, rows: Sequence[int]) -> Iterator[CaseResult]:
        history = [self.machine.tensor(self.arrays[key][:, 0]) for key in ("hist_xyz", "hist_rot")]
        v0 = self.model.action_space.estimate_v0(*history)
        yield close(f"{self.name}/v0", v0, self.arrays["v0"], SPEED_TOLERANCE)
        index = list(rows)
        path = self.model.action_space.actions_to_trajectory(actions, history[0][index], history[1][index])
        xyz, rotation = self.arrays["pred_xyz"], self.arrays["pred_rot"]
        yield close(f"{self.name}/pred_xyz", path.xyz.reshape(xyz.shape), xyz, XYZ_TOLERANCE)
        yield close(f"{self.name}/pred_rot", path.rotation.reshape(rotation.shape), rotation, ROTATION_TOLERANCE)


def as_stored(values: Tensor, recorded: np.ndarray) -> Tensor:
    """Features [..., T, H] as a file stores them: a copy per sample, or every so many-th token of a long prompt."""
    ours, theirs = values.shape[-2], recorded.shape[-2]
    if theirs >= ours:
        return torch.cat([values] * (theirs // ours), -2)
    return values[..., :: ours // theirs, :]


END_TO_END = Checker("end_to_end_*.npz", partial(cases, kind=EndToEndRun))

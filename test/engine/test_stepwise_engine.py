import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tiny_checkpoint import drive, picture, raw_frame, write_tiny_checkpoint

from alpamayo_ros.core.types import BadImageError, EngineError, Frame, Observation, Prediction, SamplingOptions
from alpamayo_ros.engine.base import Engine
from alpamayo_ros.engine.native.engine import NativeEngine
from alpamayo_ros.engine.stepwise_engine import StepwiseEngine
from alpamayo_ros.engine.transformers_engine import TransformersEngine
from alpamayo_ros.model.backbone import PromptBatch
from alpamayo_ros.model.images import ImagePatches

SHORT = SamplingOptions(max_reasoning_tokens=6, seed=3)
ROUNDING = 2e-3  # m, over ten Euler steps that enlarge it


@pytest.fixture(scope="module")
def reference(checkpoint: Path) -> TransformersEngine:
    return TransformersEngine.load(str(checkpoint), device="cpu", max_samples=8, max_cameras=2)


@pytest.fixture(scope="module", params=["transformers", "native"])
def engine(request: pytest.FixtureRequest, checkpoint: Path, reference: TransformersEngine) -> StepwiseEngine:
    """Every test of this file runs with both models."""
    if request.param == "transformers":
        return reference
    return NativeEngine.load(str(checkpoint), device="cpu", max_samples=8, max_cameras=2)


@pytest.fixture
def transformers_only(engine: StepwiseEngine) -> None:
    if not isinstance(engine, TransformersEngine):
        pytest.skip("looks into AlpamayoModel")


@contextmanager
def calls_through(engine: StepwiseEngine, **wraps: Callable[..., object]) -> Iterator[None]:
    """While this is open, the backbone's methods are called as `wrap(method, *arguments)`."""
    backbone = engine._model.backbone
    for name, wrap in wraps.items():
        setattr(backbone, name, partial(wrap, getattr(backbone, name)))
    try:
        yield
    finally:
        for name in wraps:
            delattr(backbone, name)


@contextmanager
def language_model_passes(engine: StepwiseEngine) -> Iterator[list[tuple[int, int]]]:
    """Rows and tokens of every pass through the language model."""
    passes: list[tuple[int, int]] = []

    def read(call: Callable[..., object], batch: PromptBatch, *more: object) -> object:
        passes.append(tuple(batch.token_ids.shape))
        return call(batch, *more)

    def extend(
        call: Callable[..., object], batch: PromptBatch, cache: object, tokens: torch.Tensor, logits: int = 1
    ) -> object:
        passes.append(tuple(tokens.shape))
        return call(batch, cache, tokens, logits)

    def follow(
        call: Callable[..., Any], batch: PromptBatch, cache: object, tokens: torch.Tensor, *more: object
    ) -> object:
        passes.append(tuple(tokens.shape))
        return counted(call(batch, cache, tokens, *more))

    def follow_prompt(call: Callable[..., Any], *arguments: object) -> object:
        return counted(call(*arguments))

    def counted(following: Any) -> object:
        go_on = following.go_on

        def further() -> None:
            passes.append((following._rows, 1))
            go_on()

        following.go_on = further
        return following

    wraps = {"read": read, "extend": extend, "follow": follow, "follow_prompt": follow_prompt}
    backbone = engine._model.backbone
    with calls_through(engine, **{name: wrap for name, wrap in wraps.items() if hasattr(backbone, name)}):
        yield passes


@contextmanager
def vision_passes(engine: StepwiseEngine) -> Iterator[list[int]]:
    """Images of every pass through the vision tower."""
    passes: list[int] = []

    def encode_each(call: Callable[..., object], patches: Sequence[ImagePatches]) -> object:
        passes.extend(len(each.grids) for each in patches)
        return call(patches)

    with calls_through(engine, encode_each=encode_each):
        yield passes


@contextmanager
def changed_logits(engine: StepwiseEngine, change: Callable[[torch.Tensor], None]) -> Iterator[None]:
    """Let `change` write into the logits [B, n, V] of every pass."""

    def change_after(call: Callable[..., torch.Tensor], *arguments: object, **named: object) -> torch.Tensor:
        logits = call(*arguments, **named)
        if logits.shape[1]:  # none are asked for where nothing is drawn
            change(logits)
        return logits

    def change_before_draw(draw: Callable[..., torch.Tensor], logits: torch.Tensor, *more: object) -> torch.Tensor:
        change(logits[:, None])
        return draw(logits, *more)

    with calls_through(engine, read=change_after, extend=change_after), pytest.MonkeyPatch.context() as patch:
        for step in getattr(engine._model.backbone, "_steps", ()):  # the native engine's, which draw by themselves
            patch.setattr(step, "_draw", partial(change_before_draw, step._draw))
        yield


@contextmanager
def scripted(engine: StepwiseEngine, tokens: list[int]) -> Iterator[None]:
    """Let the model favour these tokens, one after the other, whatever it reads."""
    script = iter(tokens)

    def favour(logits: torch.Tensor) -> None:
        token = next(script, None)
        if token is not None:
            logits[:, -1, token] = 1000

    with changed_logits(engine, favour):
        yield


def assert_same(left: Prediction, right: Prediction, tolerance: float = ROUNDING) -> None:
    assert left.reasoning_token_ids == right.reasoning_token_ids
    assert left.finish_reasons == right.finish_reasons
    np.testing.assert_allclose(left.xyz, right.xyz, atol=tolerance)
    np.testing.assert_allclose(left.actions, right.actions, atol=tolerance)


def test_it_is_an_engine_and_says_what_it_is(engine: StepwiseEngine, reference: TransformersEngine) -> None:
    assert isinstance(engine, Engine)
    info = engine.info
    assert info.engine == ("native" if isinstance(engine, NativeEngine) else "transformers")
    assert (info.model_type, info.device, info.dtype) == ("alpamayo1_5", "cpu", "float32")
    assert not info.trained
    assert info.parameters == sum(p.numel() for p in reference._model.network.parameters()) > 1_000_000
    assert len(info.checkpoint_hash) == 64
    assert (info.max_samples, info.max_cameras) == (8, 2)


def test_a_prediction_has_shapes_units_and_finite_numbers(engine: StepwiseEngine) -> None:
    prediction = engine.predict(drive(speed=8.0), replace(SHORT, num_samples=3))
    assert prediction.xyz.shape == (3, 64, 3)
    assert prediction.rotation.shape == (3, 64, 3, 3)
    assert prediction.actions.shape == (3, 64, 2)
    assert prediction.speed.shape == (3, 65)
    assert all(np.isfinite(a).all() for a in (prediction.xyz, prediction.rotation, prediction.actions))
    np.testing.assert_allclose(prediction.speed[:, 0], 8.0, atol=0.01)
    np.testing.assert_allclose(prediction.xyz[:, 0, 0], 0.8, atol=0.05)  # forward is +x
    assert len(prediction.reasoning) == len(prediction.finish_reasons) == len(prediction.reasoning_token_ids) == 3
    assert prediction.seed == 3


def test_the_same_seed_gives_the_same_and_another_another(engine: StepwiseEngine) -> None:
    observation = drive()
    first = engine.predict(observation, SHORT)
    assert_same(first, engine.predict(observation, SHORT), tolerance=0)
    other = engine.predict(observation, replace(SHORT, seed=4))
    assert first.reasoning_token_ids != other.reasoning_token_ids
    assert np.abs(first.xyz - other.xyz).max() > 0.1


@pytest.mark.parametrize("reasoning", ["shared", "independent", "off"])
def test_one_prefill_serves_all_samples(engine: StepwiseEngine, reasoning: str) -> None:
    with language_model_passes(engine) as passes:
        engine.predict(drive(), replace(SHORT, num_samples=5, reasoning=reasoning))
    assert passes[0][0] == 1
    assert {rows for rows, _ in passes[1:]} == {"shared": {1}, "independent": {5}, "off": set()}[reasoning]
    assert sum(tokens for _, tokens in passes[1:]) == (0 if reasoning == "off" else 8)  # six and the two forced ones


def test_shared_reasoning_is_one_text_and_different_trajectories(engine: StepwiseEngine) -> None:
    prediction = engine.predict(drive(), replace(SHORT, num_samples=3))
    assert len(set(prediction.reasoning_token_ids)) == 1
    assert np.abs(prediction.xyz[0] - prediction.xyz[1]).max() > 0.1


def test_independent_reasoning_is_a_text_per_sample(engine: StepwiseEngine) -> None:
    observation = drive()
    three = engine.predict(observation, replace(SHORT, num_samples=3, reasoning="independent"))
    assert len(set(three.reasoning_token_ids)) == 3
    alone = engine.predict(observation, SHORT)
    assert three.reasoning_token_ids[0] == alone.reasoning_token_ids[0]
    np.testing.assert_allclose(three.xyz[0], alone.xyz[0], atol=ROUNDING)


@pytest.mark.parametrize("reasoning", ["shared", "independent", "off"])
def test_a_sample_does_not_depend_on_how_many_there_are(engine: StepwiseEngine, reasoning: str) -> None:
    observation = drive()
    two, four = (engine.predict(observation, replace(SHORT, num_samples=k, reasoning=reasoning)) for k in (2, 4))
    assert two.reasoning_token_ids == four.reasoning_token_ids[:2]
    np.testing.assert_allclose(two.xyz, four.xyz[:2], atol=ROUNDING)


def test_reasoning_off_starts_the_trajectory_at_once(engine: StepwiseEngine) -> None:
    vocabulary = engine._model.vocabulary
    prediction = engine.predict(drive(), replace(SHORT, reasoning="off"))
    assert prediction.reasoning_token_ids == ((vocabulary.reasoning_end, vocabulary.future_start),)
    assert prediction.reasoning == ("",)
    assert prediction.finish_reasons == ("off",)
    assert prediction.timings.reasoning_tokens == 0


def test_given_reasoning_is_read_as_if_it_had_been_written(engine: StepwiseEngine) -> None:
    observation = drive()
    given = replace(SHORT, reasoning="given", given_reasoning="Slow down.")
    prediction = engine.predict(observation, given)
    assert prediction.reasoning == ("Slow down.",)
    assert prediction.finish_reasons == ("forced",)
    other = engine.predict(observation, replace(given, given_reasoning="Speed up."))
    assert np.abs(prediction.xyz - other.xyz).max() > 1e-3


def test_written_reasoning_given_back_drives_the_same_way(engine: StepwiseEngine) -> None:
    observation = drive()
    text = "Keep the lane and the speed."
    tokens = engine._model.vocabulary.encode(text)
    given = engine.predict(observation, replace(SHORT, reasoning="given", given_reasoning=text))
    with scripted(engine, tokens):
        written = engine.predict(observation, replace(SHORT, max_reasoning_tokens=len(tokens), temperature=0.0))
    assert written.reasoning == given.reasoning
    assert_same(replace(written, finish_reasons=given.finish_reasons), given)


def test_first_logits_are_those_that_the_first_token_is_drawn_from(engine: StepwiseEngine) -> None:
    logits = engine.first_logits(drive(), SHORT)
    greedy = engine.predict(drive(), replace(SHORT, temperature=0.0)).reasoning_token_ids[0]
    allowed = logits.clone()
    allowed[list(engine._model.vocabulary.trajectory_ids)] = -math.inf
    assert allowed.argmax() == greedy[0]


def test_first_logits_of_a_model_that_fails_are_an_error_of_the_engine(engine: StepwiseEngine) -> None:
    def fail(*_: object, **__: object) -> torch.Tensor:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    with calls_through(engine, read=fail), pytest.raises(EngineError, match=r"the model failed on .*illegal memory"):
        engine.first_logits(drive(), SHORT)


def test_the_cap_is_kept_and_named(engine: StepwiseEngine) -> None:
    vocabulary = engine._model.vocabulary
    for cap in (0, 1, 6):
        prediction = engine.predict(drive(), replace(SHORT, max_reasoning_tokens=cap))
        tokens = prediction.reasoning_token_ids[0]
        assert len(tokens) == cap + 2
        assert tokens[-2:] == (vocabulary.reasoning_end, vocabulary.future_start)
        assert prediction.finish_reasons == ("length",)


def test_the_deadline_is_named(engine: StepwiseEngine) -> None:
    prediction = engine.predict(drive(), replace(SHORT, deadline_ms=0.0))
    assert prediction.finish_reasons == ("deadline",)
    assert len(prediction.reasoning_token_ids[0]) == 2


def test_a_frame_is_encoded_once(engine: StepwiseEngine) -> None:
    observation = drive()
    with vision_passes(engine) as passes:
        first = engine.predict(observation, SHORT)
        newer = {
            camera: (*frames[1:], raw_frame(camera, 500_000_000, picture(99)))
            for camera, frames in observation.frames.items()
        }
        second = engine.predict(replace(observation, frames=newer), SHORT)
    assert sum(passes) == 8 + 2
    assert (first.timings.frames_encoded, first.timings.frames_reused) == (8, 0)
    assert (second.timings.frames_encoded, second.timings.frames_reused) == (2, 6)
    assert list(first.timings.stages_ms)[:3] == ["decode", "preprocess", "vision"]


def test_prepared_frames_cost_the_tick_nothing_and_change_nothing(engine: StepwiseEngine) -> None:
    fresh = engine.predict(drive(), SHORT)
    observation = drive()  # the same pictures, under serials of their own
    for frames in observation.frames.values():
        engine.prepare(frames)
    with vision_passes(engine) as passes:
        prepared = engine.predict(observation, SHORT)
    assert passes == []
    assert prepared.timings.frames_encoded == 0
    assert "decode" not in prepared.timings.stages_ms
    assert_same(prepared, fresh)


def test_frames_that_are_prepared_while_a_tick_runs_change_no_answer(engine: StepwiseEngine) -> None:
    scenes = [partial(drive, speed=speed) for speed in (3.0, 9.0)]  # each call has serials of its own
    expected = [engine.predict(scene(), SHORT) for scene in scenes]
    assert engine.prepares_alongside
    ticks = [scene() for _ in range(4) for scene in scenes]
    with ThreadPoolExecutor() as threads, vision_passes(engine) as passes:
        for number, tick in enumerate(ticks):
            coming = [frame for later in ticks[number : number + 2] for four in later.frames.values() for frame in four]
            preparing = threads.submit(engine.prepare, coming)  # the tick's own too: whoever comes first encodes it
            answer = engine.predict(tick, SHORT)
            preparing.result(60)
            assert answer.reasoning_token_ids == expected[number % 2].reasoning_token_ids
            np.testing.assert_array_equal(answer.xyz, expected[number % 2].xyz)
            assert number == 0 or answer.timings.frames_reused == 8
    assert sum(passes) == 8 * len(ticks)


def test_equal_stamps_are_no_equal_frames(engine: StepwiseEngine) -> None:
    observation = drive()
    before = engine.predict(observation, SHORT)
    others = {
        camera: tuple(raw_frame(camera, frame.stamp_ns, picture(77 + i)) for i, frame in enumerate(frames))
        for camera, frames in observation.frames.items()
    }
    assert np.abs(engine.predict(replace(observation, frames=others), SHORT).xyz - before.xyz).max() > 1e-3


def test_what_is_kept_of_frames_is_bounded(engine: StepwiseEngine) -> None:
    for _ in range(4):
        engine.predict(drive(), replace(SHORT, reasoning="off"))
    assert len(engine._frames) <= 16


def three_ticks() -> list[Observation]:
    """With prompts of different lengths, from short to long and back."""
    return [drive((1,)), drive((1, 6), speed=3.0, navigation="Turn left in 30m"), drive((6,), speed=12.0)]


@pytest.mark.parametrize("reasoning", ["shared", "independent", "off", "given"])
def test_a_batch_is_its_ticks_one_by_one_but_read_at_once(engine: StepwiseEngine, reasoning: str) -> None:
    ticks = three_ticks()
    options = [
        replace(SHORT, num_samples=2, reasoning=reasoning, seed=seed, given_reasoning="Keep on." * seed)
        for seed in range(3)
    ]
    with language_model_passes(engine) as passes:
        batch = engine.predict_batch(ticks, options)
    assert [rows for rows, tokens in passes if tokens > 3] == [3]
    assert {rows for rows, tokens in passes if tokens == 1} == {"shared": {3}, "independent": {6}}.get(reasoning, set())
    for prediction, tick, its in zip(batch, ticks, options, strict=True):
        assert_same(prediction, engine.predict(tick, its))
        assert prediction.seed == its.seed
        assert prediction.xyz.shape[0] == 2
    assert len({prediction.reasoning_token_ids for prediction in batch}) == (1 if reasoning == "off" else 3)


def test_texts_of_a_batch_end_where_they_end_alone(engine: StepwiseEngine) -> None:
    ticks = three_ticks()
    options = [replace(SHORT, num_samples=2, reasoning="independent", seed=seed) for seed in range(3)]
    vocabulary = engine._model.vocabulary

    def end_some(logits: torch.Tensor) -> None:
        logits[..., vocabulary.turn_end] += 3  # some of the six texts end early

    with changed_logits(engine, end_some):
        batch = engine.predict_batch(ticks, options)
        for prediction, tick, its in zip(batch, ticks, options, strict=True):
            assert_same(prediction, engine.predict(tick, its))
    lengths = {len(tokens) for prediction in batch for tokens in prediction.reasoning_token_ids}
    assert len(lengths) > 2
    assert {reason for prediction in batch for reason in prediction.finish_reasons} >= {"forced", "length"}


def test_ticks_of_different_options_are_predicted_apart_and_come_back_in_order(engine: StepwiseEngine) -> None:
    ticks = [*three_ticks(), drive((1,), navigation="Turn right in 30m")]
    options = [
        replace(SHORT, num_samples=2),
        replace(SHORT, guidance_weight=1.5),
        replace(SHORT, num_samples=2, seed=5),
        replace(SHORT, guidance_weight=1.5, seed=5),
    ]
    with language_model_passes(engine) as passes:
        batch = engine.predict_batch(ticks, options)
    assert [rows for rows, tokens in passes if tokens > 40] == [1, 1, 2]
    for prediction, tick, its in zip(batch, ticks, options, strict=True):
        assert_same(prediction, engine.predict(tick, its))


def test_a_batch_of_drafted_ticks_is_right_without_them(engine: StepwiseEngine) -> None:
    ticks = three_ticks()
    drafted = [replace(SHORT, draft_token_ids=(50, 51, 52)) for _ in ticks]
    for prediction, tick in zip(engine.predict_batch(ticks, drafted), ticks, strict=True):
        assert_same(prediction, engine.predict(tick, SHORT))
        assert prediction.drafts_accepted == 0


def test_the_ticks_of_a_batch_share_its_time(engine: StepwiseEngine) -> None:
    one, two = (prediction.timings for prediction in engine.predict_batch([drive((1,)), drive((6,))], [SHORT, SHORT]))
    assert one.stages_ms == two.stages_ms
    assert list(one.stages_ms) == ["decode", "preprocess", "vision", "prefill", "reasoning", "expert", "trajectory"]
    assert (one.frames_encoded, two.frames_encoded) == (4, 4)


def test_no_ticks_are_no_predictions(engine: StepwiseEngine) -> None:
    assert engine.predict_batch([], []) == []


def test_right_and_wrong_drafts_change_nothing(engine: StepwiseEngine) -> None:
    observation = drive()
    plain = engine.predict(observation, SHORT)
    tokens = plain.reasoning_token_ids[0]
    vocabulary = engine._model.vocabulary
    drafts = {
        tokens: 8,
        tokens[:3]: 3,
        (*tokens[:4], 50, 51, 52): 4 if tokens[4] != 50 else 5,
        (50 if tokens[0] != 50 else 51, *tokens[1:]): 0,
        (*tokens[:2], vocabulary.size, 50): 2,
        (*tokens, 50, 51): 8,
        tuple([tokens[0]] * 40): 1 if tokens[1] != tokens[0] else 2,
    }
    for draft, accepted in drafts.items():
        with language_model_passes(engine) as passes:
            drafted = engine.predict(observation, replace(SHORT, draft_token_ids=draft))
        assert_same(drafted, plain)
        assert drafted.drafts_accepted == accepted
        assert sum(read for _, read in passes[1:]) == len(tokens) - accepted


def test_drafts_do_not_bend_independent_reasoning(engine: StepwiseEngine) -> None:
    observation = drive()
    options = replace(SHORT, num_samples=2, reasoning="independent")
    plain = engine.predict(observation, options)
    assert_same(engine.predict(observation, replace(options, draft_token_ids=plain.reasoning_token_ids[1])), plain)


def test_a_navigation_text_is_read(engine: StepwiseEngine) -> None:
    observation = drive()
    left = engine.predict(replace(observation, navigation="Turn left in 30m"), SHORT)
    right = engine.predict(replace(observation, navigation="Turn right in 30m"), SHORT)
    assert np.abs(left.xyz - right.xyz).max() > 1e-3


@pytest.mark.parametrize("samples", [1, 3])
def test_guidance_by_zero_is_the_model_without_the_text(engine: StepwiseEngine, samples: int) -> None:
    observation = drive()
    options = replace(SHORT, num_samples=samples, reasoning="given", given_reasoning="Keep the lane.")
    without = engine.predict(observation, options)
    guided = replace(observation, navigation="Turn left in 30m")
    assert_same(engine.predict(guided, replace(options, guidance_weight=0.0)), without)
    assert_same(engine.predict(guided, replace(options, guidance_weight=1.0)), engine.predict(guided, options), 0)
    stronger = engine.predict(guided, replace(options, guidance_weight=2.0))
    assert np.abs(stronger.xyz - without.xyz).max() > 1e-3


def test_guidance_reads_only_what_the_route_changes(engine: StepwiseEngine) -> None:
    observation = drive(navigation="Turn left in 30m")
    options = replace(SHORT, guidance_weight=1.5, num_samples=3, reasoning="independent")
    with language_model_passes(engine) as passes:
        guided = engine.predict(observation, options)
    prompt = passes[0][1]
    assert passes[-1][0] == 3
    assert passes[-1][1] < prompt / 2
    lengths = {len(tokens) for tokens in guided.reasoning_token_ids}
    assert lengths == {8}


def test_the_expert_reads_all_that_was_written_and_goes_on_from_there(
    engine: StepwiseEngine, transformers_only: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    expert = engine._model.network.expert
    contexts = []
    read = expert.read

    def note(*arguments: object) -> object:
        contexts.append(read(*arguments))
        return contexts[-1]

    monkeypatch.setattr(expert, "read", note)
    with language_model_passes(engine) as passes:
        engine.predict(drive(), SHORT)
    prefix = contexts[0].prefix
    assert prefix.length == sum(tokens for _, tokens in passes)
    assert prefix.blocked is None
    image = (96 // 32) * (160 // 32)  # tokens; three rows of five, so that each takes five positions
    assert prefix.first_position.tolist() == [prefix.length - 8 * (image - 5)]


def test_the_flow_has_as_many_steps_as_asked(engine: StepwiseEngine) -> None:
    calls: list[int] = []
    network = engine._model.network
    hook = network.expert.register_forward_hook(lambda *_: calls.append(1))
    for steps, expected in ((None, 10), (4, 4)):
        calls.clear()
        engine.predict(drive(), replace(SHORT, reasoning="off", flow_steps=steps))
        assert len(calls) == expected
    hook.remove()


def test_noise_temperature_zero_makes_samples_equal(engine: StepwiseEngine) -> None:
    prediction = engine.predict(drive(), replace(SHORT, num_samples=2, noise_temperature=0.0))
    np.testing.assert_allclose(prediction.xyz[0], prediction.xyz[1], atol=1e-4)


def test_a_question_is_answered_in_words(engine: StepwiseEngine) -> None:
    observation = drive()
    engine.predict(observation, SHORT)
    with vision_passes(engine) as passes:
        answer = engine.ask(observation, "Is the road free?", SHORT)
    assert passes == []
    assert answer == engine.ask(observation, "Is the road free?", SHORT)
    assert answer != engine.ask(observation, "Who is ahead?", replace(SHORT, seed=8))
    assert "<|answer" not in answer


def test_a_bad_image_is_named_by_predict_and_passed_over_by_prepare(engine: StepwiseEngine) -> None:
    observation = drive()
    broken = Frame(10_000_001, 6, 400_000_000, b"no jpeg", "jpeg")
    engine.prepare([broken])
    frames = {**observation.frames, 6: (*observation.frames[6][:3], broken)}
    with pytest.raises(BadImageError, match="camera 6") as caught:
        engine.predict(replace(observation, frames=frames), SHORT)
    assert caught.value.serial == broken.serial
    engine.predict(observation, SHORT)  # the next tick is fine


def test_a_camera_that_changes_its_size_is_named(engine: StepwiseEngine) -> None:
    observation = drive()
    larger = raw_frame(6, 400_000_000, picture(1, 128, 160))
    frames = {**observation.frames, 6: (*observation.frames[6][:3], larger)}
    with pytest.raises(BadImageError, match="camera 6 have the sizes 160x96, 160x96, 160x96, 160x128"):
        engine.predict(replace(observation, frames=frames), SHORT)


def test_an_image_too_long_is_named(engine: StepwiseEngine) -> None:
    observation = drive((1,))
    long = tuple(raw_frame(1, i, np.zeros((2, 600, 3), np.uint8)) for i in range(4))
    with pytest.raises(BadImageError, match="camera 1, stamp 0 ns: an image of 600x2 pixels"):
        engine.predict(replace(observation, frames={1: long}), SHORT)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_samples": 0}, "num_samples is 0; it has to be from 1 to 8"),
        ({"num_samples": 9}, "num_samples is 9"),
        ({"temperature": -1.0}, "temperature is -1.0"),
        ({"temperature": math.nan}, "temperature is nan"),
        ({"top_p": 0.0}, "top_p is 0.0"),
        ({"top_p": 1.1}, "top_p is 1.1"),
        ({"max_reasoning_tokens": -1}, "max_reasoning_tokens is -1"),
        ({"max_reasoning_tokens": 100_000}, "max_reasoning_tokens is 100000; with a prompt of"),
        ({"deadline_ms": -1.0}, "deadline_ms is -1.0"),
        ({"reasoning": "none"}, "reasoning is 'none'; it has to be one of shared"),
        ({"flow_steps": 0}, "flow_steps is 0"),
        ({"noise_temperature": -0.1}, "noise_temperature is -0.1"),
        ({"guidance_weight": 1.5}, "guidance_weight is 1.5, but there is no navigation text"),
        ({"guidance_weight": math.inf}, "guidance_weight is inf"),
        ({"reasoning": "given", "given_reasoning": "a<|cot_end|>"}, "special token <|cot_end|>"),
    ],
)
def test_options_that_cannot_be_are_named(engine: StepwiseEngine, change: dict[str, object], message: str) -> None:
    with pytest.raises(EngineError) as caught:
        engine.predict(drive(), replace(SHORT, **change))
    assert message in str(caught.value)


def test_observations_that_cannot_be_are_named(engine: StepwiseEngine) -> None:
    with pytest.raises(EngineError, match="has 3 cameras; from 1 to 2 can be"):
        engine.predict(drive((0, 1, 6)), SHORT)
    with pytest.raises(EngineError, match="special token"):
        engine.predict(drive(navigation="<|route_end|>"), SHORT)
    with pytest.raises(EngineError, match="NaN"):
        engine.predict(replace(drive(), history_xyz=np.full((16, 3), np.nan)), SHORT)


def test_token_ids_are_the_checkpoints_own(engine: StepwiseEngine) -> None:
    # NVIDIA's <|traj_future_start|> is 155681; nothing in code may know that
    vocabulary = engine._model.vocabulary
    assert vocabulary.size < 10_000
    assert engine.predict(drive(), SHORT).reasoning_token_ids[0][-1] == vocabulary.future_start


def test_bfloat16_is_near_float32(checkpoint: Path, engine: StepwiseEngine) -> None:
    half = type(engine).load(str(checkpoint), device="cpu", dtype="bfloat16", max_samples=8, max_cameras=2)
    assert half.info.dtype == "bfloat16"
    options = replace(SHORT, reasoning="off", num_samples=2, flow_steps=1)
    observation = drive()
    np.testing.assert_allclose(
        half.predict(observation, options).xyz, engine.predict(observation, options).xyz, atol=1.0
    )


@pytest.mark.parametrize("kind", [TransformersEngine, NativeEngine])
def test_warming_up_leaves_nothing_behind_and_closing_is_final(tmp_path: Path, kind: type[StepwiseEngine]) -> None:
    engine = kind.load(
        str(write_tiny_checkpoint(tmp_path / "tiny", seed=5)), device="cpu", max_samples=1, max_cameras=1
    )
    engine.warm_up()
    assert len(engine._frames) == 0
    engine.close()
    engine.close()
    for call in (
        lambda: engine.predict(drive((1,)), SHORT),
        lambda: engine.prepare([]),
        lambda: engine.ask(drive((1,)), "?", SHORT),
    ):
        with pytest.raises(EngineError, match="closed"):
            call()

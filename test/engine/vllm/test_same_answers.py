"""What the transformers engine answers, the vLLM engine answers: tokens equal, numbers up to rounding."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from inside_vllm import gather, jobs, layers, scripted, worker
from same_answers import ROUNDING, assert_same
from tiny_checkpoint import drive, picture, raw_frame

from alpamayo_ros.core.types import EngineError, SamplingOptions
from alpamayo_ros.engine.base import Engine
from alpamayo_ros.engine.flow.shape import FlowShape
from alpamayo_ros.engine.stage_clock import StageClock
from alpamayo_ros.engine.transformers_engine import TransformersEngine
from alpamayo_ros.engine.vllm.engine import VllmEngine
from alpamayo_ros.engine.vllm.jobs import FlowJob

pytestmark = pytest.mark.vllm

SHORT = SamplingOptions(max_reasoning_tokens=6, seed=3)
KV_TOLERANCE = 1e-4
VELOCITY_TOLERANCE = 1e-3
ROUTE = "Turn left in 30m"


def test_it_is_an_engine_and_says_what_it_is(engine: VllmEngine, reference: TransformersEngine) -> None:
    assert isinstance(engine, Engine)
    info = engine.info
    assert (info.engine, info.model_type, info.dtype, info.trained) == ("vllm", "alpamayo1_5", "float32", False)
    assert info.parameters == reference.info.parameters
    assert info.checkpoint_hash == reference.info.checkpoint_hash
    assert (info.max_samples, info.max_cameras) == (4, 4)
    assert info.prompt_tokens == reference.info.prompt_tokens
    assert info.image_tokens == reference.info.image_tokens
    assert info.cache_tokens == 0  # it takes no more than is written
    assert info.max_tokens < engine._backbone.cache_tokens < 4096  # of 0.0075 GiB


def test_as_many_tokens_as_are_not_refused_fit_after_the_largest_prompt(engine: VllmEngine) -> None:
    observation, info = drive((0, 1, 2, 6), navigation="left " * 311), engine.info
    large = {
        camera: tuple(raw_frame(camera, frame.stamp_ns, picture(camera, 512, 512)) for frame in frames)
        for camera, frames in observation.frames.items()
    }
    observation = replace(observation, frames=large)
    assert len(engine._open(observation, SHORT).prompt) == info.prompt_tokens
    room = info.max_tokens - info.prompt_tokens - 2
    prediction = engine.predict(observation, replace(SHORT, max_reasoning_tokens=room, temperature=0.0))
    assert len(prediction.reasoning_token_ids[0]) == room + 2
    with pytest.raises(EngineError, match=f"it has to be at most {room}"):
        engine.predict(observation, replace(SHORT, max_reasoning_tokens=room + 1))


@pytest.mark.parametrize("cameras", [(1,), (1, 6), (0, 1, 2, 6)], ids=len)
@pytest.mark.parametrize(
    "change",
    [
        {"temperature": 0.0},
        {},
        {"num_samples": 3},
        {"num_samples": 4, "reasoning": "independent"},
        {"num_samples": 2, "guidance_weight": 1.5},
        {"num_samples": 3, "guidance_weight": 0.0, "reasoning": "independent"},
        {"reasoning": "off", "num_samples": 2},
        {"reasoning": "given", "given_reasoning": "Keep the lane.", "guidance_weight": 2.0},
        {"top_p": 0.5, "temperature": 1.3, "noise_temperature": 0.6, "flow_steps": 4},
    ],
    ids=lambda change: "-".join(map(str, change.values())) or "one",
)
def test_predictions_are_the_same(
    engine: VllmEngine, reference: TransformersEngine, cameras: tuple[int, ...], change: dict[str, object]
) -> None:
    options = replace(SHORT, **change)
    navigation = ROUTE if options.guidance_weight is not None else None
    observation = drive(cameras, navigation=navigation)
    assert_same(engine.predict(observation, options), reference.predict(observation, options))


@pytest.mark.parametrize("cap", [0, 1, 24])
def test_the_cap_is_the_same(engine: VllmEngine, reference: TransformersEngine, cap: int) -> None:
    observation, options = drive(), replace(SHORT, max_reasoning_tokens=cap)
    prediction = engine.predict(observation, options)
    assert_same(prediction, reference.predict(observation, options))
    assert prediction.finish_reasons == ("length",)


def test_the_deadline_is_the_same_where_it_is_at_once(engine: VllmEngine, reference: TransformersEngine) -> None:
    observation, options = drive(), replace(SHORT, deadline_ms=0.0)
    prediction = engine.predict(observation, options)
    assert_same(prediction, reference.predict(observation, options))
    assert prediction.finish_reasons == ("deadline",)


def test_a_deadline_cuts_the_reasoning_and_the_path_follows(engine: VllmEngine) -> None:
    options = replace(SHORT, max_reasoning_tokens=1000, deadline_ms=60.0, num_samples=2, reasoning="independent")
    prediction = engine.predict(drive(), options)
    assert prediction.finish_reasons == ("deadline", "deadline")
    vocabulary = engine._vocabulary
    for tokens in prediction.reasoning_token_ids:
        assert 2 < len(tokens) < 1000
        assert tokens[-2:] == (vocabulary.reasoning_end, vocabulary.future_start)
    assert np.isfinite(prediction.xyz).all()
    longer = engine.predict(drive(), replace(options, deadline_ms=None, max_reasoning_tokens=50))
    shorter = min(len(tokens) for tokens in prediction.reasoning_token_ids) - 2
    both = min(shorter, 50)
    assert prediction.reasoning_token_ids[0][:both] == longer.reasoning_token_ids[0][:both]


def test_a_reasoning_that_ends_by_itself_ends_there(engine: VllmEngine) -> None:
    vocabulary = engine._vocabulary
    written = [*vocabulary.encode("Keep the lane."), vocabulary.reasoning_end, vocabulary.future_start]
    with scripted(engine, written):
        prediction = engine.predict(drive(), replace(SHORT, max_reasoning_tokens=30))
    assert prediction.reasoning_token_ids == (tuple(written),)
    assert prediction.reasoning == ("Keep the lane.",)
    assert prediction.finish_reasons == ("stop",)
    given = engine.predict(drive(), replace(SHORT, reasoning="given", given_reasoning="Keep the lane."))
    np.testing.assert_allclose(prediction.xyz, given.xyz, atol=ROUNDING)


def test_an_ended_turn_without_a_path_is_closed_by_force(engine: VllmEngine) -> None:
    vocabulary = engine._vocabulary
    written = vocabulary.encode("Keep")
    with scripted(engine, [*written, vocabulary.turn_end]):
        prediction = engine.predict(drive(), replace(SHORT, max_reasoning_tokens=30))
    closing = (vocabulary.reasoning_end, vocabulary.future_start)
    assert prediction.reasoning_token_ids == ((*written, *closing),)
    assert prediction.finish_reasons == ("forced",)


def test_an_image_token_in_the_reasoning_is_a_word_and_no_image(
    engine: VllmEngine, reference: TransformersEngine
) -> None:
    vocabulary = engine._vocabulary
    with scripted(engine, [vocabulary.image_pad, vocabulary.future_start]):
        prediction = engine.predict(drive(), SHORT)
    assert prediction.reasoning_token_ids == ((vocabulary.image_pad, vocabulary.future_start),)
    assert np.isfinite(prediction.xyz).all()


def test_trajectory_tokens_are_written_in_answers_alone(engine: VllmEngine) -> None:
    vocabulary = engine._vocabulary
    wanted = vocabulary.trajectory_ids[7]
    with scripted(engine, [wanted]):
        tokens = engine.predict(drive(), replace(SHORT, max_reasoning_tokens=1)).reasoning_token_ids[0]
    assert tokens[0] not in vocabulary.trajectory_ids
    with scripted(engine, [wanted]):
        assert "<i7>" in engine.ask(drive(), "Where?", replace(SHORT, max_reasoning_tokens=1))


def test_answers_are_the_same(engine: VllmEngine, reference: TransformersEngine) -> None:
    observation = drive()
    for seed, question in ((3, "Is the road free?"), (4, "Who is ahead?")):
        options = replace(SHORT, seed=seed, max_reasoning_tokens=12)
        answer = engine.ask(observation, question, options)
        assert answer == reference.ask(observation, question, options)
        assert answer
    assert engine.ask(observation, "?", replace(SHORT, max_reasoning_tokens=0)) == ""


def test_a_batch_is_its_ticks_one_by_one(engine: VllmEngine) -> None:
    ticks = [drive((1,)), drive((1, 6), speed=3.0, navigation=ROUTE), drive((1,)), drive((6,))]
    options = [
        replace(SHORT, num_samples=2),
        replace(SHORT, seed=9, reasoning="independent", num_samples=3, guidance_weight=1.5),
        replace(SHORT, reasoning="off"),
        replace(SHORT, max_reasoning_tokens=0),
    ]
    batch = engine.predict_batch(ticks, options)
    for prediction, tick, its in zip(batch, ticks, options, strict=True):
        assert prediction.timings.frames_encoded == sum(map(len, tick.frames.values()))
        assert_same(prediction, engine.predict(tick, its))
    assert engine.predict_batch([], []) == []


def test_drafts_change_nothing(engine: VllmEngine) -> None:
    observation = drive()
    plain = engine.predict(observation, SHORT)
    drafted = engine.predict(observation, replace(SHORT, draft_token_ids=plain.reasoning_token_ids[0]))
    assert_same(drafted, plain)
    assert drafted.drafts_accepted == 0


@pytest.mark.parametrize("guided", [False, True])
def test_keys_values_and_velocities_are_the_same(
    engine: VllmEngine, reference: TransformersEngine, guided: bool
) -> None:
    """The sequence up to <|traj_future_start|> itself: its KV is in the cache, too."""
    navigation = ROUTE if guided else None
    observation = drive(navigation=navigation)
    options = replace(SHORT, guidance_weight=1.5 if guided else None)
    kept: list[list[tuple[torch.Tensor, torch.Tensor]]] = []
    velocities: list[torch.Tensor] = []
    states = torch.randn(3, 1, 64, 2, generator=torch.Generator().manual_seed(1))
    expert = worker(engine)._alpamayo
    run = expert.run

    def look(job: FlowJob) -> torch.Tensor:
        prefixes = [*job.prefixes, *job.unguided]
        kept.extend([gather(layer, prefix) for layer in layers(engine)] for prefix in prefixes)
        for prefix in prefixes:
            field = expert.flows.runner(FlowShape(1, 1, False, 10)).velocity([prefix])
            device = layers(engine)[0].keys.device
            velocities.append(
                torch.stack([field(s.to(device), torch.full((1, 1, 1), 0.3, device=device)).cpu() for s in states])
            )
        return run(job)

    expert.run = look
    try:
        engine.predict(observation, options)
    finally:
        del expert.run
    with torch.inference_mode():
        ticks = [reference._tick(observation, options, clock())]
        reasoned = reference._reason(ticks, reference._read(ticks, clock()), clock())
        prefix = reasoned.cache.prefix(reasoned.ends, reasoned.batch.padding, reasoned.batch.rope_deltas)
        field = reference._model.velocity(prefix, 1)
        expected = torch.stack([field(s, torch.full((1, 1, 1), 0.3)) for s in states])
    assert len(kept) == 1 + guided
    for index, (keys, values) in enumerate(kept[0]):
        wanted = [each[0].transpose(0, 1) for each in reasoned.cache.written(index)]
        assert keys.shape == wanted[0].shape
        assert (keys.cpu() - wanted[0]).abs().max() < KV_TOLERANCE
        assert (values.cpu() - wanted[1]).abs().max() < KV_TOLERANCE
    assert (velocities[0] - expected).abs().max() < VELOCITY_TOLERANCE
    if guided:
        assert (velocities[1] - expected).abs().max() > VELOCITY_TOLERANCE  # without the route it is another field


def test_options_and_observations_that_cannot_be_are_named_alike(
    engine: VllmEngine, reference: TransformersEngine
) -> None:
    wrong = [
        (drive(), replace(SHORT, num_samples=5)),
        (drive(), replace(SHORT, temperature=-1.0)),
        (drive(), replace(SHORT, guidance_weight=1.5)),
        (drive(), replace(SHORT, reasoning="given", given_reasoning="a<|cot_end|>")),
        (drive(navigation="<|route_end|>"), SHORT),
        (replace(drive(), history_xyz=np.full((16, 3), np.nan)), SHORT),
    ]
    for observation, options in wrong:
        messages = []
        for each in (engine, reference):
            with pytest.raises(EngineError) as caught:
                each.predict(observation, options)
            messages.append(str(caught.value))
        assert messages[0] == messages[1]
    with pytest.raises(EngineError, match="max_reasoning_tokens is 100000; with a prompt of"):
        engine.predict(drive(), replace(SHORT, max_reasoning_tokens=100_000))
    with pytest.raises(EngineError, match="given_reasoning has"):
        engine.predict(drive(), replace(SHORT, reasoning="given", given_reasoning="word " * 2000))


@pytest.mark.parametrize(
    "change",
    [
        {"num_samples": 3},
        {"num_samples": 3, "reasoning": "independent"},
        {"num_samples": 2, "guidance_weight": 1.5},
        {"num_samples": 3, "guidance_weight": 1.5, "reasoning": "independent"},
    ],
    ids=lambda change: "-".join(map(str, change.values())),
)
def test_samples_may_be_filled_up_to_a_captured_shape(engine: VllmEngine, change: dict[str, object]) -> None:
    observation, options = drive(navigation=ROUTE), replace(SHORT, **change)
    plain = engine.predict(observation, options)
    expert = worker(engine)._alpamayo
    shapes = [FlowShape(*each, guided, 10) for each in ((1, 4), (4, 1)) for guided in (False, True)]
    captured = expert.flows._captured
    expert.flows._captured = {shape: expert.flows.runner(shape) for shape in shapes}
    try:
        assert_same(engine.predict(observation, options), plain)
    finally:
        expert.flows._captured = captured


def test_one_row_may_be_read_as_one_beyond_its_last_token(engine: VllmEngine, reference: TransformersEngine) -> None:
    """NVIDIA's code gets there when <|traj_future_start|> is missing: positions start one beyond, nothing is masked."""
    observation = drive()
    with jobs(engine) as seen:
        engine.predict(observation, SHORT)
    job = seen[0]
    assert job.prefixes[0].first_position == job.prefixes[0].length - 8 * (3 * 5 - 5)


def clock() -> StageClock:
    return StageClock(torch.device("cpu"))

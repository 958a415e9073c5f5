"""Training computes what inference computes: same pictures, same tokens, same numbers."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from alpamayo_ros.core.types import ConfigurationError
from alpamayo_ros.engine.tick_prompt import TickPrompts
from alpamayo_ros.model.alpamayo import AlpamayoModel
from alpamayo_ros.model.backbone import batch_prompts
from alpamayo_ros.model.config import ModelConfig
from alpamayo_ros.model.images import preprocess
from alpamayo_ros.model.kv_cache import KVCache
from alpamayo_ros.sensors.decode import decode
from alpamayo_ros.sim.recorded_drive import RecordedDrive
from alpamayo_ros.sim.sentences import SENTENCE_CLASSES
from alpamayo_ros.training.course import LONGEST
from alpamayo_ros.training.examples import examples_of
from alpamayo_ros.training.initial import initial_network
from alpamayo_ros.training.layout import LONGEST_REASONING, TokenTables
from alpamayo_ros.training.losses import TrainedNetwork, draw_flow
from alpamayo_ros.training.observations import FIRST_TICK, histories_of, observations_of
from alpamayo_ros.training.store import Batch, ExampleStore

CPU = torch.device("cpu")
SAMPLES = 3


@pytest.fixture(scope="module")
def drive(recorded: RecordedDrive) -> RecordedDrive:
    texts = [None, "Turn left in 30m"]
    return replace(recorded, navigation=tuple(texts[t % 2] for t in range(len(recorded.navigation))))


@pytest.fixture(scope="module")
def model(mini: ModelConfig) -> AlpamayoModel:
    return AlpamayoModel.load(mini, CPU, torch.float32)


@pytest.fixture(scope="module")
def store(drive: RecordedDrive, mini: ModelConfig, model: AlpamayoModel) -> ExampleStore:
    store = ExampleStore(mini, model.vocabulary, (96, 160), longest=LONGEST, capacity=1, device=CPU)
    store.add([examples_of(drive, mini)])
    return store


@pytest.fixture(scope="module")
def batch(store: ExampleStore) -> Batch:
    return store.batch(torch.tensor([0, 1]), torch.tensor([True, True]))


@torch.no_grad()
def test_pictures_tokens_logits_and_velocities_are_those_of_inference(
    drive: RecordedDrive, mini: ModelConfig, model: AlpamayoModel, store: ExampleStore, batch: Batch
) -> None:
    trained = TrainedNetwork(model.network, mini, store.tables.layout)
    pixels = batch.pixels(mini.images)
    images = trained.encode(pixels, ticks=2)
    prefix = trained.text(batch.token_ids, images)
    states, times = torch.randn(2, SAMPLES, 64, 2), torch.rand(2, 1).expand(2, SAMPLES)
    velocity = trained.velocity(batch, prefix, states, times)

    for tick in range(2):
        seen = observations_of(drive)[tick]
        frames = [frame for of_camera in seen.frames.values() for frame in of_camera]
        patches = preprocess([decode(frame) for frame in frames], mini.images)
        assert torch.equal(patches.pixel_values, pixels.view(2, -1, pixels.shape[-1])[tick])

        prompt = TickPrompts(mini, model.vocabulary).driving(seen, patches.token_counts)
        end = int(batch.ends[tick])
        assert batch.token_ids[tick, : len(prompt)].tolist() == list(prompt.token_ids)
        reasoning = batch.token_ids[tick, len(prompt) : end].tolist()
        sentence = drive.sentences[FIRST_TICK + tick]
        assert model.vocabulary.decode(reasoning) == f"{sentence}<|cot_end|><|traj_future_start|>"

        whole = replace(prompt, token_ids=(*prompt.token_ids, *reasoning))
        row = batch_prompts([whole], [model.backbone.encode(patches)], model.vocabulary.pad, CPU)
        cache = KVCache(model.backbone.layers, end + SAMPLES * 64)
        logits = model.backbone.read(row, cache, logits=len(reasoning))
        ours = model.network.vlm.lm_head(prefix.hidden[tick, end - len(reasoning) : end])
        torch.testing.assert_close(ours, logits[0], atol=2e-3, rtol=1e-3)

        field = model.velocity(cache.prefix([end], row.padding, row.rope_deltas), SAMPLES)
        expected = field(states[tick], times[tick][:, None, None])
        torch.testing.assert_close(velocity[tick], expected, atol=2e-3, rtol=1e-3)


def test_navigation_that_is_dropped_is_not_in_the_prompt(store: ExampleStore) -> None:
    ticks = torch.tensor([0, 0, 1])
    kept, dropped, without = store.batch(ticks, torch.tensor([True, False, True])).prompt_lengths.tolist()
    assert dropped == without < kept


def test_the_longest_sequences_fit_and_longer_ones_are_refused(mini: ModelConfig, model: AlpamayoModel) -> None:
    tables = TokenTables(mini, model.vocabulary, (96, 160), LONGEST)
    for text in ("Turn left in 100m", "Turn right in 60m", "Continue straight", "Turn right"):
        tables.prompt_row(text)
    for sentence in SENTENCE_CLASSES:
        tables.reasoning_row(sentence)
    tables.check_lengths()
    assert tables.padded_reasonings()[0].shape == (len(SENTENCE_CLASSES), LONGEST_REASONING)
    short = TokenTables(mini, model.vocabulary, (96, 160), len(tables.prompts[1]) + LONGEST_REASONING - 1)
    short.prompt_row("Turn left in 100m")
    with pytest.raises(ConfigurationError, match="is the limit"):
        short.check_lengths()


def test_the_driven_path_comes_back_from_its_actions(
    drive: RecordedDrive, model: AlpamayoModel, mini: ModelConfig
) -> None:
    examples = examples_of(drive, mini)
    history, rotation = (torch.from_numpy(array) for array in histories_of(drive))
    actions = torch.from_numpy(examples.actions).double()
    driven = model.action_space.actions_to_trajectory(actions, history, rotation).xyz[..., :2].numpy()
    error = np.linalg.norm(driven - drive.futures[FIRST_TICK:, :, :2], axis=-1)
    assert error.mean() < 0.05
    assert error.max() < 0.3
    moved = model.action_space.actions_to_trajectory(actions + 0.1, history, rotation).xyz[..., :2].numpy()
    assert np.linalg.norm(moved - drive.futures[FIRST_TICK:, :, :2], axis=-1).mean() > 0.3  # the bound means something


def test_gradients_reach_every_weight(store: ExampleStore, mini: ModelConfig, model: AlpamayoModel) -> None:
    trained = TrainedNetwork(initial_network(mini, model.vocabulary, 0), mini, store.tables.layout)
    torch.nn.init.normal_(trained.guide.weight)  # it starts at zero, and lets nothing through
    batch = store.batch(torch.tensor([0]), torch.tensor([True]))
    draws = draw_flow(1, 2, 64, torch.Generator().manual_seed(0))
    trained(batch, batch.pixels(mini.images), draws).total.backward()
    still = [name for name, each in trained.named_parameters() if each.grad is None or not each.grad.abs().max() > 0]
    assert still == []

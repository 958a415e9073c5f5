"""Another sentence in the expert's place: the actions follow it, and nobody learns to say it."""

from dataclasses import replace

import pytest
import torch

from alpamayo_ros.core.types import ConfigurationError
from alpamayo_ros.model.config import ModelConfig
from alpamayo_ros.sim.recorded_drive import RecordedDrive
from alpamayo_ros.sim.sentences import SENTENCE_CLASSES
from alpamayo_ros.training.course import LONGEST
from alpamayo_ros.training.examples import examples_of
from alpamayo_ros.training.initial import initial_network
from alpamayo_ros.training.losses import Losses, TrainedNetwork, draw_flow
from alpamayo_ros.training.observations import FIRST_TICK
from alpamayo_ros.training.settings import TrainingSettings
from alpamayo_ros.training.store import Batch, ExampleStore

SETTINGS = TrainingSettings(batch=300, drop_navigation=0.0, other_histories=0.0)


@pytest.fixture(scope="module")
def store(toy: ModelConfig, recorded: RecordedDrive) -> ExampleStore:
    store = ExampleStore(toy, toy.load_vocabulary(), (96, 160), LONGEST, capacity=1, device=torch.device("cpu"))
    store.add([examples_of(recorded, toy)])
    return store


@pytest.fixture(scope="module")
def trained(toy: ModelConfig, store: ExampleStore) -> TrainedNetwork:
    trained = TrainedNetwork(initial_network(toy, toy.load_vocabulary(), 0), toy, store.tables.layout)
    torch.nn.init.normal_(trained.network.get_parameter("action_out_proj.weight"))  # at first the flow says next to 0
    return trained


def words(store: ExampleStore, batch: Batch) -> list[str]:
    """What stands before the actions of each tick, without the two closing tokens."""
    vocabulary = store.tables._vocabulary
    ends = zip(batch.token_ids, batch.prompt_lengths.tolist(), batch.ends.tolist(), strict=True)
    return [vocabulary.decode(ids[begin : end - 2].tolist()) for ids, begin, end in ends]


@torch.no_grad()
def losses(trained: TrainedNetwork, batch: Batch) -> Losses:
    draws = draw_flow(len(batch.actions), 2, 64, torch.Generator().manual_seed(0))
    losses: Losses = trained(batch, batch.pixels(trained.config.images), draws)
    return losses


def test_the_share_that_is_asked_for_reads_another_sentence(store: ExampleStore) -> None:
    own, mixed, again = (
        store.draw(replace(SETTINGS, other_sentences=share), torch.Generator().manual_seed(0))
        for share in (0, 0.3, 0.3)
    )
    changed = torch.tensor([one != other for one, other in zip(words(store, own), words(store, mixed), strict=True)])
    assert own.own_words.all()
    assert torch.equal(changed, ~mixed.own_words)
    assert changed.float().mean().item() == pytest.approx(0.3, abs=0.08)
    assert set(words(store, mixed)) == set(SENTENCE_CLASSES)
    assert torch.equal(mixed.actions, own.actions)
    assert torch.equal(mixed.token_ids, again.token_ids)


def test_it_is_not_learned_and_the_actions_follow_it(
    store: ExampleStore, trained: TrainedNetwork, recorded: RecordedDrive
) -> None:
    ticks, keep = torch.tensor([0, 5]), torch.ones(2, dtype=torch.bool)
    own, one, none = (
        losses(trained, store.batch(ticks, keep, further=torch.tensor(further))) for further in ([0, 0], [0, 4], [2, 4])
    )
    alone = losses(trained, store.batch(ticks[:1], keep[:1]))
    assert recorded.sentences[FIRST_TICK] == words(store, store.batch(ticks, keep))[0]
    assert one.reasoning.item() == pytest.approx(alone.reasoning.item(), rel=1e-4)
    assert none.reasoning.item() == 0.0
    assert one.flow.item() != own.flow.item() != none.flow.item()


def test_a_share_is_a_share() -> None:
    with pytest.raises(ConfigurationError, match="other_sentences is 15, expected a share"):
        TrainingSettings(other_sentences=15)

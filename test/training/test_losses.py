import math
from dataclasses import replace

import pytest
import torch

from alpamayo_ros.model.action_space import UnicycleActionSpace
from alpamayo_ros.model.config import ModelConfig
from alpamayo_ros.sim.recorded_drive import RecordedDrive
from alpamayo_ros.training.examples import examples_of
from alpamayo_ros.training.forward import ReadPrefix
from alpamayo_ros.training.initial import initial_network
from alpamayo_ros.training.losses import MAX_TIME, TrainedNetwork, draw_flow
from alpamayo_ros.training.observations import histories_of
from alpamayo_ros.training.store import ExampleStore


def test_times_follow_the_published_distribution() -> None:
    draws = draw_flow(20_000, 4, 2, torch.Generator().manual_seed(0))
    reference = MAX_TIME * (1 - torch.distributions.Beta(1.5, 1.0).sample((80_000,)))
    quantiles = torch.linspace(0.05, 0.95, 19)
    ours = torch.quantile(draws.times.flatten(), quantiles)
    assert torch.allclose(ours, torch.quantile(reference, quantiles), atol=0.01)
    assert draws.noise.std().item() == pytest.approx(1.0, abs=0.01)


def test_drift_is_how_far_wrong_actions_take_the_vehicle(mini: ModelConfig, recorded: RecordedDrive) -> None:
    vocabulary = mini.load_vocabulary()
    cpu = torch.device("cpu")
    store = ExampleStore(mini, vocabulary, (96, 160), longest=480, capacity=1, device=cpu)
    store.add([examples_of(recorded, mini)])
    ticks = torch.arange(4)
    batch = store.batch(ticks, torch.ones(4, dtype=torch.bool))
    trained = TrainedNetwork(initial_network(mini, vocabulary, 0), mini, store.tables.layout)
    error = torch.full((4, 1, 64, 2), 0.01)
    space = UnicycleActionSpace(mini.action_space)
    history, rotation = (torch.from_numpy(array)[ticks] for array in histories_of(recorded))
    right, wrong = (
        space.actions_to_trajectory(actions.double(), history, rotation).xyz[..., :2]
        for actions in (batch.actions, batch.actions + error[:, 0])
    )
    expected = (right - wrong).square().sum(-1).mean().item()
    assert expected > 1e-4
    assert trained._drift(batch, error).item() == pytest.approx(expected, rel=0.1)


def test_the_guide_to_cars_learns_of_a_car_only_where_there_is_one(mini: ModelConfig, recorded: RecordedDrive) -> None:
    vocabulary = mini.load_vocabulary()
    store = ExampleStore(mini, vocabulary, (96, 160), longest=480, capacity=1, device=torch.device("cpu"))
    store.add([examples_of(recorded, mini)])
    batch = store.batch(torch.arange(2), torch.ones(2, dtype=torch.bool))
    nan = math.nan
    batch = replace(batch, cars=torch.tensor([[20.0, 5.0, -2.0], [nan, nan, nan]]))
    trained = TrainedNetwork(initial_network(mini, vocabulary, 0), mini, store.tables.layout)
    hidden = torch.zeros(*batch.token_ids.shape, mini.backbone.text.hidden_size)
    hidden[torch.arange(2), batch.prompt_lengths - 1, torch.arange(2)] = 1.0  # the prompt's last token, and no word
    prefix = ReadPrefix(hidden, hidden, (), ())
    nothing_known = math.log(2) + (math.log(20.0) + 1.0 + 1.0 - 3 * 0.05) / 2
    assert trained._cars(batch, prefix).item() == pytest.approx(nothing_known, rel=1e-4)
    with torch.no_grad():
        trained.car_guide.weight[:, 0] = torch.tensor([30.0, math.log(20.0), 1.0, -1.0])
        trained.car_guide.weight[:, 1] = torch.tensor([-30.0, 7.0, 7.0, 7.0])  # of no car, anything may be said
    loss = trained._cars(batch, prefix)
    assert loss.item() == pytest.approx(0.0, abs=1e-5)
    loss.backward()
    assert trained.car_guide.weight.grad is not None
    assert trained.car_guide.weight.grad.isfinite().all()

"""Histories of another way: they bend otherwise, and end where and as the vehicle's do."""

import pytest
import torch

from alpamayo_ros.core.types import HISTORY_LENGTH
from alpamayo_ros.training.other_histories import OtherWay


def history_of(speed: float, bend: float, acceleration: float = 0.0) -> torch.Tensor:
    """[1, 16, 3] m: of a vehicle on an arc, finely integrated."""
    fine = 1000
    time = torch.arange(-(HISTORY_LENGTH - 1) * 0.1 * fine, 0, dtype=torch.float64) / fine + 0.5 / fine
    moving = speed + acceleration * time
    left = moving.flip(0).cumsum(0).flip(0) / fine
    heading = -bend * left
    back = torch.stack((moving * heading.cos(), moving * heading.sin(), torch.zeros_like(moving)), -1) / fine
    places = -back.flip(0).cumsum(0).flip(0)
    starts = places[:: fine // 10]
    return torch.cat((starts, torch.zeros(1, 3)))[None].float()


@pytest.mark.parametrize(("bend", "speeding_up"), [(0.02, 0.0), (-0.01, 0.0), (0.0, 0.7), (0.015, -0.5)])
def test_a_straight_history_becomes_that_of_an_arc(bend: float, speeding_up: float) -> None:
    straight, other = history_of(8.0, 0.0), history_of(8.0, bend, speeding_up)
    way = OtherWay(torch.tensor([bend]), torch.tensor([speeding_up]))
    torch.testing.assert_close(way.of(straight), other, atol=0.01, rtol=0)
    assert (straight - other).norm(dim=-1).max() > 0.5


def test_it_changes_the_share_that_is_asked_for_and_leaves_the_rest() -> None:
    histories = history_of(6.0, 0.01).expand(4000, -1, -1)
    way = OtherWay.draw(4000, 0.5, torch.Generator().manual_seed(3))
    changed = (way.of(histories) != histories).flatten(1).any(-1)
    assert changed.float().mean().item() == pytest.approx(0.5, abs=0.05)
    assert torch.equal(changed, way.bend != 0)


def test_a_vehicle_that_stands_still_stays_where_it_is() -> None:
    histories = history_of(0.0, 0.0)
    assert torch.equal(OtherWay(torch.tensor([0.03]), torch.tensor([1.0])).of(histories), histories)

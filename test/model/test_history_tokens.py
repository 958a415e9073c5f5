import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from alpamayo_ros.core.types import ConfigurationError
from alpamayo_ros.model.history_tokens import HistoryTokenizer, HistoryTokenizerConfig

TOKENIZER = HistoryTokenizer(HistoryTokenizerConfig())


def straight(speed: float) -> torch.Tensor:
    """16 poses at constant speed along x, the last at the origin."""
    xyz = torch.zeros(16, 3)
    xyz[:, 0] = speed * 0.1 * torch.arange(-15, 1)
    return xyz


def test_standing_still_is_the_middle_bin_everywhere():
    assert TOKENIZER.encode(torch.zeros(16, 3)).tolist() == [500] * 48


def test_a_moving_car_saturates_at_first_since_displacements_count_from_the_origin():
    bins = TOKENIZER.encode(straight(8.0))

    assert bins[0] == 0  # -12 m
    assert bins[3::3].unique().tolist() == [599]  # 0.8 m is 599.4
    assert bins[1::3].unique().tolist() == [500]


def test_tokens_go_x_y_z_of_the_oldest_first():
    xyz = torch.zeros(2, 3)
    xyz[1] = torch.tensor([4.0, -4.0, 10.0])

    assert TOKENIZER.encode(xyz).tolist() == [500, 500, 500, 999, 0, 999]


def test_halves_are_rounded_to_even():
    config = HistoryTokenizerConfig((0.0, 0.0, 0.0), (4.0, 4.0, 4.0), num_bins=5)

    assert HistoryTokenizer(config).encode(torch.tensor([[0.5, 1.5, 2.5]])).tolist() == [0, 2, 2]


@given(st.lists(st.tuples(*[st.floats(-3.9, 3.9)] * 3), min_size=1, max_size=16))
def test_decoding_is_within_half_a_bin_per_step(displacements):
    xyz = torch.tensor(displacements).cumsum(0)

    decoded = TOKENIZER.decode(TOKENIZER.encode(xyz))

    half_bin = torch.tensor([8.0, 8.0, 20.0]) / 999 / 2
    steps = torch.arange(1, len(displacements) + 1)[:, None]
    assert ((decoded - xyz).abs() <= half_bin * steps + 1e-4).all()


def test_float64_input_gives_the_same_bins():
    xyz = straight(13.7)
    assert torch.equal(TOKENIZER.encode(xyz.double()), TOKENIZER.encode(xyz))


def test_leading_dimensions_are_kept():
    bins = TOKENIZER.encode(torch.stack((straight(3.0), straight(9.0))).unsqueeze(1))

    assert bins.shape == (2, 1, 48)
    assert torch.equal(bins[1, 0], TOKENIZER.encode(straight(9.0)))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_coordinate_that_is_not_finite_is_refused(value):
    xyz = torch.zeros(16, 3)
    xyz[4, 1] = value

    with pytest.raises(ConfigurationError, match="NaN or infinity"):
        TOKENIZER.encode(xyz)


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({"predict_yaw": True}, "predict_yaw is true; only false"),
        ({"num_bins": 1}, "num_bins is 1; it has to be at least 2"),
        ({"ego_xyz_min": [5, -4, -10]}, r"ego_xyz_min is \(5.0, -4.0, -10.0\); every value has to be below"),
    ],
)
def test_a_wrong_config_is_named(section, message):
    with pytest.raises(ConfigurationError, match=f"hist_traj_tokenizer_cfg.{message}"):
        HistoryTokenizerConfig.from_json(section)

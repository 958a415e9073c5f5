import math

import pytest
import torch

from alpamayo_ros.core.types import ConfigurationError
from alpamayo_ros.model.action_projection import ActionProjection, ActionProjectionConfig

SMALL = ActionProjectionConfig(hidden_size=8)


@pytest.fixture
def projection() -> ActionProjection:
    torch.manual_seed(0)
    return ActionProjection(SMALL, out_features=6, bf16_constants=False).eval()


def inputs(samples: int = 2) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(samples, 64, 2, generator=generator), torch.full((samples, 1, 1), 0.3)


def test_the_state_dict_has_nvidias_keys():
    keys = set(ActionProjection(SMALL, out_features=6).state_dict())

    linear = {f"encoder.trunk.{i}.{kind}" for i in (0, 3, 6, 9, 12) for kind in ("weight", "bias")}
    norms = {f"encoder.trunk.{i}.weight" for i in (2, 5, 8, 11)}
    assert keys == linear | norms | {"norm.weight", "norm.bias"}


def test_at_full_size_it_has_as_many_parameters_as_nvidias():
    with torch.device("meta"):
        projection = ActionProjection(ActionProjectionConfig(), out_features=2048)

    assert sum(parameter.numel() for parameter in projection.parameters()) == 5_318_656


def test_features_are_sines_then_cosines_of_acceleration_curvature_and_time(projection):
    actions, times = inputs()

    features = projection.fourier_features(actions, times)

    assert features.shape == (2, 64, 60)
    frequencies = [100 ** (k / 9) for k in range(10)]
    acceleration, curvature = actions[1, 5].tolist()
    for block, value in enumerate((acceleration, curvature, 0.3)):
        for k, frequency in enumerate(frequencies):
            angle = 2 * math.pi * frequency * value
            assert features[1, 5, 20 * block + k].item() == pytest.approx(math.sqrt(2) * math.sin(angle), abs=1e-3)
            assert features[1, 5, 20 * block + 10 + k].item() == pytest.approx(math.sqrt(2) * math.cos(angle), abs=1e-3)


def test_each_step_is_embedded_on_its_own(projection):
    actions, times = inputs()
    before = projection(actions, times)
    actions[0, 10] += 1

    changed = (projection(actions, times) != before).any(-1)

    assert changed.nonzero().tolist() == [[0, 10]]


def test_time_reaches_every_step(projection):
    actions, times = inputs()
    assert (projection(actions, times) != projection(actions, times + 0.1)).any(-1).all()


def test_bf16_constants_are_those_of_nvidias_runtime():
    projection = ActionProjection(SMALL, out_features=6, bf16_constants=True)

    assert projection.frequencies.tolist() == [1, 1.671875, 2.78125, 4.65625, 7.75, 12.9375, 21.5, 36, 60, 100]


def test_the_frequencies_stay_exact_whatever_happens_to_the_module(projection):
    exact = projection.frequencies.clone()

    assert torch.equal(projection.bfloat16().frequencies, exact)
    with torch.device("meta"):
        shapes_only = ActionProjection(SMALL, out_features=6, bf16_constants=False)
    assert torch.equal(shapes_only.to_empty(device="cpu").frequencies, exact)


def test_bf16_weights_take_float32_actions(projection):
    expected = projection(*inputs())

    embedded = projection.bfloat16()(*inputs())

    assert embedded.dtype == torch.bfloat16
    torch.testing.assert_close(embedded.float(), expected, rtol=0, atol=0.1)


def test_upcasting_keeps_the_angles_of_bf16_inputs_exact(projection):
    actions, times = (values.bfloat16() for values in inputs())
    exact = projection.fourier_features(actions.float(), times.float())

    assert (projection.fourier_features(actions, times).float() - exact).abs().max() > 0.5
    projection.upcast_inputs = True
    torch.testing.assert_close(projection.fourier_features(actions, times), exact)


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({"num_fourier_feats": 7}, "num_fourier_feats is 7; it has to be even"),
        ({"hidden_size": 0}, "hidden_size is 0; it has to be positive"),
    ],
)
def test_a_wrong_config_is_named(section, message):
    with pytest.raises(ConfigurationError, match=f"action_in_proj_cfg.{message}"):
        ActionProjectionConfig.from_json(section)

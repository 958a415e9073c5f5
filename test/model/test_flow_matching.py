import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from alpamayo_ros.core.types import ConfigurationError
from alpamayo_ros.model.flow_matching import FlowMatchingConfig, integrate, mix_velocities, time_grid

NOISE = torch.randn(3, 64, 2, generator=torch.Generator().manual_seed(0))


def test_the_grid_is_float32_and_not_multiples_of_a_rounded_step():
    times = time_grid(10)

    assert times.dtype == torch.float32
    assert [time.hex() for time in times[:2].tolist()] == ["0x0.0p+0", "0x1.99999a0000000p-4"]
    assert times[-1] == 1


@given(steps=st.integers(1, 40))
def test_a_constant_velocity_arrives_after_any_number_of_steps(steps):
    flow = integrate(lambda x, t: torch.full_like(x, 2.0), NOISE, steps)

    torch.testing.assert_close(flow.actions, NOISE + 2)
    assert flow.states.shape == (steps + 1, 3, 64, 2)
    assert flow.velocities.shape == (steps, 3, 64, 2)


@given(steps=st.integers(1, 40))
def test_exponential_decay_is_that_of_eulers_method(steps):
    flow = integrate(lambda x, t: -x, NOISE, steps)

    torch.testing.assert_close(flow.actions, NOISE * (1 - 1 / steps) ** steps, rtol=1e-4, atol=1e-6)


def test_the_velocity_is_asked_at_the_start_of_every_step_with_one_time_per_sample():
    asked = []

    def velocity(x, t):
        asked.append(t)
        return t.expand_as(x)

    flow = integrate(velocity, NOISE, 5)

    assert all(t.shape == (3, 1, 1) for t in asked)
    torch.testing.assert_close(torch.stack(asked)[:, 0, 0, 0], flow.times[:-1])
    torch.testing.assert_close(flow.actions, NOISE + 0.4)  # the mean of 0, 0.2, ..., 0.8


def test_temperature_scales_the_noise_and_not_the_velocity():
    flow = integrate(lambda x, t: torch.ones_like(x), NOISE, 4, temperature=0.6)

    torch.testing.assert_close(flow.states[0], NOISE * 0.6)
    torch.testing.assert_close(flow.actions, NOISE * 0.6 + 1)


def test_the_state_stays_float32_under_a_bf16_velocity():
    flow = integrate(lambda x, t: x.bfloat16(), NOISE, 3)

    assert flow.states.dtype == torch.float32
    assert flow.velocities.dtype == torch.bfloat16


@pytest.mark.parametrize(("weight", "expected"), [(0.0, 1.0), (1.0, 3.0), (1.5, 4.0), (-1.0, -1.0)])
def test_guidance_runs_from_the_unguided_through_the_guided_velocity(weight, expected):
    mixed = mix_velocities(torch.tensor([1.0]), torch.tensor([3.0]), weight)

    assert mixed.item() == expected


def test_no_steps_are_refused():
    with pytest.raises(ConfigurationError, match="the flow has 0 steps"):
        integrate(lambda x, t: x, NOISE, 0)


def test_the_config_is_read_by_nvidias_names_without_what_concerns_training():
    config = FlowMatchingConfig.from_json(
        {
            "_target_": "x.FlowMatching",
            "num_inference_steps": 5,
            "train_timestep_sampler": "beta",
            "int_method": "euler",
        }
    )

    assert config == FlowMatchingConfig(num_inference_steps=5)


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({"int_method": "heun"}, "int_method is 'heun'; it has to be \"euler\""),
        ({"num_inference_steps": 0}, "num_inference_steps is 0; it has to be at least 1"),
        ({"num_inference_steps": True}, "num_inference_steps is True; it has to be a whole number"),
    ],
)
def test_a_wrong_config_is_named(section, message):
    with pytest.raises(ConfigurationError, match=f"diffusion_cfg.{message}"):
        FlowMatchingConfig.from_json(section)

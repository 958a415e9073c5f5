import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from alpamayo_ros.core.types import ConfigurationError, EngineError
from alpamayo_ros.model.action_space import ActionSpaceConfig, UnicycleActionSpace

PLAIN = {"accel_mean": 0.0, "accel_std": 1.0, "curvature_mean": 0.0, "curvature_std": 1.0}  # actions in SI
CONSTANTS = {"accel_mean": 0.5, "accel_std": 2.0, "curvature_mean": 0.25, "curvature_std": 4.0}
STEPS = 64
DT = 0.1

speeds = st.floats(-15.0, 40.0)
accelerations = st.floats(-6.0, 4.0)
curvatures = st.floats(-0.2, 0.2)


@pytest.fixture
def si() -> UnicycleActionSpace:
    return si_space()


def si_space() -> UnicycleActionSpace:
    return UnicycleActionSpace(ActionSpaceConfig().with_constants(PLAIN), bf16_constants=False)


def constant_actions(acceleration: float, curvature: float, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.tensor([acceleration, curvature], dtype=dtype).expand(STEPS, 2)


def history(speed: float, curvature: float = 0.0, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    """16 poses on a circle (or line) at constant speed, ending at the origin with heading 0."""
    time = torch.arange(-15, 1, dtype=torch.float64) * DT
    heading = speed * curvature * time
    along = speed * time * torch.sinc(heading / 2 / math.pi)  # chord of the arc
    xyz = torch.stack((along * (heading / 2).cos(), along * (heading / 2).sin(), torch.zeros(16)), -1)
    return xyz.to(dtype), rotations(heading).to(dtype)


def rotations(heading: Tensor) -> Tensor:
    result = torch.eye(3, dtype=heading.dtype).repeat(*heading.shape, 1, 1)
    result[..., 0, 0] = result[..., 1, 1] = heading.cos()
    result[..., 1, 0] = heading.sin()
    result[..., 0, 1] = -heading.sin()
    return result


@given(v0=speeds, acceleration=accelerations)
def test_constant_acceleration_gives_the_parabola(v0, acceleration):
    driven = si_space().actions_to_trajectory(
        constant_actions(acceleration, 0.0), *history(0.0), torch.tensor(v0, dtype=torch.float64)
    )

    time = torch.arange(STEPS + 1, dtype=torch.float64) * DT
    torch.testing.assert_close(driven.speed, v0 + acceleration * time)
    torch.testing.assert_close(driven.xyz[:, 0], (v0 * time + 0.5 * acceleration * time**2)[1:])
    assert driven.xyz[:, 1:].abs().max() == 0
    torch.testing.assert_close(driven.rotation, torch.eye(3, dtype=torch.float64).expand(STEPS, 3, 3))


@given(v0=speeds, curvature=curvatures.filter(lambda c: abs(c) > 1e-3))
def test_constant_curvature_at_constant_speed_gives_a_circle(v0, curvature):
    driven = si_space().actions_to_trajectory(
        constant_actions(0.0, curvature), *history(0.0), torch.tensor(v0, dtype=torch.float64)
    )

    time = torch.arange(STEPS + 1, dtype=torch.float64) * DT
    torch.testing.assert_close(driven.heading, curvature * v0 * time)
    # Averaging the two velocities of a step shortens its chord, so the circle is a little smaller than 1 / curvature.
    half_turn = curvature * v0 * DT / 2
    radius = 1 / curvature if half_turn == 0 else v0 * DT / 2 / math.tan(half_turn)
    centre = torch.tensor([0.0, radius], dtype=torch.float64)
    distance = (driven.xyz[:, :2] - centre).norm(dim=-1)
    torch.testing.assert_close(distance, torch.full_like(distance, abs(radius)))


@given(v0=speeds, acceleration=accelerations, curvature=curvatures)
def test_turning_left_and_turning_right_are_mirror_images(v0, acceleration, curvature):
    space, start = si_space(), torch.tensor(v0, dtype=torch.float64)
    left = space.actions_to_trajectory(constant_actions(acceleration, curvature), *history(0.0), start)
    right = space.actions_to_trajectory(constant_actions(acceleration, -curvature), *history(0.0), start)

    torch.testing.assert_close(left.xyz * torch.tensor([1.0, -1.0, 1.0]), right.xyz)


def test_positive_curvature_turns_left(si):
    driven = si.actions_to_trajectory(constant_actions(0.0, 0.05), *history(10.0))

    assert driven.xyz[10, 1] > 0
    assert driven.heading[10] > 0


@given(speed=speeds, curvature=curvatures)
def test_v0_is_the_signed_speed_of_a_steady_drive(speed, curvature):
    xyz, rotation = history(speed, curvature)

    v0 = si_space().estimate_v0(xyz, rotation)

    # Between two poses the arc is longer than the model's chord by this share, and the ridge takes 3e-5 of the speed.
    turn = abs(speed * curvature) * DT
    assert abs(v0.item() - speed) <= abs(speed) * (turn**2 / 10 + 1e-4) + 1e-9


@given(
    speed=speeds,
    curvature=curvatures,
    yaw=st.floats(-math.pi, math.pi),
    shift=st.tuples(st.floats(-1e3, 1e3), st.floats(-1e3, 1e3), st.floats(-50, 50)),
)
def test_moving_the_whole_history_rigidly_changes_nothing_but_the_height(speed, curvature, yaw, shift):
    space, actions = si_space(), constant_actions(0.5, 0.01)
    xyz, rotation = history(speed, curvature)
    turn = rotations(torch.tensor(yaw, dtype=torch.float64))
    moved = xyz @ turn.mT + torch.tensor(shift, dtype=torch.float64), turn @ rotation

    here, there = space.actions_to_trajectory(actions, xyz, rotation), space.actions_to_trajectory(actions, *moved)

    torch.testing.assert_close(there.speed, here.speed, rtol=0, atol=1e-7)
    torch.testing.assert_close(there.xyz[..., :2], here.xyz[..., :2], rtol=0, atol=1e-6)
    torch.testing.assert_close(there.rotation, here.rotation, rtol=0, atol=1e-7)
    torch.testing.assert_close(there.xyz[..., 2], torch.full((STEPS,), shift[2], dtype=torch.float64))


def test_a_car_that_stands_and_is_not_accelerated_stays(si):
    driven = si.actions_to_trajectory(constant_actions(0.0, 0.1), *history(0.0))

    assert driven.speed.abs().max() == 0
    assert driven.xyz.abs().max() == 0
    assert driven.heading.abs().max() == 0


def test_a_car_that_reverses_keeps_reversing(si):
    xyz, rotation = history(-3.0)

    driven = si.actions_to_trajectory(constant_actions(0.0, 0.0), xyz, rotation)

    assert driven.speed.max() < -2.99
    torch.testing.assert_close(driven.xyz[-1, 0].item(), -3.0 * STEPS * DT, rtol=1e-3, atol=0)


def test_braking_goes_on_below_zero_since_nothing_is_clipped(si):
    driven = si.actions_to_trajectory(constant_actions(-20.0, 5.0), *history(1.0))

    assert driven.speed[-1] < -100
    torch.testing.assert_close(driven.actions, constant_actions(-20.0, 5.0))


@pytest.mark.parametrize("inside", [(9.8, -0.33), (-9.8, 0.33)])
def test_bounds_are_inclusive_and_one_step_outside_is_enough(si, inside):
    actions = constant_actions(*inside).expand(3, -1, -1).clone()
    actions[1:, 40] *= torch.tensor([[1.001, 1.0], [1.0, 1.001]])

    assert si.is_within_bounds(actions).tolist() == [True, False, False]


@given(
    speed=st.floats(2.0, 30.0),
    acceleration=st.floats(-0.3, 1.0),
    curvature=st.floats(-0.05, 0.05),
    direction=st.sampled_from([1, -1]),
)
@settings(max_examples=30)
def test_the_actions_of_a_smooth_path_drive_that_path_again(speed, acceleration, curvature, direction):
    speed, acceleration = direction * speed, direction * acceleration
    space = si_space()
    before = history(speed, curvature)
    path = space.actions_to_trajectory(constant_actions(acceleration, curvature), *before)

    actions = space.trajectory_to_actions(path.xyz, path.rotation, *before)
    again = space.actions_to_trajectory(actions, *before)

    assert (again.xyz - path.xyz).norm(dim=-1).max() < 0.02  # m, after up to 200 m


@given(speed=speeds, acceleration=accelerations)
def test_v0_of_a_car_that_accelerates_is_its_speed_at_the_end(speed, acceleration):
    time = torch.arange(-15, 1, dtype=torch.float64) * DT
    xyz = torch.zeros(16, 3, dtype=torch.float64)
    xyz[:, 0] = speed * time + acceleration * time**2 / 2

    v0 = si_space().estimate_v0(xyz, rotations(torch.zeros(16, dtype=torch.float64)))

    assert abs(v0.item() - speed) <= 1e-4 * (abs(speed) + 16 * abs(acceleration)) + 1e-9  # what the ridge takes


def test_the_path_keeps_the_height_at_which_the_history_ends(si):
    xyz, rotation = history(5.0)
    xyz[:, 2] = torch.linspace(-1.0, 2.0, 16)

    driven = si.actions_to_trajectory(constant_actions(1.0, 0.01), xyz, rotation)

    assert driven.xyz[:, 2].unique().tolist() == [2.0]


@pytest.mark.parametrize("speed", [8.0, -4.0, 0.3])
def test_every_fit_minimises_its_sum_of_squares(si, speed):
    """Against a dense least-squares solver, on a path that shakes: data, differences and ridge as rows."""
    noise = np.random.default_rng(0)
    before = history(speed, 0.02)
    path = si.actions_to_trajectory(constant_actions(0.3, 0.02), *before)
    xyz = path.xyz + torch.from_numpy(noise.normal(0, 0.02, (STEPS, 3)))
    yaw = path.heading[1:] + torch.from_numpy(noise.normal(0, 0.01, STEPS))
    v0 = 0.9 * speed

    fitted = si.fit(xyz, rotations(yaw), *before, torch.tensor(v0, dtype=torch.float64))

    third, second = (differences(STEPS + 1, order) for order in (3, 2))
    heading = np.append(0, least_squares(np.eye(STEPS), yaw.numpy(), third[:, 1:], 1e-6 / DT**6, 1e-8))
    np.testing.assert_allclose(fitted.heading, heading, atol=1e-9)
    displacement = np.diff(np.vstack((np.zeros(2), xyz[:, :2].numpy())), axis=0)
    pairs = np.eye(STEPS + 1)[:-1] + np.eye(STEPS + 1)[1:]
    design = np.vstack((pairs * np.cos(heading), pairs * np.sin(heading)))
    target = (2 / DT * displacement.T).reshape(-1)
    speeds = np.append(
        v0,
        least_squares(design[:, 1:], target - design[:, 0] * v0, third[:, 1:], 1e-6 / DT**6, 1e-4, -third[:, 0] * v0),
    )
    np.testing.assert_allclose(fitted.speed, speeds, atol=1e-7)
    bend = second[:-1, :-1]
    acceleration = least_squares(np.eye(STEPS), np.diff(speeds) / DT, bend, 1e-4 / DT**4, 1e-4)
    np.testing.assert_allclose(fitted.actions[:, 0], acceleration, atol=1e-6)
    length = DT * speeds[:-1] + DT**2 / 2 * acceleration
    curvature = least_squares(np.diag(length), np.diff(heading), bend, 1e-4 / DT**4, 1e-4)
    np.testing.assert_allclose(fitted.actions[:, 1], curvature, atol=1e-6)


def differences(count: int, order: int) -> np.ndarray:
    return np.diff(np.eye(count), n=order, axis=0)


def least_squares(
    design: np.ndarray,
    target: np.ndarray,
    smooth: np.ndarray,
    weight: float,
    ridge: float,
    smooth_target: np.ndarray | float = 0.0,
) -> np.ndarray:
    """The x that minimises |design x - target|^2 + weight |smooth x - smooth_target|^2 + ridge |x|^2."""
    rows = np.vstack((design, np.sqrt(weight) * smooth, np.sqrt(ridge) * np.eye(design.shape[1])))
    right = np.concatenate(
        (target, np.sqrt(weight) * np.broadcast_to(smooth_target, len(smooth)), np.zeros(design.shape[1]))
    )
    return np.linalg.lstsq(rows, right, rcond=None)[0]


def test_a_ridge_too_small_for_the_precision_is_raised():
    still = torch.zeros(STEPS, 3), torch.eye(3).expand(STEPS, 3, 3)
    space = UnicycleActionSpace(ActionSpaceConfig(kappa_ridge=1e-12, **PLAIN), bf16_constants=False)

    actions = space.trajectory_to_actions(*still, *history(0.0, dtype=torch.float32))

    assert actions.dtype == torch.float32
    assert actions.abs().max() < 1e-6


def test_smoothing_makes_it_no_exact_inverse(si):
    noise = torch.randn(STEPS, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    noise = noise * torch.tensor([1.0, 0.02])
    path = si.actions_to_trajectory(noise, *history(8.0))

    actions = si.trajectory_to_actions(path.xyz, path.rotation, *history(8.0))

    assert (actions - noise).abs().max() > 0.1
    assert actions[:, 0].diff().abs().mean() < noise[:, 0].diff().abs().mean()


def test_standing_still_gives_finite_actions(si):
    still = torch.zeros(STEPS, 3, dtype=torch.float64), torch.eye(3, dtype=torch.float64).expand(STEPS, 3, 3)

    actions = si.trajectory_to_actions(*still, *history(0.0))

    assert actions.abs().max() < 1e-9


def test_a_heading_beyond_half_a_turn_is_unwrapped(si):
    path = si.actions_to_trajectory(constant_actions(0.0, 0.15), *history(10.0))
    assert path.heading[-1] > math.pi

    fitted = si.fit(path.xyz, path.rotation, *history(10.0))

    torch.testing.assert_close(fitted.heading, path.heading, rtol=0, atol=1e-3)


@given(speed=speeds, acceleration=accelerations, curvature=curvatures)
@settings(max_examples=30)
def test_float32_agrees_with_float64(speed, acceleration, curvature):
    space = si_space()
    wide = space.actions_to_trajectory(constant_actions(acceleration, curvature), *history(speed, curvature))
    narrow = space.actions_to_trajectory(
        constant_actions(acceleration, curvature, torch.float32), *history(speed, curvature, torch.float32)
    )

    assert narrow.xyz.dtype == torch.float32
    torch.testing.assert_close(narrow.xyz.double(), wide.xyz, rtol=1e-5, atol=1e-3)


def test_leading_dimensions_are_kept_and_change_nothing(si):
    generator = torch.Generator().manual_seed(1)
    actions = torch.randn(2, 3, STEPS, 2, generator=generator) * torch.tensor([1.0, 0.02])
    xyz, rotation = history(7.0, 0.02, torch.float32)
    together = si.actions_to_trajectory(
        actions, xyz.expand(2, 3, 16, 3), rotation.expand(2, 3, 16, 3, 3), torch.full((2, 3), 7.0)
    )
    alone = si.actions_to_trajectory(actions[1, 2], xyz, rotation, torch.tensor(7.0))

    assert together.xyz.shape == (2, 3, STEPS, 3)
    assert together.speed.shape == (2, 3, STEPS + 1)
    torch.testing.assert_close(together.xyz[1, 2], alone.xyz)
    fitted = si.fit(together.xyz, together.rotation, xyz.expand(2, 3, 16, 3), rotation.expand(2, 3, 16, 3, 3))
    assert fitted.actions.shape == (2, 3, STEPS, 2)


def test_zero_actions_are_the_mean_of_the_data_not_a_steady_drive():
    driven = UnicycleActionSpace(ActionSpaceConfig(), bf16_constants=False).actions_to_trajectory(
        torch.zeros(STEPS, 2), *history(8.0, dtype=torch.float32)
    )

    torch.testing.assert_close(driven.xyz[-1, :2], torch.tensor([51.79, 0.36]), rtol=0, atol=0.01)


def test_bf16_constants_are_those_of_nvidias_runtime():
    config = UnicycleActionSpace(ActionSpaceConfig()).config

    assert (config.accel_mean, config.accel_std) == (0.029052734375, 0.6796875)
    assert (config.curvature_mean, config.curvature_std) == (0.0002689361572265625, 0.026123046875)


def test_normalising_undoes_denormalising():
    space = UnicycleActionSpace(ActionSpaceConfig())
    actions = torch.tensor([[1.0, -2.0], [0.0, 0.0]], dtype=torch.float64)

    torch.testing.assert_close(space.normalise(space.denormalise(actions)), actions)


def test_shapes_that_cannot_be_are_named(si):
    with pytest.raises(ConfigurationError, match=r"shape \(63, 2\); it has to be \[\.\.\., 64, 2\]"):
        si.actions_to_trajectory(torch.zeros(63, 2), *history(0.0))
    with pytest.raises(ConfigurationError, match=r"history has positions of shape \(16, 2\)"):
        si.estimate_v0(torch.zeros(16, 2), torch.zeros(16, 3, 3))
    with pytest.raises(
        ConfigurationError, match=r"path has positions of shape \(64, 3\) and rotations of shape \(63, 3"
    ):
        si.fit(torch.zeros(64, 3), torch.zeros(63, 3, 3), *history(0.0))


def test_a_history_with_nan_is_an_error_and_not_a_path(si):
    xyz, rotation = history(5.0)
    rotation[3] = torch.nan

    with pytest.raises(EngineError, match="NaN"):
        si.estimate_v0(xyz, rotation)


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({"accel_std": 0}, "accel_std is 0.0; it has to be positive"),
        ({"accel_bounds": [1]}, r"accel_bounds is \[1\]; it has to be a list of 2 numbers"),
        ({"n_waypoints": 64.5}, "n_waypoints is 64.5; it has to be a whole number"),
        ({"dt": "0.1"}, "dt is '0.1'; it has to be a finite number"),
    ],
)
def test_a_wrong_config_is_named(section, message):
    with pytest.raises(ConfigurationError, match=f"action_space_cfg.{message}"):
        ActionSpaceConfig.from_json({**CONSTANTS, **section})


def test_the_config_is_read_by_nvidias_names():
    config = ActionSpaceConfig.from_json(
        {"_target_": "any.UnicycleAccelCurvatureActionSpace", "accel_bounds": [-5, 5], **CONSTANTS}
    )

    assert config == ActionSpaceConfig(accel_bounds=(-5.0, 5.0), **CONSTANTS)


def test_the_constants_have_no_default_since_wrong_ones_would_not_be_noticed():
    with pytest.raises(ConfigurationError, match=r"no action_space_cfg\.accel_mean, .*curvature_std"):
        ActionSpaceConfig.from_json({"_target_": "any.UnicycleAccelCurvatureActionSpace"})

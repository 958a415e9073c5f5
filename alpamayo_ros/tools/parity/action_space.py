"""Checks action_space.npz: both directions of the unicycle, v0, bounds, other leading shapes, float64."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

import numpy as np

from alpamayo_ros.model.action_space import NORMALISATION, ActionSpaceConfig, UnicycleActionSpace
from alpamayo_ros.tools.parity.case import Case, CaseResult, Checker, Machine, close, equal

V0_TOLERANCE = 1e-4  # m/s
XYZ_TOLERANCE = 1e-3  # m
ROTATION_TOLERANCE = 1e-4
ACTION_TOLERANCE = 5e-3  # normalised units

Arrays = Mapping[str, np.ndarray]


def _cases(path: Path, machine: Machine) -> Iterator[Case]:
    with np.load(path) as file:
        arrays = dict(file)
    names = [str(name) for name in arrays["case_names"]]
    yield Case(f"{path.stem}/constants", partial(_check_constants, f"{path.stem}/constants", arrays))
    for index, name in enumerate(names):
        yield Case(f"{path.stem}/{name}", partial(_check_case, f"{path.stem}/{name}", arrays, index, machine))
    if "unbatched_index" in arrays:
        choice = int(arrays["unbatched_index"])
        yield _shaped_case(path, arrays, "unbatched", lambda values: values[choice], machine)
    for prefix in sorted({key.split("_")[0] for key in arrays if re.match(r"lead\d+(x\d+)*_", key)}):
        shape = [int(size) for size in prefix.removeprefix("lead").split("x")]
        yield _shaped_case(path, arrays, prefix, partial(_take_leading, shape=shape), machine)


def _check_constants(name: str, arrays: Arrays) -> Iterator[CaseResult]:
    rounded = _config(arrays).rounded_to_bf16()
    if "constants_bf16" in arrays:
        yield equal(f"{name}/bf16", [getattr(rounded, key) for key in NORMALISATION], arrays["constants_bf16"])


def _check_case(name: str, arrays: Arrays, index: int, machine: Machine) -> Iterator[CaseResult]:
    case = {key: values[index] for key, values in arrays.items() if values.shape[:1] == arrays["case_names"].shape}
    yield from _check_run(name, case, _config(arrays), False, machine)
    if "fut_xyz_bf16const" in case:
        with_bf16 = case | {key.removesuffix("_bf16const"): case[key] for key in case if key.endswith("_bf16const")}
        yield from _check_run(f"{name}/bf16_constants", with_bf16, _config(arrays), True, machine)
    yield from _check_float64(name, case, _config(arrays), machine)


def _check_run(
    name: str, case: Arrays, config: ActionSpaceConfig, bf16_constants: bool, machine: Machine
) -> Iterator[CaseResult]:
    space = UnicycleActionSpace(config, bf16_constants)
    history = machine.tensor(case["hist_xyz"]), machine.tensor(case["hist_rot"])
    action = machine.tensor(case["action"])
    yield close(f"{name}/v0", space.estimate_v0(*history), case["v0"], V0_TOLERANCE)
    driven = space.actions_to_trajectory(action, *history)
    yield close(f"{name}/xyz", driven.xyz, case["fut_xyz"], XYZ_TOLERANCE)
    yield close(f"{name}/rotation", driven.rotation, case["fut_rot"], ROTATION_TOLERANCE)
    future = machine.tensor(case["fut_xyz"]), machine.tensor(case["fut_rot"])
    fitted = space.fit(*future, *history)
    yield close(f"{name}/actions", fitted.actions, case["action_from_fut"], ACTION_TOLERANCE)
    if "states_v_a_theta" in case:
        speed, acceleration, heading = np.moveaxis(case["states_v_a_theta"], -1, 0)
        yield close(f"{name}/fitted_speed", fitted.speed[..., :-1], speed, V0_TOLERANCE)
        yield close(f"{name}/fitted_acceleration", fitted.actions[..., 0], acceleration, ACTION_TOLERANCE)
        yield close(f"{name}/fitted_heading", fitted.heading[..., :-1], heading, ROTATION_TOLERANCE)
    if "within_bounds" in case:
        yield equal(f"{name}/within_bounds", space.is_within_bounds(action), case["within_bounds"])
    if "action_from_noisy_fut" in case and not bf16_constants:
        noisy = machine.tensor(case["noisy_fut_xyz"]), machine.tensor(case["noisy_fut_rot"])
        actions = space.trajectory_to_actions(*noisy, *history)
        yield close(f"{name}/actions_of_noisy_path", actions, case["action_from_noisy_fut"], ACTION_TOLERANCE)
    if "given_v0" in case and not bf16_constants:
        v0 = machine.tensor(case["given_v0"])
        driven = space.actions_to_trajectory(action, *history, v0)
        yield close(f"{name}/xyz_given_v0", driven.xyz, case["fut_xyz_given_v0"], XYZ_TOLERANCE)
        yield close(f"{name}/rotation_given_v0", driven.rotation, case["fut_rot_given_v0"], ROTATION_TOLERANCE)
        future = machine.tensor(case["fut_xyz_given_v0"]), machine.tensor(case["fut_rot_given_v0"])
        actions = space.trajectory_to_actions(*future, *history, v0)
        yield close(f"{name}/actions_given_v0", actions, case["action_from_fut_given_v0"], ACTION_TOLERANCE)


def _check_float64(name: str, case: Arrays, config: ActionSpaceConfig, machine: Machine) -> Iterator[CaseResult]:
    space = UnicycleActionSpace(config, bf16_constants=False)
    history = machine.tensor(case["hist_xyz"]).double(), machine.tensor(case["hist_rot"]).double()
    driven = space.actions_to_trajectory(machine.tensor(case["action"]).double(), *history)
    if "v0_f64" in case:
        yield close(f"{name}/float64/v0", space.estimate_v0(*history), case["v0_f64"], V0_TOLERANCE)
    if "fut_xyz_f64" in case:
        yield close(f"{name}/float64/xyz", driven.xyz, case["fut_xyz_f64"], XYZ_TOLERANCE)
    for key, xyz, rotation in (
        ("action_from_fut", case["fut_xyz"], case["fut_rot"]),
        ("action_from_noisy_fut", case.get("noisy_fut_xyz"), case.get("noisy_fut_rot")),
    ):
        if f"{key}_f64" in case and xyz is not None and rotation is not None:
            actions = space.trajectory_to_actions(
                machine.tensor(xyz).double(), machine.tensor(rotation).double(), *history
            )
            yield close(f"{name}/float64/{key}", actions, case[f"{key}_f64"], ACTION_TOLERANCE)


def _shaped_case(
    path: Path, arrays: Arrays, prefix: str, take: Callable[[np.ndarray], np.ndarray], machine: Machine
) -> Case:
    inputs = {key: take(arrays[key]) for key in ("hist_xyz", "hist_rot", "action", "v0")}
    expected = {key.removeprefix(f"{prefix}_"): arrays[key] for key in arrays if key.startswith(f"{prefix}_fut")}
    case = inputs | expected | {"action_from_fut": arrays[f"{prefix}_action_from_fut"]}
    name = f"{path.stem}/{prefix}"
    return Case(name, partial(_check_run, name, case, _config(arrays), False, machine))


def _take_leading(values: np.ndarray, shape: list[int]) -> np.ndarray:
    return values[: int(np.prod(shape))].reshape(*shape, *values.shape[1:])


def _config(arrays: Arrays) -> ActionSpaceConfig:
    config = ActionSpaceConfig(n_waypoints=arrays["action"].shape[-2])
    if "constants" not in arrays:
        return config
    return config.with_constants(dict(zip(NORMALISATION, arrays["constants"].tolist(), strict=True)))


ACTION_SPACE = Checker("action_space*.npz", _cases)

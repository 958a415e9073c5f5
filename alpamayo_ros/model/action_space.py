"""The unicycle: accelerations and curvatures to a path, and back.

Formulas from NVIDIA's public code (NVlabs/alpamayo1.5, action_space/unicycle_accel_curvature.py and utils.py),
which says it in the same way for Alpamayo 1 and 1.5. Everything happens in the ego frame at t0 (x forward, y left,
z up, yaw counter-clockwise; metres, seconds, radians). Leading dimensions are arbitrary; the results have the dtype
of the input, float32 or float64.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from alpamayo_ros.core.types import ConfigurationError, EngineError
from alpamayo_ros.model.fields import read_fields

NORMALISATION = ("accel_mean", "accel_std", "curvature_mean", "curvature_std")


@dataclass(frozen=True)
class ActionSpaceConfig:
    """`action_space_cfg` of config.json, with NVIDIA's names. The defaults are the values of its checkpoints."""

    n_waypoints: int = 64
    dt: float = 0.1  # s
    accel_mean: float = 0.02902694707164455  # m/s^2
    accel_std: float = 0.6810426736454882
    curvature_mean: float = 0.0002692167976330542  # 1/m
    curvature_std: float = 0.026148280660833106
    accel_bounds: tuple[float, float] = (-9.8, 9.8)  # m/s^2; reported, never enforced
    curvature_bounds: tuple[float, float] = (-0.33, 0.33)  # 1/m
    theta_lambda: float = 1e-6
    theta_ridge: float = 1e-8
    v_lambda: float = 1e-6
    v_ridge: float = 1e-4
    a_lambda: float = 1e-4
    a_ridge: float = 1e-4
    kappa_lambda: float = 1e-4
    kappa_ridge: float = 1e-4

    def __post_init__(self) -> None:
        if self.n_waypoints < 3:
            raise ConfigurationError(f"action_space_cfg.n_waypoints is {self.n_waypoints}; it has to be at least 3")
        for name in ("dt", "accel_std", "curvature_std"):
            if getattr(self, name) <= 0:
                raise ConfigurationError(f"action_space_cfg.{name} is {getattr(self, name)}; it has to be positive")

    @classmethod
    def from_json(cls, section: Mapping[str, Any]) -> ActionSpaceConfig:
        """Read `action_space_cfg`. Its normalisation constants must be there: NVIDIA's code would go on with 0 and 1.

        Raises:
            ConfigurationError: a key that is missing or a value that can't be.
        """
        return read_fields(cls, section, "action_space_cfg", required=NORMALISATION)

    def with_constants(self, constants: Mapping[str, float]) -> ActionSpaceConfig:
        """The same with other normalisation constants: Alpamayo R1 stores the four that count in its weights."""
        return replace(self, **constants)  # type: ignore[arg-type]

    def rounded_to_bf16(self) -> ActionSpaceConfig:
        """The same with the four normalisation constants as bfloat16 holds them.

        NVIDIA's runtime builds its modules with bfloat16 as default dtype, and so drives with these values.
        """
        return self.with_constants(
            {name: torch.tensor(getattr(self, name)).bfloat16().item() for name in NORMALISATION}
        )


@dataclass(frozen=True, eq=False)
class Trajectory:
    """A path driven from t0 on. Index 0 of xyz, rotation and actions belongs to the first step."""

    xyz: Tensor  # [..., N, 3] m at t0 + dt, t0 + 2 dt, ...
    rotation: Tensor  # [..., N, 3, 3] yaw only
    speed: Tensor  # [..., N + 1] m/s, from t0 on; negative when reversing
    heading: Tensor  # [..., N + 1] rad, from t0 on, not wrapped; starts at 0
    actions: Tensor  # [..., N, 2] acceleration m/s^2 and curvature 1/m during each step


@dataclass(frozen=True, eq=False)
class FittedPath:
    """What was fitted to a path that somebody else drove."""

    actions: Tensor  # [..., N, 2] normalised
    speed: Tensor  # [..., N + 1] m/s, from t0 on
    heading: Tensor  # [..., N + 1] rad, from t0 on, not wrapped; starts at 0


class UnicycleActionSpace:
    """Turns normalised actions into trajectories and trajectories into normalised actions."""

    def __init__(self, config: ActionSpaceConfig, bf16_constants: bool = True):
        """Use `config`, with its normalisation constants rounded to bfloat16 where `bf16_constants` says so."""
        self.config = config.rounded_to_bf16() if bf16_constants else config

    def denormalise(self, actions: Tensor) -> Tensor:
        """Normalised actions [..., 2] to accelerations in m/s^2 and curvatures in 1/m."""
        c = self.config
        return torch.stack(
            (actions[..., 0] * c.accel_std + c.accel_mean, actions[..., 1] * c.curvature_std + c.curvature_mean), -1
        )

    def normalise(self, actions: Tensor) -> Tensor:
        """Accelerations in m/s^2 and curvatures in 1/m [..., 2] to normalised actions."""
        c = self.config
        return torch.stack(
            ((actions[..., 0] - c.accel_mean) / c.accel_std, (actions[..., 1] - c.curvature_mean) / c.curvature_std), -1
        )

    def is_within_bounds(self, actions: Tensor) -> Tensor:
        """Whether every step of normalised actions [..., N, 2] keeps both bounds: bool [...]."""
        acceleration, curvature = self.denormalise(actions).unbind(-1)
        low_a, high_a = self.config.accel_bounds
        low_k, high_k = self.config.curvature_bounds
        inside = (acceleration >= low_a) & (acceleration <= high_a) & (curvature >= low_k) & (curvature <= high_k)
        return inside.all(-1)

    def estimate_v0(self, history_xyz: Tensor, history_rotation: Tensor) -> Tensor:
        """The signed speed at the end of a history, in m/s.

        A regularised least-squares fit of one speed per pose to all displacements, which are the mean of the
        velocities at their ends: the last difference alone would carry the noise of two poses.

        Args:
            history_xyz: [..., H, 3] m, oldest first, `dt` apart.
            history_rotation: [..., H, 3, 3].

        Returns:
            [...] m/s.
        """
        _check_poses(history_xyz, history_rotation, "history")
        return self._fit_speeds(history_xyz[..., :2].diff(dim=-2), _yaw(history_rotation))[..., -1]

    def actions_to_trajectory(
        self, actions: Tensor, history_xyz: Tensor, history_rotation: Tensor, v0: Tensor | None = None
    ) -> Trajectory:
        """Drive normalised actions from the ego pose at t0.

            v[k+1] = v[k] + a[k] dt
            heading[k+1] = heading[k] + c[k] v[k] dt + c[k] a[k] dt^2 / 2
            p[k+1] = p[k] + (v[k] u(heading[k]) + v[k+1] u(heading[k+1])) dt / 2,  u(h) = (cos h, sin h)

        Position and heading start at 0 whatever the history ends with; its last z is kept. Nothing is clipped.

        Args:
            actions: [..., N, 2].
            history_xyz: [..., H, 3] m.
            history_rotation: [..., H, 3, 3].
            v0: [...] m/s at t0; estimated from the history when not given.
        """
        self._check_actions(actions)
        if v0 is None:
            v0 = self.estimate_v0(history_xyz, history_rotation)
        dt = self.config.dt
        physical = self.denormalise(actions)
        acceleration, curvature = physical.unbind(-1)
        speed = _starting_with(v0, v0[..., None] + (acceleration * dt).cumsum(-1))
        turn = curvature * speed[..., :-1] * dt + 0.5 * curvature * acceleration * dt**2
        heading = _starting_with(torch.zeros_like(v0), turn.cumsum(-1))
        velocity = speed[..., None] * torch.stack((heading.cos(), heading.sin()), -1)
        position = ((velocity[..., :-1, :] + velocity[..., 1:, :]) * (dt / 2)).cumsum(-2)
        height = history_xyz[..., -1:, 2].expand(position.shape[:-1])
        xyz = torch.cat((position, height[..., None].to(position.dtype)), -1)
        return Trajectory(xyz, _rotation_about_z(heading[..., 1:]), speed, heading, physical)

    def trajectory_to_actions(
        self,
        xyz: Tensor,
        rotation: Tensor,
        history_xyz: Tensor,
        history_rotation: Tensor,
        v0: Tensor | None = None,
    ) -> Tensor:
        """The normalised actions [..., N, 2] that follow a path; see `fit`."""
        return self.fit(xyz, rotation, history_xyz, history_rotation, v0).actions

    def fit(
        self,
        xyz: Tensor,
        rotation: Tensor,
        history_xyz: Tensor,
        history_rotation: Tensor,
        v0: Tensor | None = None,
    ) -> FittedPath:
        """Fit heading, speed, acceleration and curvature to a path, one after the other.

        Each has a penalty on its rate of change, so that a noisy path gives smooth actions. That makes it no exact
        inverse of `actions_to_trajectory`.

        Args:
            xyz: [..., N, 3] m in ego at t0 + dt, t0 + 2 dt, ...
            rotation: [..., N, 3, 3].
            history_xyz: [..., H, 3] m.
            history_rotation: [..., H, 3, 3].
            v0: [...] m/s at t0; estimated from the history when not given.

        Raises:
            ConfigurationError: poses of another shape.
            EngineError: the curvature can't be solved for, as with a NaN in the input.
        """
        _check_poses(xyz, rotation, "path")
        if v0 is None:
            v0 = self.estimate_v0(history_xyz, history_rotation)
        c = self.config
        start = torch.zeros_like(v0)
        heading = self._smooth_headings(_unwrap(_starting_with(start, _yaw(rotation))))
        displacement = torch.cat((xyz[..., :1, :2], xyz[..., :2].diff(dim=-2)), -2)
        speed = _starting_with(v0, self._fit_speeds(displacement, heading, v0))
        acceleration = self._fit_rates(speed.diff(dim=-1) / c.dt, c.a_lambda, c.a_ridge)
        length = c.dt * speed[..., :-1] + 0.5 * c.dt**2 * acceleration
        curvature = self._fit_rates(heading.diff(dim=-1), c.kappa_lambda, c.kappa_ridge, length)
        return FittedPath(self.normalise(torch.stack((acceleration, curvature), -1)), speed, heading)

    def _fit_speeds(self, displacement: Tensor, heading: Tensor, v0: Tensor | None = None) -> Tensor:
        """Speeds [..., M + 1] that explain M displacements [..., M, 2]; [..., M] after a v0 that is known."""
        c = self.config
        count = heading.shape[-1]
        direction = torch.stack((heading.cos(), heading.sin()), -1)  # [..., M + 1, 2]
        pairs = torch.eye(count, dtype=heading.dtype, device=heading.device)
        pairs = pairs[:-1] + pairs[1:]  # row k: the poses k and k + 1
        design = (pairs[:, None, :] * direction.transpose(-1, -2)[..., None, :, :]).flatten(-3, -2)
        target = (displacement * (2 / c.dt)).flatten(-2)
        jerk = _difference_rows(count, (-1.0, 3.0, -3.0, 1.0), heading)
        weight = c.v_lambda / c.dt**6
        if v0 is None:
            return _solve(design, target, weight * jerk.mT @ jerk, c.v_ridge)
        known = target - design[..., 0] * v0[..., None]
        pull = -weight * (jerk[:, 1:].mT @ jerk[:, 0]) * v0[..., None]
        return _solve(design[..., 1:], known, weight * jerk[:, 1:].mT @ jerk[:, 1:], c.v_ridge, pull)

    def _smooth_headings(self, heading: Tensor) -> Tensor:
        """Headings [..., N + 1] with a small third difference; the first stays as it is, at 0."""
        c = self.config
        jerk = _difference_rows(heading.shape[-1], (-1.0, 3.0, -3.0, 1.0), heading)[:, 1:]
        identity = torch.eye(heading.shape[-1] - 1, dtype=heading.dtype, device=heading.device)
        penalty = (c.theta_lambda / c.dt**6) * jerk.mT @ jerk
        return _starting_with(heading[..., 0], _solve(identity, heading[..., 1:], penalty, c.theta_ridge))

    def _fit_rates(self, target: Tensor, smoothness: float, ridge: float, scale: Tensor | None = None) -> Tensor:
        """Rates r [..., N] with scale * r close to the target and a small second difference."""
        bend = _difference_rows(target.shape[-1], (-1.0, 2.0, -1.0), target)
        penalty = (smoothness / self.config.dt**4) * bend.mT @ bend
        design = torch.diag_embed(torch.ones_like(target) if scale is None else scale)
        return _solve(design, target, penalty, ridge)

    def _check_actions(self, actions: Tensor) -> None:
        if actions.ndim < 2 or actions.shape[-2:] != (self.config.n_waypoints, 2):
            raise ConfigurationError(
                f"actions have the shape {tuple(actions.shape)}; it has to be [..., {self.config.n_waypoints}, 2]"
            )


def _solve(design: Tensor, target: Tensor, penalty: Tensor, ridge: float, pull: Tensor | None = None) -> Tensor:
    """The x that minimises |design x - target|^2 + x' penalty x + ridge |x|^2 - 2 pull' x.

    A ridge too small for the precision at hand is raised tenfold until the Cholesky factor exists, as NVIDIA's code
    does it for the curvature.
    """
    right = (design.mT @ target[..., None])[..., 0]
    if pull is not None:
        right = right + pull
    normal = design.mT @ design + penalty
    identity = torch.eye(normal.shape[-1], dtype=normal.dtype, device=normal.device)
    for attempt in range(8):
        factor, failed = torch.linalg.cholesky_ex(normal + ridge * 10**attempt * identity)
        if not failed.any():
            return torch.cholesky_solve(right[..., None], factor)[..., 0]
    raise EngineError("the poses of a path or history can't be fitted; they hold NaN or are far too large")


def _difference_rows(count: int, weights: tuple[float, ...], like: Tensor) -> Tensor:
    """The matrix [count - len(weights) + 1, count] that takes weighted differences of neighbours."""
    rows = max(count - len(weights) + 1, 0)
    matrix = torch.zeros(rows, count, dtype=like.dtype, device=like.device)
    for offset, weight in enumerate(weights):
        matrix += weight * torch.eye(count, dtype=like.dtype, device=like.device)[offset : offset + rows]
    return matrix


def _starting_with(first: Tensor, rest: Tensor) -> Tensor:
    return torch.cat((first[..., None].to(rest.dtype), rest), -1)


def _yaw(rotation: Tensor) -> Tensor:
    """Yaw [...] in rad of rotations [..., 3, 3]."""
    return torch.atan2(rotation[..., 1, 0], rotation[..., 0, 0])


def _unwrap(angle: Tensor) -> Tensor:
    """The same angles [..., M] without jumps of a whole turn from one to the next."""
    turns = torch.round(angle.diff(dim=-1) / (2 * torch.pi)).cumsum(-1)
    return _starting_with(angle[..., 0], angle[..., 1:] - 2 * torch.pi * turns)


def _rotation_about_z(heading: Tensor) -> Tensor:
    """Rotations [..., 3, 3] by headings [...] in rad."""
    cos, sin = heading.cos(), heading.sin()
    zero, one = torch.zeros_like(heading), torch.ones_like(heading)
    return torch.stack((cos, -sin, zero, sin, cos, zero, zero, zero, one), -1).unflatten(-1, (3, 3))


def _check_poses(xyz: Tensor, rotation: Tensor, name: str) -> None:
    if xyz.ndim < 2 or xyz.shape[-1] != 3 or xyz.shape[-2] < 2 or rotation.shape != (*xyz.shape, 3):
        raise ConfigurationError(
            f"the {name} has positions of shape {tuple(xyz.shape)} and rotations of shape {tuple(rotation.shape)}; "
            "they have to be [..., M, 3] and [..., M, 3, 3] with at least 2 poses"
        )

"""Checks flow_matching.npz: Euler steps, guidance and noise temperature on two analytic velocity fields.

A run's name says what it is: plain<steps>, cfg_alpha<weight>, cfg<weight>, temp<factor>, steps<steps>, bf16_velocity,
joined by underscores; 10 steps and temperature 1 where it doesn't say.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from alpamayo_ros.model.flow_matching import integrate, mix_velocities, time_grid
from alpamayo_ros.tools.parity.case import Case, CaseResult, Checker, Machine, close, equal, not_supported

TOLERANCE = 1e-5
BF16_TOLERANCE = 2e-2  # rounding the velocity makes the path chaotic
NUMBER = r"(-?\d+(?:\.\d+)?)"


@dataclass(frozen=True)
class _Run:
    steps: int = 10
    temperature: float = 1.0
    guidance_weight: float | None = None
    bf16_velocity: bool = False

    @classmethod
    def from_name(cls, name: str) -> _Run | None:
        """What the name says; None when it isn't of the grammar above."""
        pattern = rf"plain(\d+)|cfg_alpha{NUMBER}|cfg{NUMBER}|temp{NUMBER}|steps(\d+)|(bf16_velocity)"
        if not re.fullmatch(rf"(?:{pattern})(?:_(?:{pattern}))*", name):
            return None
        plain, alpha, weight, temperature, steps, bf16 = (
            next((value for value in values if value), "") for values in zip(*re.findall(pattern, name), strict=True)
        )
        return cls(
            steps=int(plain or steps or cls.steps),
            temperature=float(temperature or cls.temperature),
            guidance_weight=float(alpha or weight) if alpha or weight else None,
            bf16_velocity=bool(bf16),
        )


def _cases(path: Path, machine: Machine) -> Iterator[Case]:
    with np.load(path) as file:
        arrays = dict(file)
    if "times_float32_hex" in arrays:
        name = f"{path.stem}/times_float32_hex"
        yield Case(name, partial(_check_grid, name, arrays["times_float32_hex"], machine))
    for run in sorted({key.removesuffix("/states") for key in arrays if key.endswith("/states")}):
        yield Case(f"{path.stem}/{run}", partial(_check_run, f"{path.stem}/{run}", run, arrays, machine))


def _check_grid(name: str, expected: np.ndarray, machine: Machine) -> Iterator[CaseResult]:
    yield equal(name, time_grid(len(expected) - 1, machine.device), [float.fromhex(str(time)) for time in expected])


def _check_run(name: str, run_name: str, arrays: dict[str, np.ndarray], machine: Machine) -> Iterator[CaseResult]:
    run = _Run.from_name(run_name)
    if run is None:
        yield not_supported(name, f"a run named {run_name} is not known")
        return

    def velocity(x: Tensor, t: Tensor) -> Tensor:
        guided = _conditional(x, t)
        if run.bf16_velocity:
            guided = guided.bfloat16()
        if run.guidance_weight is None:
            return guided
        return mix_velocities(_unconditional(x, t), guided, run.guidance_weight)

    noise = machine.tensor(arrays["x0_noise"])
    flow = integrate(velocity, noise, run.steps, run.temperature)
    tolerance = BF16_TOLERANCE if run.bf16_velocity else TOLERANCE
    yield close(f"{name}/states", flow.states, arrays[f"{run_name}/states"], tolerance)
    yield equal(f"{name}/times", flow.times, arrays[f"{run_name}/times"])


def _conditional(x: Tensor, t: Tensor) -> Tensor:
    return torch.cos(2 * x + 3 * t) - 0.5 * x


def _unconditional(x: Tensor, t: Tensor) -> Tensor:
    return torch.sin(x) * (1 - t) + 0.25 * x.flip(-1)


FLOW_MATCHING = Checker("flow_matching*.npz", _cases)

"""Checks action_in_proj.npz: frequencies, Fourier features, and the module's output in float32 and bfloat16."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from alpamayo_ros.model.action_projection import ActionProjection, ActionProjectionConfig
from alpamayo_ros.tools.parity.case import Case, CaseResult, Checker, Machine, close

FLOAT32_TOLERANCE = 1e-3  # angles reach 2 pi 100 x
BF16_TOLERANCE = 0.10
MODEL_PREFIX = "out_bf16_x_bf16_"

Arrays = dict[str, np.ndarray]


def _cases(path: Path, machine: Machine) -> Iterator[Case]:
    with np.load(path) as file:
        arrays = dict(file)
    for name, suffix, bf16_constants in (("float32", "", False), ("bf16_constants", "_bf16freqs", True)):
        yield Case(
            f"{path.stem}/{name}",
            partial(_check_float32, f"{path.stem}/{name}", arrays, suffix, bf16_constants, machine),
        )
    if "out_bf16_autocast_cpu" in arrays:
        yield Case(
            f"{path.stem}/bf16_autocast", partial(_check_autocast, f"{path.stem}/bf16_autocast", arrays, machine)
        )
    for key in sorted(key for key in arrays if key.startswith(MODEL_PREFIX)):
        name = f"{path.stem}/bf16_inputs_{key.removeprefix(MODEL_PREFIX)}"
        yield Case(name, partial(_check_bf16_inputs, name, arrays, key, machine))


def _check_float32(
    name: str, arrays: Arrays, suffix: str, bf16_constants: bool, machine: Machine
) -> Iterator[CaseResult]:
    module = _module(arrays, bf16_constants, machine)
    inputs = _inputs(arrays, machine)
    key = "freqs_bf16" if bf16_constants else "freqs_fp32"
    if key in arrays:
        yield close(f"{name}/frequencies", module.frequencies, arrays[key].reshape(-1), FLOAT32_TOLERANCE)
    if f"features_fp32{suffix}" in arrays:
        features = module.fourier_features(*inputs)
        yield close(f"{name}/features", features, arrays[f"features_fp32{suffix}"], FLOAT32_TOLERANCE)
    if f"out_fp32{suffix}" in arrays:
        yield close(f"{name}/output", module(*inputs), arrays[f"out_fp32{suffix}"], FLOAT32_TOLERANCE)


def _check_autocast(name: str, arrays: Arrays, machine: Machine) -> Iterator[CaseResult]:
    module = _module(arrays, bf16_constants=True, machine=machine).bfloat16()
    with torch.autocast(machine.device.type, dtype=torch.bfloat16):
        output = module(*_inputs(arrays, machine))
    yield close(name, output, arrays["out_bf16_autocast_cpu"], BF16_TOLERANCE)


def _check_bf16_inputs(name: str, arrays: Arrays, key: str, machine: Machine) -> Iterator[CaseResult]:
    module = _module(arrays, bf16_constants=True, machine=machine).bfloat16()
    module.upcast_inputs = key.removeprefix(MODEL_PREFIX) == "alpamayo_r1"
    with torch.autocast(machine.device.type, dtype=torch.bfloat16):
        output = module(*(each.bfloat16() for each in _inputs(arrays, machine)))
    yield close(name, output, arrays[key], BF16_TOLERANCE)


def _inputs(arrays: Arrays, machine: Machine) -> tuple[Tensor, Tensor]:
    return machine.tensor(arrays["x"]), machine.tensor(arrays["timesteps"])


def _module(arrays: Arrays, bf16_constants: bool, machine: Machine) -> ActionProjection:
    weights = {
        key.removeprefix("weight/"): torch.from_numpy(arrays[key]) for key in arrays if key.startswith("weight/")
    }
    hidden, features = weights["encoder.trunk.0.weight"].shape
    layers = sum(weight.ndim == 2 for weight in weights.values()) - 1
    config = ActionProjectionConfig(hidden, layers, float(arrays["freqs_fp32"].max()), features // 3)
    module = ActionProjection(config, weights["norm.weight"].shape[0], bf16_constants)
    module.load_state_dict(weights)
    return module.to(machine.device).eval()


ACTION_PROJECTION = Checker("action_in_proj*.npz", _cases)

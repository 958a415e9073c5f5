"""The vision tower's rotation by a kernel is the plain one."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton", reason="needs Triton: make test-kernels")

from alpamayo_ros.engine.kernels.vision_rotary import rotate_in_place
from alpamayo_ros.engine.native.vision_tower import _rotate_in_place


@pytest.mark.parametrize(("heads", "dim"), [(16, 72), (2, 16), (3, 20)])
def test_queries_and_keys_turn_and_values_stay(heads: int, dim: int, dtype: torch.dtype, device: torch.device) -> None:
    generator = torch.Generator().manual_seed(0)
    plain = torch.randn(5, 3, heads, dim, generator=generator).to(device, dtype)
    kernel = plain.clone()
    angle = torch.rand(5, dim // 2, generator=generator).repeat(1, 2).to(device) * 6
    rotate_in_place(kernel, angle.cos(), angle.sin())
    values = plain[:, 2].clone()
    _rotate_in_place(plain, angle.cos(), angle.sin())
    tolerance = {torch.float32: 1e-6, torch.float16: 2e-3, torch.bfloat16: 2e-2}[dtype]
    torch.testing.assert_close(kernel, plain, atol=tolerance, rtol=tolerance)
    assert torch.equal(kernel[:, 2], values)

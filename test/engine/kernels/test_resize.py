"""The resize by kernels is the one in fixed point, bit for bit."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton", reason="needs Triton: make test-kernels")

from alpamayo_ros.engine.kernels.resize import resize
from alpamayo_ros.model.resize import resize_in_fixed_point


@pytest.mark.parametrize(
    ("old", "new"), [((54, 96), (32, 58)), ((20, 30), (40, 64)), ((33, 40), (33, 20)), ((40, 33), (20, 33))]
)
def test_every_level_is_the_same(old: tuple[int, int], new: tuple[int, int], device: torch.device) -> None:
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 256, (2, *old, 3), generator=generator, dtype=torch.uint8).to(device)
    images = pixels.permute(0, 3, 1, 2)  # as a decoded picture lies in memory
    assert torch.equal(resize(images, *new), resize_in_fixed_point(images, *new))

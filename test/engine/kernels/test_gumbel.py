"""The noise that a kernel makes is the noise of the sampling's definition."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton", reason="needs Triton: make test-kernels")

from alpamayo_ros.engine.kernels.gumbel import gumbel_rows
from alpamayo_ros.engine.native.philox import token_key
from alpamayo_ros.engine.sampling import gumbel_noise


@pytest.mark.parametrize("size", [7, 1024, 2500])
def test_the_noise_is_that_of_every_key(size: int, device: torch.device) -> None:
    keys = [(0, 0, 0), (3, 1, 2), (2**64 - 5, 2**31 - 1, 2**31 - 1), (-7, 0, 255)]
    noise = gumbel_rows(torch.tensor([token_key(*key) for key in keys], device=device), size)
    for row, key in zip(noise, keys, strict=True):
        torch.testing.assert_close(row.cpu(), gumbel_noise(*key, size), atol=0, rtol=1e-6)

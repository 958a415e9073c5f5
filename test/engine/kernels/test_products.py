"""Products of few rows, and what stands between them, agree with plain torch in float32."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional

pytest.importorskip("triton", reason="needs Triton: make test-kernels")

from alpamayo_ros.engine.kernels import between_products
from alpamayo_ros.engine.kernels.between_products import (
    Destination,
    HeadNorms,
    add_and_norm,
    gate,
    norm_and_rotate,
)
from alpamayo_ros.engine.kernels.matvec import MatvecTiles, gated_linear, gated_matvec, linear, matvec
from alpamayo_ros.engine.kernels.skinny_product import Tiles, gated_product, product, split_product
from alpamayo_ros.model import pointwise

TOLERANCE = {torch.float32: 2e-5, torch.float16: 5e-3, torch.bfloat16: 3e-2}  # of outputs of about 1
EPS = 1e-6


def near(left: Tensor, right: Tensor, dtype: torch.dtype) -> None:
    torch.testing.assert_close(left.float(), right.float(), atol=TOLERANCE[dtype], rtol=TOLERANCE[dtype])


def normed(x: Tensor, weight: Tensor) -> Tensor:
    return pointwise.norm(x.float(), weight.float(), EPS)


class Numbers:
    """Inputs of one product, with outputs of about 1."""

    def __init__(self, rows: int, inner: int, columns: int, dtype: torch.dtype, device: torch.device) -> None:
        torch.manual_seed(0)
        make = lambda *shape: torch.randn(*shape, device=device)  # noqa: E731
        self.x = make(rows, inner).to(dtype)
        self.weight = (make(columns, inner) / inner**0.5).to(dtype)
        self.norm = (1 + 0.1 * make(inner)).to(dtype)
        self.residual = make(rows, columns).to(dtype)


SHAPES = [(1, 64, 48), (3, 96, 80), (16, 128, 64), (70, 80, 33)]


@pytest.mark.parametrize(("rows", "inner", "columns"), SHAPES)
def test_a_product_as_it_is_and_added(
    rows: int, inner: int, columns: int, dtype: torch.dtype, device: torch.device
) -> None:
    numbers = Numbers(rows, inner, columns, dtype, device)
    tiles = Tiles(columns=16, inner=32, warps=4, stages=3)
    weight = numbers.weight.float()
    near(product(numbers.x, numbers.weight, tiles), numbers.x.float() @ weight.T, dtype)
    added = product(numbers.x, numbers.weight, tiles, numbers.residual)
    near(added, numbers.x.float() @ weight.T + numbers.residual.float(), dtype)


@pytest.mark.parametrize(("rows", "inner", "columns"), SHAPES)
def test_a_gated_product(rows: int, inner: int, columns: int, dtype: torch.dtype, device: torch.device) -> None:
    numbers = Numbers(rows, inner, 2 * columns, dtype, device)
    tiles = Tiles(columns=16, inner=32, warps=4, stages=3)
    weight = numbers.weight.float()
    both = numbers.x.float() @ weight.T
    up, down = both.chunk(2, -1)
    near(gated_product(numbers.x, numbers.weight, tiles), functional.silu(up) * down, dtype)
    near(gate(both.to(dtype)), functional.silu(up) * down, dtype)


@pytest.mark.parametrize(("inner", "columns"), [(64, 48), (100, 33)])
def test_a_product_with_one_row(inner: int, columns: int, dtype: torch.dtype, device: torch.device) -> None:
    numbers = Numbers(1, inner, 2 * columns, dtype, device)
    tiles, weight = MatvecTiles(columns=4, inner=32, warps=4), numbers.weight.float()
    for norm in (None, numbers.norm):
        expected = (numbers.x.float() if norm is None else normed(numbers.x, norm)) @ weight.T
        near(matvec(numbers.x, numbers.weight, tiles, norm, EPS), expected, dtype)
        added = matvec(numbers.x, numbers.weight, tiles, norm, EPS, numbers.residual)
        near(added, expected + numbers.residual.float(), dtype)
        up, down = expected.chunk(2, -1)
        near(gated_matvec(numbers.x, numbers.weight, tiles, norm, EPS), functional.silu(up) * down, dtype)


@pytest.mark.parametrize("rows", [1, 5])
def test_products_of_decoding_choose_their_kernel(rows: int, dtype: torch.dtype, device: torch.device) -> None:
    numbers = Numbers(rows, 256, 96, dtype, device)
    expected = normed(numbers.x, numbers.norm) @ numbers.weight.float().T
    added = linear(numbers.x, numbers.weight, numbers.norm, EPS, numbers.residual)
    near(added, expected + numbers.residual.float(), dtype)
    up, down = expected.chunk(2, -1)
    near(gated_linear(numbers.x, numbers.weight, numbers.norm, EPS), functional.silu(up) * down, dtype)


@pytest.mark.parametrize("splits", [1, 2, 3])
@pytest.mark.parametrize(("rows", "inner", "columns"), SHAPES)
def test_parts_of_a_product_added_to_the_residual_stream(
    rows: int, inner: int, columns: int, splits: int, dtype: torch.dtype, device: torch.device
) -> None:
    numbers = Numbers(rows, inner, columns, dtype, device)
    parts = split_product(numbers.x, numbers.weight, Tiles(16, 32, 4, 3, splits))
    assert parts.shape == (splits, rows, columns)
    hidden = numbers.residual.clone()
    weight = torch.randn(columns, device=device).to(dtype)
    result = add_and_norm(hidden, parts, weight, EPS)
    total = numbers.residual.float() + numbers.x.float() @ numbers.weight.float().T
    near(hidden, total, dtype)
    near(result, normed(total, weight), dtype)
    unchanged = hidden.clone()
    near(add_and_norm(hidden, None, weight, EPS), normed(unchanged, weight), dtype)
    assert torch.equal(hidden, unchanged)


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("paged", [False, True])
@pytest.mark.parametrize("many", [False, True])  # a program for each KV head, or for each token
@pytest.mark.parametrize(("heads", "kv_heads"), [(4, 2), (6, 2), (9, 3)])
def test_norm_and_rotation_of_heads(
    count: int,
    paged: bool,
    many: bool,
    heads: int,
    kv_heads: int,
    dtype: torch.dtype,
    device: torch.device,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(between_products, "MANY_TOKENS", 1 if many else 1000)
    torch.manual_seed(0)
    rows, samples, tokens, dim, size = 2, 3, 4, 32, 16
    total = rows * samples * tokens
    parts = torch.randn(count, total, (heads + 2 * kv_heads) * dim, device=device).to(dtype if count == 1 else None)
    norms = HeadNorms(*(1 + 0.1 * torch.randn(2, dim, device=device)).to(dtype), EPS)
    angle = torch.rand(rows, tokens, dim // 2, device=device).repeat(1, 1, 2) * 6
    cosines, sines = angle.cos().to(dtype), angle.sin().to(dtype)
    if paged:
        cache = torch.zeros(total, 2, size, kv_heads, dim, device=device, dtype=dtype)
        slots = torch.randperm(total * size, device=device)[:total]
        to = Destination(cache[:, 0], cache[:, 1], slots)
    else:
        own = torch.zeros(2, total, 1, kv_heads, dim, device=device, dtype=dtype)
        to, slots = Destination(*own), torch.arange(total, device=device)
    query = norm_and_rotate(parts, norms, cosines, sines, samples, to)
    states = parts.float().sum(0).view(rows, samples, tokens, heads + 2 * kv_heads, dim)
    asked, keys, values = states.split((heads, kv_heads, kv_heads), 3)
    turn = lambda x, weight: pointwise.norm_and_rotate(  # noqa: E731
        x, weight.float(), EPS, cosines.float(), sines.float()
    ).flatten(0, 2)
    near(query, turn(asked, norms.query), dtype)
    place = slots // to.keys.shape[1], slots % to.keys.shape[1]
    near(to.keys[place], turn(keys, norms.key), dtype)
    near(to.values[place], values.flatten(0, 2), dtype)
    if paged:
        assert int((to.keys != 0).any(-1).any(-1).sum()) == total, "nothing else is written"

"""Blocks are given out once, shared by branches, and copied only where two branches would write."""

from __future__ import annotations

import pytest
import torch

from alpamayo_ros.core.types import EngineError
from alpamayo_ros.engine.native.kv_cache import BLOCK_SIZE, KVPool, PagedCache
from alpamayo_ros.model.geometry import DecoderGeometry

GEOMETRY = DecoderGeometry(32, 64, 2, 4, 2, 8, 1e-6, 1e4)


@pytest.fixture
def pool() -> KVPool:
    return KVPool(GEOMETRY, 20 * BLOCK_SIZE, torch.device("cpu"), torch.float32)


def write(pool: KVPool, cache: PagedCache, row: int, first: int, values: list[float]) -> None:
    """Put one number into every key and value of consecutive tokens of a row."""
    for index, value in enumerate(values, first):
        block = cache.rows[row][index // BLOCK_SIZE]
        for layer in pool.layers:
            layer.keys[block, index % BLOCK_SIZE] = value
            layer.values[block, index % BLOCK_SIZE] = -value


def read(cache: PagedCache, row: int) -> list[float]:
    keys, values = cache.written(1)
    assert torch.equal(keys, -values)
    return keys[row, 0, :, 0].tolist()


def opened(pool: KVPool, capacity: int, tokens: int, padding: tuple[int, ...] = (0,)) -> PagedCache:
    cache = PagedCache(pool, capacity)
    cache.open(padding)
    for row, empty in enumerate(padding):
        write(pool, cache, row, 0, [100.0 * row + i + 1 for i in range(tokens - empty)])
    cache.grow(tokens)
    return cache


def test_a_row_lies_in_one_piece_and_never_in_block_0(pool: KVPool) -> None:
    cache = PagedCache(pool, 3 * BLOCK_SIZE + 1)
    starts = cache.open((0, 20))
    assert cache.rows == [(1, 2, 3, 4), (5, 6)]
    assert starts == [BLOCK_SIZE, 5 * BLOCK_SIZE]


@pytest.mark.parametrize("length", [BLOCK_SIZE, BLOCK_SIZE + 5])
def test_branches_share_what_is_full_and_go_on_alone(pool: KVPool, length: int) -> None:
    cache = opened(pool, 40, 30)
    before = read(cache, 0)
    branch = cache.branch([0, 0, 0], length, length + 20)
    assert {blocks[0] for blocks in branch.rows} == {cache.rows[0][0]}
    own = [set(blocks[1:]) for blocks in branch.rows]
    assert not own[0] & own[1]
    assert not any(each & set(cache.rows[0]) for each in own)
    for row in range(3):
        assert read(branch, row) == before[:length]
        write(pool, branch, row, length, [1000.0 + row] * 3)
    branch.grow(3)
    for row in range(3):
        assert read(branch, row) == [*before[:length], *[1000.0 + row] * 3]
    assert read(cache, 0) == before


def test_only_full_blocks_of_branches_are_shared(pool: KVPool) -> None:
    cache = opened(pool, 40, 30)
    assert cache.shared() == 0
    assert cache.branch([0, 0, 0], 30, 40).shared() == BLOCK_SIZE
    assert opened(pool, 40, 30, padding=(0, 0)).shared() == 0


def test_rows_of_different_lengths_branch_by_columns(pool: KVPool) -> None:
    cache = opened(pool, 40, 30, padding=(0, 9))
    branch = cache.branch([1, 0, 1], 28, 33)
    assert branch.padding == (9, 0, 9)
    assert branch.lengths() == [19, 28, 19]
    assert read(branch, 0) == [0.0] * 9 + [101.0 + i for i in range(19)]
    assert read(branch, 1) == [1.0 + i for i in range(28)]


def test_a_prefix_names_the_blocks_that_hold_it(pool: KVPool) -> None:
    cache = opened(pool, 60, 50, padding=(0, 10))
    first, second = cache.prefix([33, 51], (0, 10), (-5, -15))
    assert (first.block_ids, first.length, first.first_position) == (cache.rows[0][:3], 33, 28)
    assert (second.block_ids, second.length, second.first_position) == (cache.rows[1][:3], 40, 36)


def test_a_block_table_is_filled_up_with_the_block_that_nobody_reads(pool: KVPool) -> None:
    cache = opened(pool, 40, 30)
    assert cache.table(5).tolist() == [[1, 2, 3, 0, 0]]


def test_what_is_used_up_is_an_error_and_a_new_tick_has_it_all(pool: KVPool) -> None:
    PagedCache(pool, 20 * BLOCK_SIZE).open((0,))
    with pytest.raises(EngineError, match="has 0 blocks of 16 tokens left, and the tick needs 1 more"):
        PagedCache(pool, 1).open((0,))
    pool.give_back_all()
    PagedCache(pool, 20 * BLOCK_SIZE).open((0,))

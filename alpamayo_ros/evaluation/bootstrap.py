"""How sure a mean over ticks is.

Ticks of one drive overlap: two of them, 0.5 s apart, are judged by almost the same 6.4 s. So not ticks are drawn anew
but stretches of a drive as long as the horizon (a block bootstrap), or the intervals would be far too narrow.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from alpamayo_ros.core.types import HORIZON, STEP_NS

BLOCK_NS = HORIZON * STEP_NS  # a prediction's length
MIN_BLOCKS = 5  # of fewer an interval would say nothing
DRAWS = 2000
CONFIDENCE = 0.95
SEED = 0  # the same ticks give the same interval


def blocks(t0_ns: Sequence[int]) -> NDArray[np.int64]:
    """[n] the number of the stretch that each tick belongs to: no stretch is longer than a prediction.

    Ticks are in their order; where time goes back, as from one bag to the next, a stretch ends.
    """
    numbers, number, start, before = [], -1, 0, 0
    for stamp in t0_ns:
        if number < 0 or stamp < before or stamp - start >= BLOCK_NS:
            number, start = number + 1, stamp
        before = stamp
        numbers.append(number)
    return np.array(numbers, dtype=np.int64)


def mean_interval(values: Sequence[float], t0_ns: Sequence[int]) -> dict[str, Any]:
    """The mean over ticks with its interval at 95 %: `n`, `blocks`, `mean`, `low`, `high`.

    Percentiles of the means of redrawn blocks (Efron). Both ends are None where there are less than MIN_BLOCKS blocks.
    """
    found: dict[str, Any] = {"n": len(values), "blocks": 0, "mean": None, "low": None, "high": None}
    if not values:
        return found
    of_block = blocks(t0_ns)
    count = int(of_block[-1]) + 1
    found |= {"blocks": count, "mean": float(np.mean(values))}
    if count < MIN_BLOCKS:
        return found
    sums = np.bincount(of_block, weights=np.asarray(values, float), minlength=count)
    sizes = np.bincount(of_block, minlength=count)
    drawn = _drawn(count)
    means = (drawn @ sums) / (drawn @ sizes)
    low, high = np.percentile(means, [50 * (1 - CONFIDENCE), 50 * (1 + CONFIDENCE)])
    return found | {"low": float(low), "high": float(high)}


@lru_cache(maxsize=4)
def _drawn(count: int) -> NDArray[np.float64]:
    """[DRAWS, count] how often each block is drawn."""
    return np.random.default_rng(SEED).multinomial(count, np.full(count, 1 / count), size=DRAWS).astype(np.float64)

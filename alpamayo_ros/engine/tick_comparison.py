"""A recorded tick and what the engine gives for it now, side by side."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

import numpy as np

from alpamayo_ros.core.checks import check_prediction
from alpamayo_ros.core.types import STEP_NS, Prediction
from alpamayo_ros.engine.base import Engine
from alpamayo_ros.engine.tick_file import RecordedTick


@dataclass(frozen=True)
class Comparison:
    """Whether the answers are the same, and how far they are apart in words."""

    same: bool
    lines: tuple[str, ...]


def run_again(engine: Engine, tick: RecordedTick) -> RecordedTick:
    """The same tick with what the engine gives now, be it an error."""
    started = time.monotonic()
    try:
        prediction = engine.predict(tick.observation, tick.options)
    except Exception as error:  # as the recorder does: it is what is compared
        again = replace(tick, prediction=None, error=f"{type(error).__name__}: {error}", finished=True)
    else:
        again = replace(tick, prediction=prediction, error="", finished=True)
    return replace(again, engine_ms=(time.monotonic() - started) * 1e3)


def compare(recorded: RecordedTick, now: RecordedTick, tolerance: float) -> Comparison:
    """Compare two runs of one tick.

    Args:
        recorded: from a file.
        now: the same, run again.
        tolerance: m; trajectories are the same up to this.
    """
    if not recorded.finished:
        return Comparison(True, ("nothing was recorded to compare with", *_fault("now", now)))
    faults = (*_fault("recorded", recorded), *_fault("now", now))
    if recorded.prediction is None or now.prediction is None:
        return Comparison(recorded.error == now.error, faults)
    same_xyz, xyz = _compare_xyz(recorded.prediction, now.prediction, tolerance)
    same_tokens, tokens = _compare_tokens(recorded.prediction, now.prediction)
    return Comparison(same_xyz and same_tokens, (xyz, tokens, *faults))


def _compare_xyz(recorded: Prediction, now: Prediction, tolerance: float) -> tuple[bool, str]:
    a, b = np.asarray(recorded.xyz, float), np.asarray(now.xyz, float)
    if a.shape != b.shape:
        return False, f"xyz        shape {list(b.shape)}, recorded {list(a.shape)}"
    if not a.size:
        return True, "xyz        empty, as recorded"
    with np.errstate(invalid="ignore"):  # infinity minus infinity
        apart = np.where(np.isnan(a) & np.isnan(b) | (a == b), 0.0, np.abs(a - b))
    apart = np.where(np.isnan(apart), np.inf, apart)
    worst = float(apart.max())
    sample, point = (int(i) for i in np.unravel_index(int(apart.argmax()), a.shape)[:2])
    where = f", in sample {sample} at t0 + {(point + 1) * STEP_NS * 1e-9:.1f} s" if worst else ""
    return worst <= tolerance, f"xyz        at most {worst:.6f} m apart{where} (tolerance {tolerance:g} m)"


def _compare_tokens(recorded: Prediction, now: Prediction) -> tuple[bool, str]:
    pairs = list(zip(recorded.reasoning_token_ids, now.reasoning_token_ids, strict=False))
    if len(recorded.reasoning_token_ids) != len(now.reasoning_token_ids):
        return (
            False,
            f"tokens     of {len(now.reasoning_token_ids)} samples, recorded {len(recorded.reasoning_token_ids)}",
        )
    for sample, (a, b) in enumerate(pairs):
        if a != b:
            first = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
            texts = f"{now.reasoning[sample]!r}, recorded {recorded.reasoning[sample]!r}"
            return False, f"tokens     of sample {sample} differ from token {first} on: {texts}"
    if recorded.reasoning != now.reasoning:
        return False, f"text       {now.reasoning!r}, recorded {recorded.reasoning!r}"
    return True, f"tokens     the same, {sum(len(a) for a, _ in pairs)} in {len(pairs)} samples"


def _fault(which: str, tick: RecordedTick) -> tuple[str, ...]:
    """Why this answer is not fit to be published."""
    if tick.prediction is None:
        return ()
    bad = check_prediction(tick.prediction, tick.observation)
    return () if bad is None else (f"{which:<10} {bad.describe()}",)

"""What a process uses over time, and whether that grows."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from alpamayo_ros.core.types import AlpamayoError

FITTED = 0.8  # of the samples, the last: before that a process takes what it keeps
LEAST_SAMPLES = 10


@dataclass(frozen=True)
class Sample:
    """A process after so many ticks."""

    ticks: int
    rss_mb: float
    handles: int  # open files and sockets
    threads: int
    latency_ms: float  # median of the ticks since the last sample; NaN when there were none


@dataclass(frozen=True)
class Bound:
    """How much a number may grow from the beginning of the fitted part to its end."""

    name: str  # of a field of Sample
    least: float
    share: float = 0.0  # of the value at the end, where that is more: a large process has larger crumbs

    def allowed(self, samples: Sequence[Sample]) -> float:
        """How much it may grow."""
        return max(self.least, self.share * getattr(samples[-1], self.name))


BOUNDS = (Bound("rss_mb", 3.0, share=0.01), Bound("handles", 2.0), Bound("threads", 1.0))


def take_sample(pid: int, ticks: int, latency_ms: float) -> Sample:
    """What the process uses now, by /proc.

    Raises:
        FileNotFoundError: it has ended.
    """
    status = Path(f"/proc/{pid}/status").read_text().splitlines()
    fields = dict(line.split(":", 1) for line in status)
    return Sample(
        ticks=ticks,
        rss_mb=int(fields["VmRSS"].split()[0]) / 1024,
        handles=len(os.listdir(f"/proc/{pid}/fd")),
        threads=int(fields["Threads"]),
        latency_ms=latency_ms,
    )


def growth(samples: Sequence[Sample], name: str) -> float:
    """How much a field grows over the last 80 % of the samples: the slope of a least-squares line times its length.

    Raises:
        AlpamayoError: there are too few samples for a line to mean anything.
    """
    if len(samples) < LEAST_SAMPLES:
        raise AlpamayoError(f"there are {len(samples)} samples, and a line needs at least {LEAST_SAMPLES}: run longer")
    fitted = samples[round(len(samples) * (1 - FITTED)) :]
    ticks = np.array([sample.ticks for sample in fitted], dtype=np.float64)
    values = np.array([getattr(sample, name) for sample in fitted], dtype=np.float64)
    slope = np.polyfit(ticks - ticks[0], values, 1)[0]
    return float(slope * (ticks[-1] - ticks[0]))


def leaks(samples: Sequence[Sample], bounds: Sequence[Bound] = BOUNDS) -> list[str]:
    """What grows beyond its bound, in words; empty when nothing does. Raises as `growth` does."""
    found = []
    for bound in bounds:
        grown = growth(samples, bound.name)
        if grown > bound.allowed(samples):
            found.append(
                f"{bound.name} grows: by {grown:.2f} over the last {FITTED:.0%} of {samples[-1].ticks} ticks, "
                f"allowed is {bound.allowed(samples):.3g}"
            )
    return found

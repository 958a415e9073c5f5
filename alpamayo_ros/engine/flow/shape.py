"""What a flow is made for."""

from __future__ import annotations

from dataclasses import dataclass

CAPTURED_SAMPLES = (1, 6, 16)  # and the most that there can be


@dataclass(frozen=True)
class FlowShape:
    """What a flow's buffers and graph are made for; the lengths of the prefixes are not part of it."""

    rows: int  # R prefixes
    samples: int  # G trajectories after each
    guided: bool  # with as many prefixes again, without the route, in the same batch
    steps: int  # of Euler's method

    @property
    def trajectories(self) -> int:
        """R G."""
        return self.rows * self.samples


def shapes_to_capture(steps: int, max_samples: int) -> tuple[FlowShape, ...]:
    """For ticks of so many steps; other numbers of samples take the next larger one."""
    counts = sorted({min(count, max_samples) for count in (*CAPTURED_SAMPLES, max_samples)})
    rows_and_samples = [(1, count) for count in counts] + [(count, 1) for count in counts if count > 1]
    return tuple(FlowShape(*each, guided, steps) for each in rows_and_samples for guided in (False, True))

"""What a flow is made for."""

from __future__ import annotations

from dataclasses import dataclass


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

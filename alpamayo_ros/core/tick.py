"""A tick in the making: four sets in a row, and what each camera still lacks for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from alpamayo_ros.core.frames import CameraBuffer, Choice
from alpamayo_ros.core.lattice import FrameSet
from alpamayo_ros.core.types import FRAMES_PER_CAMERA


@dataclass(frozen=True, eq=False)
class Tick:
    """Four sets in a row; t0 is the stamp of the last one's anchor frame."""

    sets: tuple[FrameSet, ...]
    anchor: CameraBuffer

    @property
    def t0_ns(self) -> int:
        """Stamp of the newest anchor frame."""
        entry = self.sets[-1].anchor.entry
        assert entry is not None  # `ticks` makes none without
        return entry.stamp_ns

    @property
    def anchor_arrival_ns(self) -> int:
        """When that frame came, by the node's clock."""
        entry = self.sets[-1].anchor.entry
        assert entry is not None
        return entry.arrival_ns

    def choices(self, camera: CameraBuffer) -> list[Choice | None]:
        """One per set, oldest first; None where the anchor itself has no frame."""
        if camera is self.anchor:
            return [each.anchor for each in self.sets]
        return [each.choice(camera.name) for each in self.sets]

    def has(self, camera: CameraBuffer) -> bool:
        """Whether the camera has a frame in each set."""
        return all(choice is not None and choice.frame is not None for choice in self.choices(camera))

    def is_final(self, camera: CameraBuffer) -> bool:
        """Whether no frame that is still under way can change what was chosen of a camera."""
        return all(choice is not None and choice.final for choice in self.choices(camera))


def ticks(sets: Sequence[FrameSet], anchor: CameraBuffer) -> list[Tick]:
    """Every tick that these sets give, oldest first; its last set has an anchor frame."""
    return [
        Tick(tuple(sets[last - FRAMES_PER_CAMERA + 1 : last + 1]), anchor)
        for last in range(FRAMES_PER_CAMERA - 1, len(sets))
        if sets[last].has_anchor
    ]

"""Which ticks are drawn more often: most of a drive is a free straight road, and most mistakes are made elsewhere."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from alpamayo_ros.core.types import ConfigurationError
from alpamayo_ros.sim.sentences import SENTENCE_CLASSES, Reason
from alpamayo_ros.training.examples import DriveExamples

BENDS = (
    Reason.SLOW_FOR_LEFT_BEND,
    Reason.SLOW_FOR_RIGHT_BEND,
    Reason.FOLLOW_LEFT_BEND,
    Reason.FOLLOW_RIGHT_BEND,
)


@dataclass(frozen=True)
class Emphasis:
    """How many times as often as one on a free straight road a tick is drawn; the largest that applies counts."""

    cars: float = 1.0  # behind a car that is within the driver's sight
    roads: float = 1.0  # where the navigation speaks of a junction, and where the reason is a bend

    def __post_init__(self) -> None:
        if min(self.cars, self.roads) < 1:
            raise ConfigurationError(f"ticks are drawn by {self}; a weight has to be 1 or more")

    def weights(self, drive: DriveExamples) -> Tensor:
        """Those of a drive's ticks, [M] float64."""
        in_bend = np.isin(drive.sentences, [SENTENCE_CLASSES[reason] for reason in BENDS])
        by_road = np.where(in_bend | (drive.navigation != ""), self.roads, 1.0)
        by_car = np.where(np.isnan(drive.cars[:, 0]), 1.0, self.cars)
        return torch.from_numpy(np.maximum(by_road, by_car))


EVENLY = Emphasis()

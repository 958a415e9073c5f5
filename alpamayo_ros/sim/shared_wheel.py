"""A learner drives, and the expert driver takes the wheel where it is lost: data of the learner's own mistakes.

What the expert shows does not tell how to get out of where a learner's own mistakes take it (Ross, Gordon, Bagnell:
A Reduction of Imitation Learning and Structured Prediction to No-Regret Online Learning, 2011, DAgger). Here the
learner's paths are followed as in the closed loop, and the expert only says what it would do.
"""

from __future__ import annotations

from alpamayo_ros.core.types import Observation
from alpamayo_ros.sim.driver import decide
from alpamayo_ros.sim.follower import FollowedPath, Follower
from alpamayo_ros.sim.journey import STEP_S, Journey
from alpamayo_ros.sim.policies import Moment, Policy

LATENCY_S = 0.1  # from a path's t0 until it is followed
ASKED_EVERY = 2  # ticks: half as often as in the closed loop, since asking is what takes time
TAKEN_FROM, GIVEN_BACK = 2.0, 0.4  # m off the lane's middle
SHORTEST_S = 2.0  # that the expert keeps the wheel
STANDS, STANDS_S = 0.1, 3.0  # m/s, and s for which the learner may stand where the expert would go


class SharedWheel:
    """Who drives: the expert at first, then the learner, and the expert for a while when the learner is lost."""

    def __init__(self, learner: Policy) -> None:
        self._learner, self._follower = learner, Follower(LATENCY_S)
        self._tick = 0
        self._taken_s = -SHORTEST_S  # when the expert took the wheel
        self._asked_s: float | None = None  # since when the learner is asked for paths
        self._stands_s = 0.0
        self.expert_drives = True

    def look(self, observation: Observation | None, journey: Journey) -> None:
        """A tick has come; the observation is None while the history is too short."""
        self._hand_over(journey)
        asked = self._tick % ASKED_EVERY == 0 and (not self.expert_drives or self._comes_back(journey))
        if observation is not None and asked:
            path = self._learner(Moment(observation, journey))
            self._follower.take(FollowedPath.from_vehicle(journey.time_s, journey.vehicle, path))
            if self._asked_s is None:
                self._asked_s = journey.time_s
        self._tick += 1

    def drive(self, journey: Journey, push: tuple[float, float] = (0.0, 0.0)) -> None:
        """One step of the world; `push` is added to acceleration (m/s^2) and steering (rad), whoever drives."""
        if self._asked_s is not None and journey.time_s >= self._asked_s + LATENCY_S - STEP_S / 2:
            self.expert_drives = False
        if self.expert_drives:
            journey.drive(push)
        else:
            acceleration, steering = self._follower.control(journey.vehicle, journey.time_s)
            journey.move(acceleration + push[0], steering + push[1])

    def _comes_back(self, journey: Journey) -> bool:
        return abs(journey.left) < GIVEN_BACK and journey.time_s >= self._taken_s + SHORTEST_S

    def _hand_over(self, journey: Journey) -> None:
        """Give the expert the wheel where the learner is lost."""
        goes = decide(journey.lane, journey.vehicle, journey.along, journey.situation)[0] > 0
        stands = journey.vehicle.speed < STANDS and goes and not self.expert_drives
        self._stands_s = self._stands_s + LATENCY_S if stands else 0.0
        if not self.expert_drives and (abs(journey.left) > TAKEN_FROM or self._stands_s > STANDS_S):
            self.expert_drives, self._asked_s, self._taken_s = True, None, journey.time_s

"""The sentences by which the expert driver states its reason: a closed set, one for each class."""

from __future__ import annotations

from enum import IntEnum


class Reason(IntEnum):
    """Why the driver does what it does. The value is the class, and the index into SENTENCE_CLASSES."""

    KEEP = 0
    SPEED_UP = 1
    SLOW_FOR_LEFT_BEND = 2
    SLOW_FOR_RIGHT_BEND = 3
    FOLLOW_LEFT_BEND = 4
    FOLLOW_RIGHT_BEND = 5
    SLOW_FOR_CAR = 6
    FOLLOW_CAR = 7
    STOP_FOR_CAR = 8
    STOP_AT_LINE = 9
    STOP_AT_LIGHT = 10
    TURN_LEFT = 11
    TURN_RIGHT = 12
    GO_STRAIGHT = 13
    RETURN_TO_LANE = 14


_SENTENCES = {
    Reason.KEEP: "Keep the lane and the speed: the road is clear.",
    Reason.SPEED_UP: "Speed up: the road ahead is clear.",
    Reason.SLOW_FOR_LEFT_BEND: "Slow down: the road bends left ahead.",
    Reason.SLOW_FOR_RIGHT_BEND: "Slow down: the road bends right ahead.",
    Reason.FOLLOW_LEFT_BEND: "Follow the road: it bends left.",
    Reason.FOLLOW_RIGHT_BEND: "Follow the road: it bends right.",
    Reason.SLOW_FOR_CAR: "Slow down: the car ahead is slower.",
    Reason.FOLLOW_CAR: "Follow the car ahead: keep the distance.",
    Reason.STOP_FOR_CAR: "Stop: the car ahead stands still.",
    Reason.STOP_AT_LINE: "Stop: there is a stop line ahead.",
    Reason.STOP_AT_LIGHT: "Stop: the light ahead is red.",
    Reason.TURN_LEFT: "Turn left at the junction: the route says so.",
    Reason.TURN_RIGHT: "Turn right at the junction: the route says so.",
    Reason.GO_STRAIGHT: "Go straight on at the junction: the route says so.",
    Reason.RETURN_TO_LANE: "Steer back to the middle of the lane.",
}

SENTENCE_CLASSES: tuple[str, ...] = tuple(_SENTENCES[reason] for reason in Reason)

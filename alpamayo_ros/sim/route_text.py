"""What a navigation system says before junctions, in the wording of NVIDIA's samples."""

from __future__ import annotations

import math

from alpamayo_ros.sim.world import Turn, World

SPEAKS_WITHIN = 60.0  # m before a junction's middle
STEP = 10  # m, to which distances are rounded up


def navigation_text(world: World, along: float) -> str | None:
    """As "Turn left in 30m", "Turn left" within the junction, "Continue straight"; None away from junctions.

    Args:
        world: whose route counts.
        along: m, the vehicle's distance along the route.
    """
    junction = world.next_junction(along)
    if junction is None:
        return None
    left = (junction.begin + junction.end) / 2 - along
    if left > SPEAKS_WITHIN:
        return None
    if junction.turn is Turn.STRAIGHT:
        return "Continue straight"
    words = f"Turn {junction.turn.name.lower()}"
    return f"{words} in {STEP * math.ceil(left / STEP)}m" if along < junction.begin else words

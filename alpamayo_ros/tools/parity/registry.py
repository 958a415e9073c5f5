"""One checker per kind of golden file."""

from __future__ import annotations

from alpamayo_ros.tools.parity.action_projection import ACTION_PROJECTION
from alpamayo_ros.tools.parity.action_space import ACTION_SPACE
from alpamayo_ros.tools.parity.case import Checker
from alpamayo_ros.tools.parity.end_to_end import END_TO_END
from alpamayo_ros.tools.parity.flow_matching import FLOW_MATCHING
from alpamayo_ros.tools.parity.history_tokens import HISTORY_TOKENS
from alpamayo_ros.tools.parity.images import IMAGES
from alpamayo_ros.tools.parity.metrics import METRICS
from alpamayo_ros.tools.parity.prompts import PROMPTS

CHECKERS: tuple[Checker, ...] = (
    ACTION_PROJECTION,
    ACTION_SPACE,
    END_TO_END,
    FLOW_MATCHING,
    HISTORY_TOKENS,
    IMAGES,
    METRICS,
    PROMPTS,
)

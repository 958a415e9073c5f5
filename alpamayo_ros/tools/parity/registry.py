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
from alpamayo_ros.tools.parity.native_end_to_end import NATIVE_END_TO_END
from alpamayo_ros.tools.parity.prompts import PROMPTS
from alpamayo_ros.tools.parity.vllm_end_to_end import VLLM_END_TO_END

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


def checkers_for(engine: str) -> tuple[Checker, ...]:
    """The checkers of an engine: each has its own for whole models."""
    whole = {"transformers": END_TO_END, "native": NATIVE_END_TO_END, "vllm": VLLM_END_TO_END}[engine]
    return tuple(whole if checker is END_TO_END else checker for checker in CHECKERS)

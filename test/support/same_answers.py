"""When two engines have given the same answer."""

from __future__ import annotations

import numpy as np

from alpamayo_ros.core.types import Prediction

ROUNDING = 2e-3  # m, over ten Euler steps that enlarge it


def assert_same(left: Prediction, right: Prediction, tolerance: float = ROUNDING) -> None:
    """Tokens, words and reasons are equal, numbers up to a tolerance."""
    assert left.reasoning_token_ids == right.reasoning_token_ids
    assert left.reasoning == right.reasoning
    assert left.finish_reasons == right.finish_reasons
    for name in ("xyz", "rotation", "actions", "speed"):
        np.testing.assert_allclose(getattr(left, name), getattr(right, name), atol=tolerance, err_msg=name)

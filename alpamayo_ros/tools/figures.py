"""What benchmarks print: one JSON line per figure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np


def report(figure: str, unit: str, **values: Any) -> None:
    """Print one figure."""
    rounded = {key: round(value, 3) if isinstance(value, float) else value for key, value in values.items()}
    print(json.dumps({"figure": figure, "unit": unit, **rounded}), flush=True)


def distribution(values: Sequence[float]) -> dict[str, Any]:
    """Median, p99 and count."""
    return {"median": float(np.median(values)), "p99": float(np.percentile(values, 99)), "n": len(values)}

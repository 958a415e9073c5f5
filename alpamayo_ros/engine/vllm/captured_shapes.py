"""Which flows have a graph on CUDA."""

from __future__ import annotations

from alpamayo_ros.engine.vllm.jobs import FlowShape

CAPTURED_SAMPLES = (1, 6, 16)  # and the most that there can be


def captured_shapes(max_samples: int, steps: int) -> tuple[FlowShape, ...]:
    """What to capture: other numbers of samples take the next larger one."""
    counts = sorted({min(count, max_samples) for count in (*CAPTURED_SAMPLES, max_samples)})
    rows_and_samples = [(1, count) for count in counts] + [(count, 1) for count in counts if count > 1]
    return tuple(FlowShape(*each, guided, steps) for each in rows_and_samples for guided in (False, True))

"""Small cases of NVIDIA's numbers, from pixels to paths; `python -m alpamayo_ros.tools.parity` runs all."""

from pathlib import Path

import pytest
import torch

from alpamayo_ros.tools.parity.case import Machine, Status
from alpamayo_ros.tools.parity.end_to_end import END_TO_END

GOLDEN = Path(__file__).parents[2].parent / "shared" / "golden"
CASES = {
    "end_to_end_alpamayo1_5_tiny": ["im_end_row_s2", "nav_cfg_alpha0_s1", "vqa_forced", "batch2_leftpad"],
    "end_to_end_alpamayo_r1_tiny": ["steps5_temp_s2", "no_future_start_s2"],
}


@pytest.mark.parametrize("file", sorted(CASES))
def test_nvidias_numbers_are_met(file: str) -> None:
    if not (GOLDEN / f"{file}.npz").is_file():
        pytest.skip(f"no golden data in {GOLDEN}")
    cases = {case.name.rpartition("/")[2]: case for case in END_TO_END.cases(GOLDEN / f"{file}.npz", Machine())}
    results = [result for name in CASES[file] for result in cases[name].check()]
    assert len(results) > 20 * len(CASES[file])
    assert [result.line() for result in results if result.status is not Status.PASS] == []


@pytest.mark.skipif(not GOLDEN.is_dir(), reason=f"no golden data in {GOLDEN}")
def test_in_bfloat16_the_error_of_every_step_is_told_with_tokens_and_states_as_recorded() -> None:
    file = GOLDEN / "end_to_end_alpamayo1_5_tiny.npz"
    cases = {case.name.rpartition("/")[2]: case for case in END_TO_END.cases(file, Machine(dtype=torch.bfloat16))}
    results = {result.name.partition("/greedy_s1/")[2]: result for result in cases["greedy_s1"].check()}
    assert [result.line() for result in results.values() if result.status is not Status.PASS] == []
    assert results["sequences_raw"].max_error == 0  # greedy choices would differ by rounding
    steps = [results[f"velocities_guided/step{step}"] for step in range(10)]
    assert all(1e-3 < step.max_error <= step.tolerance < 1 for step in steps)
    assert not results.keys() & {"states", "action", "pred_xyz"}

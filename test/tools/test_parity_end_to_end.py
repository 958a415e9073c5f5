"""Small cases of NVIDIA's numbers, from pixels to paths; `python -m alpamayo_ros.tools.parity` runs all."""

from pathlib import Path

import pytest

from alpamayo_ros.tools.parity.case import Status
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
    cases = {case.name.rpartition("/")[2]: case for case in END_TO_END.cases(GOLDEN / f"{file}.npz")}
    results = [result for name in CASES[file] for result in cases[name].check()]
    assert len(results) > 20 * len(CASES[file])
    assert [result.line() for result in results if result.status is not Status.PASS] == []

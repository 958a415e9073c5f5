"""NVIDIA's numbers in the vLLM engine, in a process of its own."""

import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]
GOLDEN = PROJECT.parent / "shared" / "golden"


@pytest.mark.vllm
@pytest.mark.timeout(600)
def test_nvidias_numbers_are_met() -> None:
    pytest.importorskip("vllm", reason="needs vLLM: make test-vllm, with Python 3.11 or newer")
    if not list(GOLDEN.glob("end_to_end_*.npz")):
        pytest.skip(f"no golden data in {GOLDEN}")
    command = [sys.executable, "-m", "alpamayo_ros.tools.parity", str(GOLDEN), "--engine", "vllm"]
    done = subprocess.run(
        [*command, "--only", "end_to_end_*"], capture_output=True, text=True, cwd=PROJECT, timeout=500
    )
    lines = done.stdout.splitlines()
    assert [line for line in lines if line.startswith(("FAIL", "N/S"))] == []
    assert done.returncode == 0, done.stderr[-3000:]
    passed = [line.split()[1] for line in lines if line.startswith("PASS")]
    for file in ("end_to_end_alpamayo1_5_tiny", "end_to_end_alpamayo_r1_tiny"):
        assert sum(name.startswith(f"{file}/") for name in passed) > 200
        for quantity in ("greedy_s1/sequences_raw/0", "cam4_s3/velocities_guided/2", "no_future_start_s2/pred_xyz/1"):
            assert f"{file}/{quantity}" in passed
    not_applicable = {line.split()[1].split("/")[2] for line in lines if line.startswith("N/A")}
    assert not_applicable <= {"prompt_position_ids", "attention_mask", "kv", "unguided_kv", "logits_top_ids"}

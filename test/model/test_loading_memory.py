"""What loading a checkpoint takes of host memory beside the model itself, measured in a process of its own."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from sparse_checkpoint import write_sparse_checkpoint

MB = 1_000_000
SHARD = 100 * MB
PROGRAM = """
import json, sys, torch
from pathlib import Path
from alpamayo_ros.model.alpamayo import AlpamayoModel
from alpamayo_ros.model.config import ModelConfig
from transformers.models.qwen3_vl import modeling_qwen3_vl

def resident(field):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))

folder, device, dtype = sys.argv[1], torch.device(sys.argv[2]), getattr(torch, sys.argv[3])
torch.zeros(1, device=device)
config = ModelConfig.load(folder)
before = resident("VmRSS:")
model = AlpamayoModel.load(config, device, dtype)
weights = sum(parameter.nbytes for parameter in model.network.parameters())
print(json.dumps({"before": before, "peak": resident("VmHWM:"), "weights": weights}))
"""


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """0.75 GB in shards of 0.1 GB."""
    folder = write_sparse_checkpoint(tmp_path_factory.mktemp("sparse") / "checkpoint", layers=16, shard_bytes=SHARD)
    assert len(list(folder.glob("*.safetensors"))) > 7
    return folder


def load(checkpoint: Path, device: str, dtype: str) -> dict[str, int]:
    """Bytes: resident before loading, resident at most, and of the weights."""
    command = [sys.executable, "-c", PROGRAM, str(checkpoint), device, dtype]
    result = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2])
    assert result.returncode == 0, result.stderr
    measured: dict[str, int] = json.loads(result.stdout)
    return measured


@pytest.mark.skipif(not Path("/proc/self/status").is_file(), reason="needs Linux's /proc")
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_no_second_copy_of_the_model_lies_in_memory(checkpoint: Path, dtype: str) -> None:
    measured = load(checkpoint, "cpu", dtype)
    assert measured["weights"] > 7 * SHARD
    extra = measured["peak"] - measured["before"] - measured["weights"]
    assert extra < SHARD + 150 * MB, f"{extra / MB:.0f} MB"


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_on_its_way_to_a_gpu_the_model_never_lies_in_host_memory(checkpoint: Path, dtype: str) -> None:
    measured = load(checkpoint, "cuda", dtype)
    extra = measured["peak"] - measured["before"]
    assert extra < SHARD + 150 * MB, f"{extra / MB:.0f} MB"

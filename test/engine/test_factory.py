import re
from pathlib import Path
from typing import Any

import pytest
import torch

from alpamayo_ros.core.types import ConfigurationError, EngineError
from alpamayo_ros.engine.factory import create_engine, needs_process
from alpamayo_ros.engine.null_engine import NullEngine
from alpamayo_ros.engine.process.client import ProcessEngine
from alpamayo_ros.engine.transformers_engine import TransformersEngine


def test_engines_are_made_by_name(checkpoint: Path) -> None:
    assert isinstance(create_engine("null", ""), NullEngine)
    engine = create_engine("transformers", str(checkpoint), device="cpu", dtype="float32", max_samples=2, max_cameras=1)
    assert isinstance(engine, TransformersEngine)
    assert (engine.info.max_samples, engine.info.max_cameras) == (2, 1)


def test_a_tilde_stands_for_the_home_folder_in_every_path(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(checkpoint.parent))
    shortened = f"~/{checkpoint.name}"
    engine = create_engine("transformers", shortened, base_model=f"{shortened}/vlm_base", device="cpu")
    assert engine.info.model == str(checkpoint)
    with pytest.raises(ConfigurationError, match=re.escape(f"{checkpoint.parent}/no/python")):
        create_engine("null", "", python="~/no/python")


def test_constants_are_rounded_as_nvidias_runtime_rounds_them_unless_asked_not_to(checkpoint: Path) -> None:
    rounded = create_engine("transformers", str(checkpoint), device="cpu")
    exact = create_engine("transformers", str(checkpoint), device="cpu", bf16_constants=False)
    assert rounded._model.action_space.config.accel_std == 0.6796875  # type: ignore[attr-defined]
    assert exact._model.action_space.config.accel_std == 0.6810426736454882  # type: ignore[attr-defined]
    assert rounded._model.network.action_in_proj.frequencies[1] == 1.671875  # type: ignore[attr-defined]
    assert exact._model.network.action_in_proj.frequencies[1] == pytest.approx(1.6681, abs=1e-4)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("kind", "process", "python", "own"),
    [
        ("transformers", "auto", "", False),
        ("null", "auto", "", False),
        ("vllm", "auto", "", True),
        ("null", "auto", "/opt/engine/bin/python", True),
        ("vllm", "in_process", "", False),
        ("transformers", "subprocess", "", True),
    ],
)
def test_an_engine_gets_a_process_of_its_own_when_asked_to_or_when_it_should(
    kind: str, process: str, python: str, own: bool
) -> None:
    assert needs_process(kind, process, python) == own


def test_an_engine_in_a_process_of_its_own_takes_the_same_arguments(checkpoint: Path) -> None:
    engine = create_engine("transformers", str(checkpoint), device="cpu", max_samples=3, process="subprocess")
    try:
        assert isinstance(engine, ProcessEngine)
        assert (engine.info.device, engine.info.max_samples, engine.info.max_cameras) == ("cpu", 3, 7)
    finally:
        engine.close()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"process": "thread"}, "engine.process is 'thread'; it has to be one of auto, in_process, subprocess"),
        ({"process": "in_process", "python": "/bin/python"}, "engine.python is '/bin/python', but"),
    ],
)
def test_a_process_that_cannot_be_is_an_error(arguments: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        create_engine("null", "", **arguments)  # type: ignore[arg-type]
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "arguments", "message"),
    [
        ("transformers", {"tensor_parallel_size": 2}, "tensor_parallel_size is 2; only engine.kind vllm"),
        ("onnx", {}, "engine.kind is 'onnx'; it has to be one of transformers, native, vllm, null"),
        ("transformers", {"dtype": "int8"}, "dtype is 'int8'"),
        ("transformers", {"device": "gpu"}, "device is 'gpu'; it has to be auto, cpu, cuda or cuda:N"),
    ],
)
def test_what_cannot_be_made_is_an_error(checkpoint: Path, kind: str, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(EngineError) as caught:
        create_engine(kind, str(checkpoint), **arguments)
    assert message in str(caught.value)


def test_a_device_that_is_not_there_is_not_replaced(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(EngineError, match="sees no CUDA device"):
        create_engine("transformers", str(checkpoint), device="cuda")
    assert create_engine("transformers", str(checkpoint), device="auto").info.device == "cpu"


def test_a_checkpoint_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=r"engine\.checkpoint is empty"):
        create_engine("transformers", "")
    with pytest.raises(ConfigurationError, match="nowhere is no folder"):
        create_engine("transformers", str(tmp_path / "nowhere"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigurationError, match=r"config\.json is missing"):
        create_engine("transformers", str(tmp_path / "empty"))

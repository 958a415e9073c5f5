import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from alpamayo_ros.model.action_space import ActionSpaceConfig, UnicycleActionSpace
from alpamayo_ros.model.flow_matching import integrate
from alpamayo_ros.model.history_tokens import HistoryTokenizer, HistoryTokenizerConfig
from alpamayo_ros.tools.parity.__main__ import main, matches
from alpamayo_ros.tools.parity.case import Status, close, equal

GOLDEN = Path(__file__).parents[2].parent / "shared" / "golden"
UNIT_FILES = ("action_in_proj", "action_space", "flow_matching", "history_tokens", "image_preprocess", "metrics")

needs_golden = pytest.mark.skipif(not GOLDEN.is_dir(), reason=f"{GOLDEN} is not here")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Golden files of our own making, with cases that NVIDIA's don't have."""
    rng = np.random.default_rng(0)
    xyz = rng.normal(size=(2, 16, 3)).astype(np.float32)
    rotation = np.broadcast_to(np.eye(3, dtype=np.float32), (2, 16, 3, 3))
    action = rng.normal(size=(2, 64, 2)).astype(np.float32)
    space = UnicycleActionSpace(ActionSpaceConfig(), bf16_constants=False)
    history = torch.from_numpy(xyz), torch.from_numpy(rotation.copy())
    driven = space.actions_to_trajectory(torch.from_numpy(action), *history)
    np.savez(
        tmp_path / "action_space.npz",
        case_names=["a_new_case", "another"],
        hist_xyz=xyz,
        hist_rot=rotation,
        action=action,
        v0=space.estimate_v0(*history).numpy(),
        fut_xyz=driven.xyz.numpy(),
        fut_rot=driven.rotation.numpy(),
        action_from_fut=space.trajectory_to_actions(driven.xyz, driven.rotation, *history).numpy(),
    )
    noise = torch.from_numpy(rng.normal(size=(2, 64, 2)).astype(np.float32))
    flow = integrate(lambda x, t: torch.cos(2 * x + 3 * t) - 0.5 * x, noise, steps=3, temperature=0.25)
    np.savez(
        tmp_path / "flow_matching.npz",
        **{
            "x0_noise": noise.numpy(),
            "temp0.25_steps3/states": flow.states.numpy(),
            "temp0.25_steps3/times": flow.times.numpy(),
            "heun2/states": flow.states.numpy(),
            "heun2/times": flow.times.numpy(),
        },
    )
    tokenizer = HistoryTokenizer(HistoryTokenizerConfig())
    bins = tokenizer.encode(torch.from_numpy(xyz))
    np.savez(
        tmp_path / "history_tokens.npz",
        case_names=["one", "two"],
        hist_xyz=xyz,
        bins=bins.numpy(),
        token_ids=bins.numpy() + 77,
        decoded_xyz=tokenizer.decode(bins).numpy(),
    )
    (tmp_path / "prompts.json").write_text(json.dumps({"history_bin0_id": 77, "cases": {}}))
    return tmp_path


def change(path: Path, key: str, index: tuple[int, ...], by: float) -> None:
    with np.load(path) as file:
        arrays = dict(file)
    arrays[key][index] += by
    np.savez(path, **arrays)


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, list[str], str]:
    status = main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return status, captured.out.splitlines(), captured.err


@needs_golden
@pytest.mark.parametrize("name", UNIT_FILES)
def test_everything_agrees_with_nvidias_numbers(name, tmp_path, capsys):
    for file in (f"{name}.npz", "prompts.json"):
        shutil.copy(GOLDEN / file, tmp_path)

    status, lines, _ = run(capsys, tmp_path, "--only", name)

    assert [line for line in lines if not line.startswith("PASS")] == lines[-1:]
    assert lines[-1] == f"{len(lines) - 1} passed, 0 failed, 0 not supported"
    assert status == 0


@needs_golden
def test_every_prompt_agrees_with_nvidias(capsys):
    status, lines, _ = run(capsys, GOLDEN, "--only", "prompts")

    assert lines[-1] == f"{len(lines) - 1} passed, 0 failed, 0 not supported"
    assert len(lines) > 100
    assert status == 0


def test_cases_are_found_whatever_they_are_called(folder, capsys):
    _, lines, _ = run(capsys, folder)

    names = [line.split()[1] for line in lines[:-1]]
    assert "action_space/a_new_case/xyz" in names
    assert "action_space/another/v0" in names
    assert "flow_matching/temp0.25_steps3/states" in names
    assert "history_tokens/two/token_ids" in names


def test_each_line_has_the_name_the_error_and_the_tolerance(folder, capsys):
    _, lines, _ = run(capsys, folder, "--only", "action_space/another/xyz")

    status, name, error, tolerance = lines[0].split()
    assert (status, name, tolerance) == ("PASS", "action_space/another/xyz", "0.001")
    assert float(error) < 1e-4
    assert lines[1] == "1 passed, 0 failed, 0 not supported"


def test_what_is_not_of_the_grammar_is_not_supported_and_named(folder, capsys):
    np.savez(folder / "weather.npz", rain=np.zeros(3))

    status, lines, _ = run(capsys, folder)

    assert [line for line in lines if line.startswith("N/S")] == [
        "N/S flow_matching/heun2 a run named heun2 is not known",
        "N/S weather nothing here checks a file named weather.npz",
    ]
    assert lines[-1].endswith("0 failed, 2 not supported")
    assert status == 1


@pytest.mark.parametrize(
    ("file", "key", "index", "by", "failing"),
    [
        ("action_space.npz", "fut_xyz", (1, 63, 0), 2e-3, "action_space/another/xyz"),
        ("action_space.npz", "v0", (0,), 2e-4, "action_space/a_new_case/v0"),
        ("flow_matching.npz", "temp0.25_steps3/states", (3, 0, 0, 0), 2e-5, "flow_matching/temp0.25_steps3/states"),
        ("history_tokens.npz", "token_ids", (1, 5), 1, "history_tokens/two/token_ids"),
    ],
)
def test_a_number_off_by_more_than_the_tolerance_fails(folder, capsys, file, key, index, by, failing):
    change(folder / file, key, index, by)

    status, lines, _ = run(capsys, folder)

    assert f"FAIL {failing}" in [" ".join(line.split()[:2]) for line in lines]
    assert status == 1


def test_a_nan_fails(folder, capsys):
    change(folder / "action_space.npz", "fut_xyz", (0, 0, 0), float("nan"))

    status, lines, _ = run(capsys, folder, "--only", "a_new_case/xyz")

    assert lines[0].startswith("FAIL action_space/a_new_case/xyz inf")
    assert status == 1


def test_a_damaged_file_fails_by_name_and_the_others_are_still_checked(folder, capsys):
    content = (folder / "action_space.npz").read_bytes()
    (folder / "action_space.npz").write_bytes(content[: len(content) // 2])

    status, lines, _ = run(capsys, folder)

    assert [line for line in lines if line.startswith("FAIL action_space inf 0 action_space.npz can't be read")]
    assert any(line.startswith("PASS history_tokens") for line in lines)
    assert status == 1


def test_a_missing_array_fails_its_case_only(folder, capsys):
    with np.load(folder / "action_space.npz") as file:
        arrays = {key: file[key] for key in file.files if key != "fut_rot"}
    np.savez(folder / "action_space.npz", **arrays)

    status, lines, _ = run(capsys, folder)

    assert any(line.startswith("FAIL action_space/a_new_case inf 0 KeyError: 'fut_rot'") for line in lines)
    assert any(line.startswith("PASS flow_matching") for line in lines)
    assert status == 1


@pytest.mark.parametrize("name", ["nothing_here", "an_empty_folder"])
def test_a_folder_without_golden_files_is_an_error_that_says_so(tmp_path, capsys, name):
    (tmp_path / "an_empty_folder").mkdir()

    status, lines, errors = run(capsys, tmp_path / name)

    assert status == 2
    assert lines == []
    assert errors.startswith(f"error: {tmp_path / name} ")


def test_only_a_name_that_nothing_has_is_an_error(folder, capsys):
    status, _, errors = run(capsys, folder, "--only", "left_tur")

    assert status == 2
    assert f"--only left_tur matches no case in {folder}" in errors


@pytest.mark.parametrize(
    ("wanted", "is_wanted"),
    [
        ("action_space", True),
        ("action_space/left_turn", True),
        ("left_turn", True),
        ("left_turn/xyz", True),
        ("xyz", True),
        ("left_*", True),
        ("action_space/xyz", False),
        ("left", False),
        ("action_space/left_turn/xyz/more", False),
    ],
)
def test_a_name_is_wanted_by_consecutive_parts_of_it(wanted, is_wanted):
    assert matches("action_space/left_turn/xyz", wanted) is is_wanted


def test_a_device_that_is_not_there_is_an_error_that_says_so(folder, capsys, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)

    status, lines, errors = run(capsys, folder, "--device", "cuda")

    assert status == 2
    assert lines == []
    assert "device is 'cuda', but this torch" in errors


@needs_golden
@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_everything_agrees_with_nvidias_numbers_on_a_gpu(capsys, dtype):
    status, lines, _ = run(capsys, GOLDEN, "--device", "cuda", "--dtype", dtype)

    assert [line for line in lines if not line.startswith("PASS")] == lines[-1:]
    assert status == 0


def test_the_command_runs_as_a_module(folder):
    command = [sys.executable, "-m", "alpamayo_ros.tools.parity", str(folder), "--only", "history_tokens"]

    result = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[2], check=False)

    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines()[-1] == "6 passed, 0 failed, 0 not supported"
    assert result.stderr == ""


def test_another_shape_is_an_infinite_error():
    result = close("name", np.zeros((2, 3)), np.zeros((3, 2)), tolerance=1.0)

    assert (result.status, result.max_error) == (Status.FAIL, float("inf"))
    assert "(2, 3), expected is (3, 2)" in result.message


def test_an_error_of_exactly_the_tolerance_passes_and_infinities_agree():
    assert close("name", [1.0], [1.5], tolerance=0.5).status is Status.PASS
    assert equal("name", [float("inf"), 1.0], [float("inf"), 1.0]).status is Status.PASS
    assert equal("name", [1], [2]).status is Status.FAIL

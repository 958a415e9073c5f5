"""Routes without a node, in processes: the same as one after the other."""

import shutil
import time
from pathlib import Path

import pytest

from alpamayo_ros.engine.transformers_engine import TransformersEngine
from alpamayo_ros.model.repository import SHIPPED
from alpamayo_ros.sim.closed_loop import drive_closed_loop
from alpamayo_ros.sim.policies import engine_policy
from alpamayo_ros.sim.renderer import Renderer
from alpamayo_ros.sim.rig import rig
from alpamayo_ros.sim.scoring import score
from alpamayo_ros.sim.world import FIRST_HELD_OUT_SEED, World
from alpamayo_ros.tools import direct_loop
from alpamayo_ros.tools.closed_loop_report import read_report, scores_of


def test_a_route_is_driven_as_in_one_process_and_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--routes", "1", "--length", "50", "--jobs", "1", "--out", str(tmp_path)]
    assert direct_loop.main(arguments) == 0
    report = read_report(tmp_path / "report.json")
    (driven,) = scores_of(report)
    assert report["trained"]
    assert report["compared"]["expert"]["passed"] == 1
    assert report["compared"]["stop"]["passed"] == 0
    assert "expert: 1 of 1 routes passed" in capsys.readouterr().out

    world = World.random(FIRST_HELD_OUT_SEED, 50.0)
    engine = TransformersEngine.load("mini", device="cpu")
    policy = engine_policy(engine, direct_loop.SAMPLING)
    trace = drive_closed_loop(world, policy, renderer=Renderer(world, rig(160, 96)))
    engine.close()
    alone = score(world, trace)
    assert driven.distance_m == pytest.approx(alone.distance_m, abs=0.01)
    assert driven.mean_offset_m == pytest.approx(alone.mean_offset_m, abs=0.01)


def test_an_impossible_number_of_routes_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert direct_loop.main(["--routes", "0", "--out", str(tmp_path)]) == 1
    assert "--routes 0: expected 1 to 1000" in capsys.readouterr().err


def test_no_jobs_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert direct_loop.main(["--jobs", "0", "--out", str(tmp_path)]) == 1
    assert "--jobs 0: expected at least 1" in capsys.readouterr().err


def test_a_checkpoint_that_is_cut_short_is_named(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    checkpoint = shutil.copytree(SHIPPED / "mini", tmp_path / "checkpoint")
    for file in checkpoint.glob("*.safetensors"):
        file.write_bytes(file.read_bytes()[:1000])
    arguments = ["--checkpoint", str(checkpoint), "--routes", "1", "--length", "50", "--out", str(tmp_path)]
    assert direct_loop.main(arguments) == 1
    said = capfd.readouterr().err
    assert "is no safetensors file, or is cut short" in said
    assert "Traceback" not in said


def test_an_interrupt_waits_for_no_route() -> None:
    def interrupted() -> None:
        with direct_loop._processes(1) as pool:
            for _ in range(3):
                pool.submit(time.sleep, 60)
            raise KeyboardInterrupt

    begun = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert time.monotonic() - begun < 30

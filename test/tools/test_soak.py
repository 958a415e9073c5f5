"""A soak that finds what grows, and only that."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

pytest.importorskip("rclpy", reason="needs rclpy: make setup, or source a ROS 2 installation")

from alpamayo_ros.core.types import AlpamayoError
from alpamayo_ros.tools.soak.samples import Bound, Sample, growth, leaks, take_sample

ROOT = Path(__file__).parents[2]
SOAK = [sys.executable, "-m", "alpamayo_ros.tools.soak"]


def samples(rss: list[float], handles: list[int] | None = None) -> list[Sample]:
    return [Sample(50 * k, value, handles[k] if handles else 18, 24, 5.0) for k, value in enumerate(rss)]


def test_a_line_is_fitted_to_the_last_four_fifths() -> None:
    assert growth(samples([100 + 0.01 * k for k in range(100)]), "rss_mb") == pytest.approx(0.79)
    warming_up = [50 + 2.5 * k for k in range(20)] + [100.0] * 80
    assert growth(samples(warming_up), "rss_mb") == pytest.approx(0, abs=1e-9)


def test_noise_is_no_leak_and_a_leak_is_found_in_noise() -> None:
    rng = random.Random(0)
    noise = [100 + rng.uniform(-2, 2) for _ in range(100)]
    assert leaks(samples(noise)) == []
    (leak,) = leaks(samples([value + 0.06 * k for k, value in enumerate(noise)]))
    assert leak.startswith("rss_mb grows: by ")


def test_handles_that_are_never_closed_are_found() -> None:
    (leak,) = leaks(samples([100.0] * 50, handles=[18 + k // 10 for k in range(50)]))
    assert leak.startswith("handles grows")


def test_what_shrinks_is_no_leak() -> None:
    assert leaks(samples([200.0 - k for k in range(50)])) == []


def test_too_few_samples_are_no_answer() -> None:
    with pytest.raises(AlpamayoError, match="run longer"):
        leaks(samples([100.0] * 9), [Bound("rss_mb", 1.0)])


def test_this_process_can_be_measured() -> None:
    before = take_sample(os.getpid(), 0, 0.0)
    with open(os.devnull):
        after = take_sample(os.getpid(), 0, 0.0)
    assert after.handles == before.handles + 1
    assert before.rss_mb > 10
    assert before.threads >= 1


def soak(out: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [*SOAK, "--minutes", "0.25", "--out", str(out), *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=120, check=False)


def test_a_short_soak_of_the_node_over_dds_is_flat(ros_domain: int, tmp_path: Path) -> None:
    result = soak(tmp_path)
    assert result.returncode == 0, result.stdout + result.stderr
    written = [json.loads(line) for line in (tmp_path / "null.jsonl").read_text().splitlines()]
    assert len(written) >= 10
    assert "frames lost" in result.stdout
    assert (tmp_path / "null.log").read_text().count("no trajectory") > 0, "the log has the reasons"


def test_a_planted_leak_fails_it(ros_domain: int, tmp_path: Path) -> None:
    result = soak(tmp_path, "--plant-leak", "100000")
    assert result.returncode == 1, result.stdout + result.stderr
    assert "rss_mb grows" in result.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_soak_ends_its_node_in_order_and_keeps_the_samples(
    ros_domain: int, tmp_path: Path, number: signal.Signals
) -> None:
    command = [*SOAK, "--minutes", "5", "--out", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        assert "ticks" in process.stdout.readline()
        (node,) = psutil.Process(process.pid).children()
        process.send_signal(number)
        _, said = process.communicate(timeout=30)
    assert process.returncode == 1
    assert f"interrupted; the samples so far are in {tmp_path}" in said
    assert "Traceback" not in said
    assert len((tmp_path / "null.jsonl").read_text().splitlines()) >= 4  # of a whole loop
    assert not node.is_running()

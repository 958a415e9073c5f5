"""`make demo`: a recorded drive goes in; a path, the reasoning and a report come out.

It runs the commands that a user would run, and shows each: make a checkpoint, make a bag, evaluate it offline, then
start the node and play the same bag to it over DDS. It fails if no path crosses.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

from alpamayo_ros.core.types import AlpamayoError
from alpamayo_ros.tools.command import guarded, run_command
from alpamayo_ros.tools.live_paths import Comparison, LivePath, affordable_rate, compare_with_bag, drive_node

ROOT = Path(__file__).parents[2]
DRIVES = ROOT.parent / "shared" / "data"
SYNTHETIC_SECONDS = 12.0
STRIDE = 0.5  # s between ticks
SAMPLES = 6

RANDOM_WEIGHTS = (
    "The demo's checkpoint has random weights: it shows that everything is connected, and its paths mean nothing.\n"
    "With NVIDIA's weights: evaluate_bag --checkpoint /path/to/Alpamayo-1.5 (docs/installation.md)."
)


def run(step: str, module: str, *arguments: str | Path) -> None:
    """Run one of this package's commands, showing it as a user would type it."""
    command = [sys.executable, "-m", f"alpamayo_ros.tools.{module}", *map(str, arguments)]
    shown = ["python", *(_short(word) for word in command[1:])]
    print(f"\n{step}\n  $ {shlex.join(shown)}", flush=True)
    status = subprocess.run(command, cwd=ROOT, check=False).returncode
    if status:
        raise AlpamayoError(f"{module} ended with status {status}; its message stands above")


def _short(word: str) -> str:
    return os.path.relpath(word, ROOT) if word.startswith(str(ROOT)) else word


def recorded_drive(out: Path) -> tuple[Path, Path, str]:
    """The demo's bag, the rig that fits it, and what it is; made once."""
    kitti = DRIVES / "kitti06_stereo"
    if kitti.is_dir():
        bag, rig = out / "kitti06", ROOT / "config" / "kitti_stereo.yaml"
        what = "KITTI odometry 06: five seconds of a street; its right camera stands in for the tele camera"
        if not bag.exists():
            run(
                "[2/4] a recorded drive becomes a ROS 2 bag",
                "make_bag",
                "images",
                *("--camera", f"front_wide={kitti / 'image_l'}", "--camera", f"front_tele={kitti / 'image_r'}"),
                *("--times", kitti / "times.txt", "--poses", kitti / "poses_full_06.txt", "--pose-format", "kitti"),
                *("--out", bag),
            )
        return bag, rig, what
    bag, rig = out / "synthetic", ROOT / "config" / "physical_ai_4cam.yaml"
    if not bag.exists():
        run(
            "[2/4] a short synthetic drive (no recorded one is here)",
            "synthetic_drive",
            *("--duration", f"{SYNTHETIC_SECONDS:g}"),
            *("--out", bag),
        )
    return bag, rig, "a synthetic drive, rendered here"


def main(arguments: list[str] | None = None) -> int:
    """Run the demo."""
    parser = argparse.ArgumentParser(
        prog="python -m alpamayo_ros.tools.demo",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--out", type=Path, default=ROOT / "out" / "demo", help="where everything goes")
    options = parser.parse_args(arguments)
    return guarded(lambda: demonstrate(options.out.resolve()), interrupted="interrupted; run it again to go on")


def demonstrate(out: Path) -> int:
    """All steps, with their results in `out`."""
    out.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    checkpoint = out / "tiny_checkpoint"
    if not checkpoint.exists():
        run("[1/4] a tiny checkpoint", "make_checkpoint", "--preset", "tiny", "--seed", "0", "--out", checkpoint)
    bag, rig, what = recorded_drive(out)
    report = out / "report"
    run(
        "[3/4] the drive, evaluated offline",
        "evaluate_bag",
        bag,
        *("--config", rig, "--checkpoint", checkpoint, "--out", report, "--overwrite"),
        *("--stride", str(STRIDE), "--samples", str(SAMPLES)),
    )
    rate = affordable_rate(report / "report.json", STRIDE)
    slowed = "" if rate == 1 else f" (at {rate:.2f} times real time, so that the engine keeps up on this machine)"
    print(f"\n[4/4] the same drive, live: node and bag in two processes, DDS between them{slowed}", flush=True)
    paths = drive_node(bag, rig, checkpoint, rate_hz=1 / STRIDE, samples=SAMPLES, play_rate=rate, log=out / "node.log")
    comparison = compare_with_bag(paths, report / "result_bag")
    summarise(out, report, what, paths, comparison, time.monotonic() - started)
    return 0


def summarise(
    out: Path, report: Path, what: str, paths: list[LivePath], comparison: Comparison, seconds: float
) -> None:
    """Say what happened and where everything lies."""
    summary = json.loads((report / "report.json").read_text())
    width = shutil.get_terminal_size().columns
    print("\n" + "-" * min(width, 100))
    print(f"Drive:    {what}")
    print(f"Offline:  {summary['ticks']['ok']} of {summary['ticks']['total']} ticks gave a path")
    print(f"Live:     {len(paths)} paths crossed DDS, equal to the offline ones within {comparison.difference:.1e} m")
    if comparison.missing_live:
        print(
            f"          {len(comparison.missing_live)} more came offline only: this machine was too slow for them live"
        )
    print(f"\n{RANDOM_WEIGHTS}\n")
    for name, path in {
        "page": report / "report.html",
        "report": report / "report.json",
        "ticks": report / "ticks.jsonl",
        "picture": next(report.glob("*.png")),
        "result bag": report / "result_bag",
        "node's log": out / "node.log",
    }.items():
        print(f"{name + ':':<12}{_short(str(path))}")
    print(f"\nDone in {seconds:.0f} s.")


if __name__ == "__main__":
    run_command(main)

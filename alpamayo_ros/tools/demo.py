"""`make demo`: the small model drives the synthetic world through the node; a video and reports come out.

It runs the commands that a user would run, and shows each: a minute's drive in closed loop over DDS, an evaluation of
the model beside the expert driver, and one of a recorded drive where there is one. It fails if no path crosses.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from alpamayo_ros.core.types import AlpamayoError
from alpamayo_ros.tools.command import guarded, run_command

ROOT = Path(__file__).parents[2]
DRIVES = ROOT.parent / "shared" / "data"
CHECKPOINT = "mini"
SEED = 1_000_004  # of the world: one that the model wasn't trained on
LENGTH = 480.0  # m: a minute, with a stop sign and two turns
RECORDED_SECONDS = 35.0  # the stop sign and both turns
STRIDE = 1.0  # s between ticks
SAMPLES = 6
HORIZON = "6.4"  # s, as reports name it
PHYSICAL_AI, KITTI = ROOT / "config" / "physical_ai_4cam.yaml", ROOT / "config" / "kitti_stereo.yaml"

NOT_ITS_WORLD = (
    "The small model has seen nothing but drawings: on a real drive with other cameras its paths are not expected to "
    "be good.\nIt shows that recorded drives can be evaluated; for real ones use NVIDIA's weights "
    "(docs/installation.md)."
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


def drive(out: Path) -> None:
    """The node drives, and a video is made of it."""
    run(
        "[1] the model drives: node and vehicle in two processes, DDS between them",
        "closed_loop",
        *("--routes", "1", "--first-seed", str(SEED), "--length", f"{LENGTH:g}"),
        *("--no-comparison", "--video", "--out", out),
    )


def evaluate_synthetic(out: Path) -> Path:
    """A drive of the expert in the same world, and the model's paths beside it; the report's folder."""
    bag, report = out / "synthetic", out / "report"
    if not bag.exists():
        run(
            "[2] the expert drives the same road into a bag, and the model's paths are compared with its own",
            "synthetic_drive",
            *("--seed", str(SEED), "--duration", f"{RECORDED_SECONDS:g}", "--size", "160", "96", "--out", bag),
        )
    evaluate("", bag, PHYSICAL_AI, report)
    return report


def evaluate_recorded(out: Path) -> Path | None:
    """The model on a real drive; the report's folder, None where no such drive lies beside the project."""
    kitti = DRIVES / "kitti06_stereo"
    if not kitti.is_dir():
        return None
    bag, report = out / "kitti06", out / "report_kitti06"
    if not bag.exists():
        run(
            "[3] a recorded drive (KITTI odometry 06; its right camera stands in for the tele camera)",
            "make_bag",
            "images",
            *("--camera", f"front_wide={kitti / 'image_l'}", "--camera", f"front_tele={kitti / 'image_r'}"),
            *("--times", kitti / "times.txt", "--poses", kitti / "poses_full_06.txt", "--pose-format", "kitti"),
            *("--out", bag),
        )
    evaluate("", bag, KITTI, report)
    return report


def evaluate(step: str, bag: Path, rig: Path, report: Path) -> None:
    """The model's paths at a drive's ticks beside what was driven."""
    run(
        step,
        "evaluate_bag",
        bag,
        *("--config", rig, "--checkpoint", CHECKPOINT, "--out", report, "--overwrite"),
        *("--stride", str(STRIDE), "--samples", str(SAMPLES)),
    )


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
    driven = out / "drive"
    drive(driven)
    synthetic = evaluate_synthetic(out)
    recorded = evaluate_recorded(out)
    summarise(driven, synthetic, recorded, time.monotonic() - started)
    return 0


def summarise(driven: Path, synthetic: Path, recorded: Path | None, seconds: float) -> None:
    """Say what happened and where everything lies."""
    loop = _read(driven)
    (route,) = loop["routes"]
    print("\n" + "-" * 100)
    end = "arrived, in its lane all the way" if route["passed"] else "did not get there without a fault"
    print(
        f"Drive:      {loop['ticks']['trajectories']} paths crossed DDS; {route['distance_m']:.0f} m in "
        f"{route['seconds']:.0f} s; {end} ({route['mean_offset_m']:.2f} m off its middle on average)"
    )
    print(f"Beside the expert:  {scores(synthetic)}")
    if recorded is not None:
        print(f"On a real drive:    {scores(recorded)}\n\n{NOT_ITS_WORLD}")
    print()
    files = {
        "video": driven / f"{SEED}.webm",
        "its numbers": driven / "report.json",
        "node's log": driven / "node.log",
        "page": synthetic / "report.html",
        "picture": next(synthetic.glob("*.png")),
        "result bag": synthetic / "result_bag",
    }
    if recorded is not None:
        files["real drive"] = recorded / "report.html"
    for name, path in files.items():
        print(f"{name + ':':<14}{_short(str(path))}")
    print(f"\nDone in {seconds:.0f} s.")


def _read(folder: Path) -> Mapping[str, Any]:
    report: Mapping[str, Any] = json.loads((folder / "report.json").read_text())
    return report


def scores(report: Path) -> str:
    """What an evaluation came to, in a line."""
    metrics = _read(report)["metrics"]
    chosen, best = (
        metrics["chosen"]["ade"][HORIZON],
        min((each["ade"][HORIZON] for each in metrics["baselines"].values()), key=lambda ade: ade["mean"] or math.inf),
    )
    if chosen["mean"] is None:
        return f"no tick has {HORIZON} s of what was driven to compare with"
    means = f"{chosen['mean']:.2f} m off over {HORIZON} s, the best baseline {best['mean']:.2f} m"
    return f"{means} (means of {chosen['n']} ticks)"


if __name__ == "__main__":
    run_command(main)

"""The model card of the small checkpoint, from what was measured.

    python -m alpamayo_ros.tools.mini_card --scores out/mini/scores.json --closed-loop out/closed_loop/report.json \\
        --out out/mini/checkpoint/README.md
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, median
from textwrap import fill
from typing import Any

from alpamayo_ros.core.types import ConfigurationError
from alpamayo_ros.sim.sentences import SENTENCE_CLASSES
from alpamayo_ros.tools.closed_loop_report import passed, read_report, scores_of
from alpamayo_ros.tools.command import guarded, run_command
from alpamayo_ros.tools.direct_loop import WITHOUT

CARD = """---
license: apache-2.0
---
# Mini: a small model that was trained on a synthetic world

It must never drive a real vehicle. It has seen nothing but drawings: a flat world with painted roads, boxes for cars,
and lights without electricity. It exists so that this package can be tried, demonstrated and tested with a model that
really drives, in the world of `alpamayo_ros.sim`.

## What it is

The layout, the config keys and the tensor names of an Alpamayo 1.5 checkpoint at 4.3 million parameters: a Qwen3-VL
backbone of 3.1 million that writes its reason in one of {sentences} sentences, and an action expert of 1.2 million that
reads the backbone's keys and values and turns noise into 64 accelerations and curvatures. It shares no weights with
NVIDIA's models. It expects four cameras at 96 x 160 pixels (front left, front, front right, front telephoto), 10 Hz,
with the mounting and the fields of view of the synthetic world's rig.

## How it was made

By `python -m alpamayo_ros.tools.train_mini` from the synthetic world alone, from random weights: cross entropy on the
reasoning, flow matching on the actions (t = 0.999 (1 - Beta(1.5, 1)), target x - noise; squared errors of the actions,
and of where they take the vehicle), and two linear guides from the backbone, to the path and to the gap, speed and
acceleration of the car ahead, that are thrown away afterwards. What is learned is the expert driver's plan at each
moment, by what can be seen then. The navigation text was left out in 30 % of the ticks, so that guidance works. The
weights are a moving average over steps, in bfloat16.

## What it scores
{scores}
"""
UNSCORED = "\nNot scored yet."
COMPARED_NAMES = {"expert": "the expert's own plans", "stop": "standing"}


def model_card(scores: Mapping[str, Any] | None, closed_loops: Sequence[Mapping[str, Any]] = ()) -> str:
    """The card.

    Args:
        scores: what `train_mini` wrote into scores.json; None: not scored yet.
        closed_loops: reports of closed loops.
    """
    parts = [UNSCORED] if scores is None else [_open_loop(scores)]
    parts += map(_closed_loop, closed_loops)
    return CARD.format(scores="\n".join(parts), sentences=len(SENTENCE_CLASSES))


def _open_loop(scores: Mapping[str, Any]) -> str:
    driven = scores["driven"]
    head = (
        f"Open loop on {scores['ticks']} ticks of drives whose seeds it was not trained on. The expert's plan knows "
        "what can be seen at a moment: lights stay as they are, and no car speeds up. The path that was driven then "
        "depends on the rest too, so that the plan itself is off it:"
    )
    errors = {
        "minADE over 1 sample, 6.4 s": "min_ade_1_m",
        "minADE over 6 samples, 6.4 s": "min_ade_6_m",
        "best baseline's ADE, 6.4 s": "best_baseline_ade_m",
    }
    lines = ["| | from the expert's plan | from the path driven |", "|---|---|---|"]
    lines += [f"| {name} | {scores[key]:.2f} m | {driven[key]:.2f} m |" for name, key in errors.items()]
    lines.append(f"| the expert's plan itself, 6.4 s | | {driven['plan_ade_m']:.2f} m |")
    rows = {
        "sentence equal to the expert's": f"{scores['sentence_accuracy']:.0%} of ticks",
        "way out of a junction by navigation text": _share(scores["junctions"]["plain"]),
        "the same with guidance weight 1.5": _share(scores["junctions"]["guided"]),
    }
    return "\n".join(["", fill(head, 120), "", *lines, "", _table(rows)])


def _share(part: float | None) -> str:
    return "no case" if part is None else f"{part:.0%} of cases"


def _closed_loop(report: Mapping[str, Any]) -> str:
    routes = scores_of(report)
    failed = [route for route in routes if not route.passed]
    left = [route.first_departure_m for route in failed if route.first_departure_m is not None]
    rows = {
        "routes passed": f"{passed(routes)} of {len(routes)}",
        "never left the lane": f"{len(routes) - sum(route.lane_departures > 0 for route in routes)} of {len(routes)}",
        "left the lane": f"{len(left)}{f', first after {median(left):.0f} m (median)' if left else ''}",
        "hit a car": str(sum(route.collisions > 0 for route in failed)),
        "did not arrive": str(sum(not route.arrived for route in failed)),
        "mean offset from the lane's middle": f"{fmean(route.mean_offset_m for route in routes):.2f} m",
        **{
            f"passed by {COMPARED_NAMES.get(name, name)}": f"{part['passed']} of {len(part['routes'])}"
            for name, part in report["compared"].items()
        },
    }
    way = WITHOUT if WITHOUT in report["engine"] else "through the node"
    length, latency_s = min(route.length_m for route in routes), report["latency_s"]
    head = fill(
        f"Closed loop on held-out routes of {length:.0f} m, with one sample of noise 0.5, greedy words and "
        f"{latency_s:g} s of latency, {way}. A route is passed when the vehicle arrives, never leaves its lane and "
        "hits no car:",
        120,
    )
    return f"\n{head}\n\n{_table(rows)}"


def _table(rows: Mapping[str, str]) -> str:
    return "\n".join(["| | |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows.items())])


def main(arguments: list[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(
        prog="python -m alpamayo_ros.tools.mini_card",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--scores", type=Path, required=True, metavar="FILE", help="scores.json of train_mini")
    parser.add_argument(
        "--closed-loop", type=Path, nargs="+", default=[], metavar="REPORT", help="of closed_loop and direct_loop"
    )
    parser.add_argument(
        "--notes", type=Path, nargs="+", default=[], metavar="FILE", help="what is to be told besides, in Markdown"
    )
    parser.add_argument("--out", type=Path, required=True, metavar="README.md", help="the card")
    options = parser.parse_args(arguments)

    def work() -> int:
        try:
            scores = json.loads(options.scores.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise ConfigurationError(f"{options.scores} can't be read: {error}") from error
        card = model_card(scores, [read_report(path) for path in options.closed_loop])
        card += "".join(f"\n{path.read_text(encoding='utf-8')}" for path in options.notes)
        options.out.write_text(card, encoding="utf-8")
        return 0

    return guarded(work)


if __name__ == "__main__":
    run_command(main)

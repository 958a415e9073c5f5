"""The model card of the small checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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
and of where they take the vehicle), and a linear guide from the backbone to the driven path that is thrown away
afterwards. The navigation text was left out in 30 % of the ticks, so that guidance works. The weights are a moving
average over steps, in bfloat16.

## What it scores
{scores}
"""
UNSCORED = "\nNot scored yet.\n"


def model_card(scores: Mapping[str, Any] | None, sentences: int) -> str:
    """The card, with scores when there are any."""
    return CARD.format(scores=UNSCORED if scores is None else _table(scores), sentences=sentences)


def _table(scores: Mapping[str, Any]) -> str:
    best = scores["best_baseline_ade_m"]
    rows = {
        "minADE over 1 sample, 6.4 s": f"{scores['min_ade_1_m']:.2f} m",
        "minADE over 6 samples, 6.4 s": f"{scores['min_ade_6_m']:.2f} m",
        "best baseline's ADE, 6.4 s": f"{best:.2f} m",
        "sentence equal to the expert's": f"{scores['sentence_accuracy']:.0%} of ticks",
        "way out of a junction by navigation text": _share(scores["junctions"]["plain"]),
        "the same with guidance weight 1.5": _share(scores["junctions"]["guided"]),
    }
    lines = [f"| {name} | {value} |" for name, value in rows.items()]
    head = f"Open loop on {scores['ticks']} ticks of drives whose seeds it was not trained on:\n\n| | |\n|---|---|\n"
    return "\n" + head + "\n".join(lines)


def _share(part: float | None) -> str:
    return "no case" if part is None else f"{part:.0%} of cases"

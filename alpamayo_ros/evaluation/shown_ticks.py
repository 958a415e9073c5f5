"""The ticks that a report shows as pictures: the one of median error, and the worst ones."""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from alpamayo_ros.core.types import Array, Frame
from alpamayo_ros.evaluation.baselines import BASELINES
from alpamayo_ros.evaluation.ground_truth import Future
from alpamayo_ros.evaluation.html_report import ShownTick
from alpamayo_ros.evaluation.picture import Caption, TickPicture, draw_tick
from alpamayo_ros.evaluation.replay import Tick
from alpamayo_ros.evaluation.scores import STEPS, drawn_error
from alpamayo_ros.sensors.camera_model import CameraModel

WORST = 10  # ticks that the page shows, when nobody says

Record = Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class Drawable:
    """What a picture of a tick needs, kept small: one is held for every tick until it is known which is drawn."""

    record: Record  # its line of ticks.jsonl
    decided_ns: int
    paths: TickPicture
    why: str = ""  # it was picked


@dataclass(frozen=True, eq=False)
class Scenery:
    """What all pictures of a drive have in common."""

    name: str  # of the drive
    start_ns: int  # times are told from here
    warning: str  # what is wrong with the paths, such as that no model ran; "" when nothing is
    anchor: str  # name of the anchor camera
    frames: Mapping[int, Frame]  # the anchor camera's, by t0 in ns; those that are known
    camera: CameraModel | None  # None where its calibration isn't known


def drawable(record: Record, tick: Tick, future: Future) -> Drawable:
    """A tick that has a prediction, with what was driven after it."""
    assert tick.observation is not None
    assert tick.prediction is not None
    assert tick.chosen is not None
    paths = TickPicture(
        history=_small(tick.observation.history_xyz),
        truth=_small(future.xyz),
        candidates=_small(tick.prediction.xyz),
        chosen=_small(tick.chosen.xyz),
        baselines={name: _small(baseline(tick.observation).xyz) for name, baseline in BASELINES.items()},
    )
    return Drawable(record, tick.now_ns, paths)


def representative(drawables: Sequence[Drawable]) -> Drawable | None:
    """The tick of median error among those whose future is known furthest; the middle one where none is known."""
    known = [error for error in map(_error, drawables) if error is not None]
    if not known:
        return replace(drawables[len(drawables) // 2], why="the middle tick") if drawables else None
    furthest = max(horizon for horizon, _ in known)
    candidates = [each for each in drawables if (_error(each) or (0, 0))[0] == furthest]
    candidates.sort(key=lambda each: _error(each) or (0, 0))
    return replace(candidates[len(candidates) // 2], why="the tick of median error")


def worst_of(drawables: Iterable[Drawable], count: int = WORST) -> list[Drawable]:
    """The ticks whose chosen path errs most, the worst first, of those whose future is known furthest."""
    known = [each for each in drawables if _error(each) is not None]
    ordered = sorted(known, key=lambda each: _error(each) or (0, 0), reverse=True)
    return [replace(each, why=f"worst tick {rank}") for rank, each in enumerate(ordered[:count], start=1)]


def shown_tick(picked: Drawable, scenery: Scenery) -> ShownTick:
    """A tick as the page shows it, with its picture."""
    picture = io.BytesIO()
    draw(picture, picked, scenery)
    horizon, error = _error(picked) or (0.0, 0.0)
    return ShownTick(picked.record, _seconds(picked, scenery), f"{horizon:.1f}", error, picture.getvalue())


def draw(path: Path | BinaryIO, picked: Drawable, scenery: Scenery) -> None:
    """Write a tick's picture: a PNG, or a JPEG where it goes to a stream."""
    record = picked.record
    figures = record["metrics"]
    rows: list[tuple[str, ...]] = [("ADE in m at", *(f"{horizon} s" for horizon in STEPS))]
    shown = {"chosen path": figures["chosen"], "best sample": figures["best"]} | {
        name.replace("_", " "): each for name, each in figures["baselines"].items()
    }
    for name, each in shown.items():
        rows.append((name, *("-" if error is None else f"{error:.2f}" for error in each["ade"].values())))
    seconds, speed = _seconds(picked, scenery), record["speed"]
    caption = Caption(
        title=f"{scenery.name}, {seconds:.2f} s after its start, at {speed:.1f} m/s ({picked.why})",
        warning=scenery.warning,
        camera=scenery.anchor,
        reasoning=record["reasoning"] or "",
        rows=tuple(rows),
    )
    draw_tick(path, picked.paths, caption, scenery.frames.get(record["t0_ns"]), scenery.camera)


def _error(picked: Drawable) -> tuple[float, float] | None:
    return drawn_error(picked.record["metrics"])


def _seconds(picked: Drawable, scenery: Scenery) -> float:
    return float(picked.record["t0_ns"] - scenery.start_ns) * 1e-9


def _small(values: Array) -> Any:
    return values.astype(np.float32)

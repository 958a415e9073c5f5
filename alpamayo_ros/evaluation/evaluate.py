"""A bag in, a folder of results out: report.json, ticks.jsonl, a picture, and a bag of the node's output topics."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path
from typing import IO, Any, BinaryIO

import numpy as np

from alpamayo_ros.core.settings import Settings
from alpamayo_ros.core.types import AlpamayoError, Array, Frame, Skip
from alpamayo_ros.engine.base import Engine
from alpamayo_ros.evaluation.answers import Answers
from alpamayo_ros.evaluation.bag import BagReader
from alpamayo_ros.evaluation.baselines import BASELINES
from alpamayo_ros.evaluation.calibration import anchor_camera
from alpamayo_ros.evaluation.ground_truth import Future, GroundTruth
from alpamayo_ros.evaluation.html_report import ShownTick, write_html
from alpamayo_ros.evaluation.inputs import BagInputs
from alpamayo_ros.evaluation.output_folder import FORMAT, REPORT, output_folder, unfinished
from alpamayo_ros.evaluation.picture import Caption, TickPicture, draw_tick
from alpamayo_ros.evaluation.replay import Replay, Tick
from alpamayo_ros.evaluation.report import Record, engine_facts, notes, summarise, tick_record, versions
from alpamayo_ros.evaluation.result_bag import ResultBag
from alpamayo_ros.evaluation.scores import STEPS, drawn_error, finite, score
from alpamayo_ros.progress import progress
from alpamayo_ros.sensors.camera_model import CameraModel

TICKS, PICTURE, RESULT_BAG, PAGE = "ticks.jsonl", "tick.png", "result_bag", "report.html"
WORST = 10  # ticks that the page shows


@dataclass(frozen=True)
class Job:
    """What is evaluated, and how."""

    bag: BagReader
    inputs: BagInputs
    settings: Settings
    engine: Engine  # warmed up
    ideal: bool = False  # take every message as received at its own stamp
    show_progress: bool = False


@dataclass(frozen=True, eq=False)
class _Drawable:
    """What a picture of a tick needs, kept small: one is held for every tick until it is known which is drawn."""

    number: int  # of the record
    decided_ns: int
    paths: TickPicture
    why: str = ""  # it was picked


@dataclass(frozen=True, eq=False)
class Scenery:
    """What pictures show of the anchor camera."""

    frames: Mapping[int, Frame]  # by t0, ns
    camera: CameraModel | None  # None where its calibration isn't known


def evaluate(job: Job, out: Path, *, overwrite: bool = False) -> dict[str, Any]:
    """Run a bag through the engine and write the results into `out`, all or nothing.

    What the engine has answered is kept beside `out` until the results are written: an interrupted run goes on from
    there when it is started again with the same recording, engine and parameters.

    Returns:
        The report, as in report.json.

    Raises:
        ConfigurationError: the bag can't be read, or `out` is taken.
    """
    config = job.settings.builder_config()
    truth = GroundTruth(
        job.inputs.recorded_poses(), max_gap=config.max_odometry_gap, time_offset=config.odometry_time_offset
    )
    answers = Answers(unfinished(out), _run(job))
    if answers.known and job.show_progress:
        print(f"going on with an interrupted run: {answers.known} ticks are in {answers.folder}", file=sys.stderr)
    replay = Replay(job.inputs, job.settings, job.engine, ideal=job.ideal, answers=answers)
    records: list[Record] = []
    drawables: list[_Drawable] = []
    with output_folder(out, overwrite=overwrite) as folder:
        with (
            (folder / TICKS).open("w", encoding="utf-8") as lines,
            ResultBag(folder / RESULT_BAG, job.settings, job.engine.info) as results,
        ):
            for tick in _with_progress(replay, job):
                future = truth.future(tick.observation.t0_ns) if tick.observation is not None else None
                records.append(_add(tick, future, lines))
                results.write(tick)
                if future is not None and tick.prediction is not None:
                    results.write_driven(tick, future)
                    drawables.append(_Drawable(len(records) - 1, tick.now_ns, _drawn(tick, future)))
        chosen = _representative(records, drawables)
        worst = _worst(records, drawables)
        shown = worst if chosen is None else [chosen, *worst]
        frames = job.inputs.frames(
            job.settings.anchor, {records[each.number]["t0_ns"]: each.decided_ns for each in shown}
        )
        camera, uncalibrated = anchor_camera(job.bag, job.settings)
        scenery = Scenery(frames, camera)
        if chosen is not None:
            _draw(folder / PICTURE, records[chosen.number], chosen, job, scenery)
        report = _report(job, records, replay, uncalibrated, has_picture=chosen is not None)
        pictures = [_shown(records[each.number], each, job, scenery) for each in worst]
        write_html(folder / PAGE, report, records, pictures)
        (folder / REPORT).write_text(json.dumps(report, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    answers.discard()
    return report


def _run(job: Job) -> dict[str, Any]:
    """What decides the engine's answers."""
    bag = job.bag
    return {
        "bag": {"path": str(bag.path.resolve()), "start_ns": bag.start_ns, "duration_s": bag.duration},
        "messages": {topic: bag.count(topic) for topic in job.inputs.topics},
        "engine": engine_facts(job.engine.info),
        "settings": job.settings.flat(),
        "pose_source": job.inputs.pose_source,
        "ideal": job.ideal,
        "versions": versions(),
    }


def _add(tick: Tick, future: Future | None, lines: IO[str]) -> Record:
    figures = None
    if future is not None and tick.observation and tick.prediction and tick.chosen:
        figures = score(tick.observation, tick.prediction, tick.chosen, future)
    record = tick_record(tick, figures)
    lines.write(json.dumps(record, allow_nan=False) + "\n")
    return record


def _with_progress(replay: Replay, job: Job) -> Iterator[Tick]:
    """The replay's ticks, with a bar of the bag's seconds."""
    start_ns, duration = job.bag.start_ns, max(job.bag.duration, 1e-9)
    form = "{desc} {percentage:3.0f}% |{bar}| {n:.1f}/{total:.1f} s of the bag [{elapsed}, {remaining} left{postfix}]"
    with progress(total=duration, desc="evaluating", bar_format=form, disable=not job.show_progress) as bar:
        skipped = 0
        for number, tick in enumerate(replay, start=1):
            skipped += tick.skip is not None
            bar.set_postfix_str(f"{number} ticks, {skipped} skipped", refresh=False)
            bar.update(max((replay.progress_ns - start_ns) * 1e-9 - bar.n, 0))
            yield tick
        bar.update(max(duration - bar.n, 0))


def _drawn(tick: Tick, future: Future) -> TickPicture:
    assert tick.observation is not None
    assert tick.prediction is not None
    assert tick.chosen is not None
    return TickPicture(
        history=_small(tick.observation.history_xyz),
        truth=_small(future.xyz),
        candidates=_small(tick.prediction.xyz),
        chosen=_small(tick.chosen.xyz),
        baselines={name: _small(baseline(tick.observation)) for name, baseline in BASELINES.items()},
    )


def _small(values: Array) -> Any:
    return values.astype(np.float32)


def _representative(records: list[Record], drawables: list[_Drawable]) -> _Drawable | None:
    """The tick of median error among those whose future is known furthest; the middle one where none is known."""
    errors = {each.number: drawn_error(records[each.number]["metrics"]) for each in drawables}
    known = [error for error in errors.values() if error is not None]
    if not known:
        return replace(drawables[len(drawables) // 2], why="the middle tick") if drawables else None
    furthest = max(horizon for horizon, _ in known)
    candidates = [each for each in drawables if (errors[each.number] or (0, 0))[0] == furthest]
    candidates.sort(key=lambda each: errors[each.number] or (0, 0))
    return replace(candidates[len(candidates) // 2], why="the tick of median error")


def _worst(records: list[Record], drawables: list[_Drawable]) -> list[_Drawable]:
    """The ticks whose chosen path errs most, of those whose future is known furthest."""
    errors = {each.number: drawn_error(records[each.number]["metrics"]) for each in drawables}
    known = [each for each in drawables if errors[each.number] is not None]
    ordered = sorted(known, key=lambda each: errors[each.number] or (0, 0), reverse=True)
    return [replace(each, why=f"worst tick {rank}") for rank, each in enumerate(ordered[:WORST], start=1)]


def _shown(record: Record, drawable: _Drawable, job: Job, scenery: Scenery) -> ShownTick:
    picture = io.BytesIO()
    _draw(picture, record, drawable, job, scenery)
    horizon, error = drawn_error(record["metrics"]) or (0.0, 0.0)
    seconds = (record["t0_ns"] - job.bag.start_ns) * 1e-9
    return ShownTick(record, seconds, f"{horizon:.1f}", error, picture.getvalue())


def _draw(path: Path | BinaryIO, record: Record, drawable: _Drawable, job: Job, scenery: Scenery) -> None:
    info, figures = job.engine.info, record["metrics"]
    t0_s = (record["t0_ns"] - job.bag.start_ns) * 1e-9
    warnings = {True: "no model: the null engine goes straight on", False: "random weights: meaningless path"}
    rows: list[tuple[str, ...]] = [("ADE in m at", *(f"{horizon} s" for horizon in STEPS))]
    shown = {"chosen path": figures["chosen"], "best sample": figures["best"]} | {
        name.replace("_", " "): each for name, each in figures["baselines"].items()
    }
    for name, each in shown.items():
        rows.append((name, *("-" if error is None else f"{error:.2f}" for error in each["ade"].values())))
    caption = Caption(
        title=f"{job.bag.path.name}, {t0_s:.2f} s after its start, at {record['speed']:.1f} m/s ({drawable.why})",
        warning="" if info.trained else warnings[info.engine == "null"],
        camera=job.settings.anchor,
        reasoning=record["reasoning"] or "",
        rows=tuple(rows),
    )
    draw_tick(path, drawable.paths, caption, scenery.frames.get(record["t0_ns"]), scenery.camera)


def _report(job: Job, records: list[Record], replay: Replay, no_overlay: str, *, has_picture: bool) -> dict[str, Any]:
    bag, info = job.bag, job.engine.info
    nothing: Skip | None = None if records else replay.why_nothing()
    report = {
        "format": FORMAT,
        "notes": notes(info),
        "trained": info.trained,
        **summarise(records),
        "skips_before_first_path": sum(1 for _ in takewhile(lambda record: record["skip"] is not None, records)),
        "skips_after_last_image": replay.after_last_image,
        "why_no_tick": None if nothing is None else {"reason": nothing.reason.value, "numbers": nothing.numbers},
        "bag": {
            "path": str(bag.path.resolve()),
            "start_ns": bag.start_ns,
            "duration_s": bag.duration,
            "topics": {topic: {"type": bag.topics[topic], "messages": bag.count(topic)} for topic in job.inputs.topics},
            "warnings": [*bag.warnings, *job.inputs.warnings],
        },
        "inputs": replay.builder.counts(),
        "engine": engine_facts(info),
        "pose_source": job.inputs.pose_source,
        "ideal": job.ideal,
        "no_overlay": no_overlay or None,  # why the pictures have none
        "settings": job.settings.flat(),
        "versions": versions(),
        "files": {"page": PAGE, "ticks": TICKS, "picture": PICTURE if has_picture else None, "result_bag": RESULT_BAG},
    }
    plain: dict[str, Any] = finite(report)
    return plain


def check_engine(engine: Engine, settings: Settings) -> None:
    """Refuse settings that are beyond the engine's limits.

    Raises:
        AlpamayoError: naming the limit.
    """
    info = engine.info
    if settings.sampling.num_samples > info.max_samples:
        raise AlpamayoError(
            f"sampling.num_samples is {settings.sampling.num_samples}: the engine takes at most {info.max_samples}"
        )
    if len(settings.cameras) > info.max_cameras:
        raise AlpamayoError(f"the rig has {len(settings.cameras)} cameras: the engine takes at most {info.max_cameras}")

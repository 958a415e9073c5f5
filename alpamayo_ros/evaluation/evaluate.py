"""A bag in, a folder of results out: report.json, ticks.jsonl, a picture, and a bag of the node's output topics."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import IO, Any

from alpamayo_ros.core.settings import Settings
from alpamayo_ros.core.types import Skip
from alpamayo_ros.engine.base import Engine
from alpamayo_ros.evaluation.answers import Answers
from alpamayo_ros.evaluation.bag import BagReader
from alpamayo_ros.evaluation.calibration import anchor_camera
from alpamayo_ros.evaluation.ground_truth import Future, GroundTruth
from alpamayo_ros.evaluation.html_report import write_html
from alpamayo_ros.evaluation.inputs import BagInputs
from alpamayo_ros.evaluation.output_folder import FORMAT, PAGE, REPORT, TICKS, output_folder, unfinished
from alpamayo_ros.evaluation.replay import Replay, Tick
from alpamayo_ros.evaluation.report import (
    Record,
    engine_facts,
    notes,
    picture_warning,
    summarise,
    tick_record,
    versions,
)
from alpamayo_ros.evaluation.result_bag import ResultBag
from alpamayo_ros.evaluation.scores import finite, score
from alpamayo_ros.evaluation.shown_ticks import (
    WORST,
    Drawable,
    Scenery,
    draw,
    drawable,
    representative,
    shown_tick,
    worst_of,
)
from alpamayo_ros.evaluation.ticks_table import TABLE, write_table
from alpamayo_ros.progress import progress

PICTURE, RESULT_BAG = "tick.png", "result_bag"


@dataclass(frozen=True)
class Job:
    """What is evaluated, and how."""

    bag: BagReader
    inputs: BagInputs
    settings: Settings
    engine: Engine  # warmed up
    ideal: bool = False  # take every message as received at its own stamp
    show_progress: bool = False
    pictures: int = WORST  # of ticks on the page


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
        job.inputs.recorded_poses(),
        max_gap=config.max_odometry_gap,
        max_jump=config.max_odometry_jump,
        time_offset=config.odometry_time_offset,
    )
    answers = Answers(unfinished(out), _run(job))
    if answers.known and job.show_progress:
        print(f"going on with an interrupted run: {answers.known} ticks are in {answers.folder}", file=sys.stderr)
    replay = Replay(job.inputs, job.settings, job.engine, ideal=job.ideal, answers=answers)
    records: list[Record] = []
    drawables: list[Drawable] = []
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
                    drawables.append(drawable(records[-1], tick, future))
        chosen = representative(drawables)
        worst = worst_of(drawables, job.pictures)
        shown = worst if chosen is None else [chosen, *worst]
        frames = job.inputs.frames(job.settings.anchor, {each.record["t0_ns"]: each.decided_ns for each in shown})
        camera, uncalibrated = anchor_camera(job.bag, job.settings)
        warning = picture_warning(job.engine.info.engine, trained=job.engine.info.trained)
        scenery = Scenery(job.bag.path.name, job.bag.start_ns, warning, job.settings.anchor, frames, camera)
        if chosen is not None:
            draw(folder / PICTURE, chosen, scenery)
        files = {
            "page": PAGE,
            "ticks": TICKS,
            "table": TABLE if write_table(folder / TABLE, records) else None,
            "picture": None if chosen is None else PICTURE,
            "result_bag": RESULT_BAG,
        }
        report = _report(job, records, replay, uncalibrated, files)
        pictures = [shown_tick(each, scenery) for each in worst]
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


def _report(job: Job, records: list[Record], replay: Replay, no_overlay: str, files: dict[str, Any]) -> dict[str, Any]:
    bag, info = job.bag, job.engine.info
    nothing: Skip | None = None if records else replay.why_nothing()
    report = {
        "format": FORMAT,
        "notes": notes(info.engine, trained=info.trained),
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
        "files": files,
    }
    plain: dict[str, Any] = finite(report)
    return plain

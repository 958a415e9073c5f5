"""What a running node's evaluation comes to, as a folder like that of a bag's evaluation."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from alpamayo_ros.core.settings import Settings
from alpamayo_ros.core.types import ConfigurationError
from alpamayo_ros.evaluation.html_report import write_html
from alpamayo_ros.evaluation.live import LiveEvaluation, ScoredTick
from alpamayo_ros.evaluation.live_frames import LiveFrames
from alpamayo_ros.evaluation.output_folder import FORMAT, PAGE, REPORT, TICKS, output_folder
from alpamayo_ros.evaluation.report import Record, notes, picture_warning, versions
from alpamayo_ros.evaluation.scores import finite
from alpamayo_ros.evaluation.shown_ticks import Drawable, Scenery, drawable, shown_tick, worst_of
from alpamayo_ros.evaluation.ticks_table import TABLE, write_table
from alpamayo_ros.sensors.calibration import Calibration
from alpamayo_ros.sensors.camera_model import CameraModel

SCORED_BY = ("odometry.", "max_odometry_gap", "max_odometry_jump", "standstill_padding")  # parameters


@dataclass
class Heard:
    """What the node has said of itself, and how much came on each topic."""

    engine: dict[str, Any] = field(default_factory=dict)  # as its diagnostics have it
    trained: bool = False
    parameters: dict[str, Any] = field(default_factory=dict)  # of the running node; empty when it hasn't answered
    topics: dict[str, str] = field(default_factory=dict)  # topic -> type
    messages: dict[str, int] = field(default_factory=dict)  # topic -> count


class LiveReport:
    """Collects scored ticks, and writes the folder.

    Args:
        settings: of the node's rig.
        node: its full name.
    """

    def __init__(self, settings: Settings, node: str) -> None:
        self._settings = settings
        self._node = node
        self.records: list[Record] = []
        self._worst: list[Drawable] = []
        self.frames = LiveFrames(settings.camera(settings.anchor))
        self.calibration = Calibration(settings.overlay, settings.odometry.base_frame)

    def add(self, scored: ScoredTick) -> None:
        """The next tick whose future has been driven."""
        self.records.append(scored.record)
        before = [*self._worst, drawable(scored.record, scored.tick, scored.future)]
        self._worst = worst_of(before)
        shown = {each.record["t0_ns"] for each in self._worst}
        self.frames.forget({each.record["t0_ns"] for each in before} - shown)

    def write(self, out: Path, live: LiveEvaluation, heard: Heard, *, overwrite: bool = False) -> dict[str, Any]:
        """Write the results into `out`, all or nothing; returns the report, as in report.json.

        Raises:
            ConfigurationError: `out` is taken, or can't be written.
        """
        records = [*self.records, *live.skips]
        stamps = [record["decided_ns"] for record in records]
        start_ns = live.start_ns or min(stamps, default=0)
        end_ns = max(stamps, default=start_ns)
        camera, uncalibrated = self._camera()
        kind = str(heard.engine.get("engine", ""))
        report = {
            "format": FORMAT,
            "notes": notes(kind, trained=heard.trained),
            "trained": heard.trained,
            **live.summary(records),
            "bag": {
                "path": self._node,
                "start_ns": start_ns,
                "duration_s": max(end_ns - start_ns, 0) * 1e-9,
                "topics": {
                    topic: {"type": kind, "messages": heard.messages.get(topic, 0)}
                    for topic, kind in heard.topics.items()
                },
                "warnings": self._warnings(heard),
            },
            "engine": heard.engine,
            "ideal": False,
            "no_overlay": uncalibrated or None,
            "settings": heard.parameters or self._settings.flat(),
            "versions": versions(),
        }
        warning = picture_warning(kind, trained=heard.trained)
        scenery = Scenery(self._node, start_ns, warning, self._settings.anchor, self.frames.kept, camera)
        with output_folder(out, overwrite=overwrite) as folder:
            table = TABLE if write_table(folder / TABLE, records) else None
            plain: dict[str, Any] = finite({**report, "files": {"page": PAGE, "ticks": TICKS, "table": table}})
            write_html(folder / PAGE, plain, records, [shown_tick(each, scenery) for each in self._worst])
            lines = "".join(json.dumps(record, allow_nan=False) + "\n" for record in records)
            (folder / TICKS).write_text(lines, encoding="utf-8")
            (folder / REPORT).write_text(json.dumps(plain, indent=1, allow_nan=False) + "\n", encoding="utf-8")
        return plain

    def _camera(self) -> tuple[CameraModel | None, str]:
        try:
            return self.calibration.model(), self.calibration.missing
        except ConfigurationError as error:
            return None, str(error)

    def _warnings(self, heard: Heard) -> Sequence[str]:
        if not heard.parameters:
            return ["the node did not tell its parameters: those of the parameter file are shown"]
        given, told = finite(self._settings.flat()), finite(heard.parameters)  # lists and tuples alike
        other = [
            f"{name} is {told[name]!r} in the node, {value!r} in the parameter file"
            for name, value in given.items()
            if name.startswith(SCORED_BY) and told.get(name, value) != value
        ]
        return [f"paths were scored by another setting than the node's: {text}" for text in other]

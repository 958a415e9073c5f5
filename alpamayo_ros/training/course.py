"""A training from its first drive to its last step, in pieces."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from alpamayo_ros.core.types import ConfigurationError, EngineError
from alpamayo_ros.model.config import ModelConfig
from alpamayo_ros.progress import progress
from alpamayo_ros.training.examples import blank_examples
from alpamayo_ros.training.recording import DriveRecorder, Learner
from alpamayo_ros.training.settings import PACE_STEPS, Schedule, TrainingSettings
from alpamayo_ros.training.store import ExampleStore
from alpamayo_ros.training.trainer import Trainer, is_finite

IMAGE_SIZE = (96, 160)  # pixels, of the world's cameras
LONGEST = 456  # tokens of a prompt with its reasoning
STATE_FILE = "training.safetensors"
LOG_FILE = "training.jsonl"
UNMEASURED = 40  # of the first steps: they compile, and warm up
RECORDED_BY = 0.85  # of a training: by then all drives that it will see have joined
RECORDING_MARGIN = 0.9  # of the pace of recording is counted upon
PACE_MARGIN = 0.96  # of the pace of the steps: an end that isn't reached costs more than a few steps
SAVING = 10.0  # s that are kept for saving at the end of a piece
LOG_EVERY = 50  # steps
TAKEN_AT_ONCE = 8  # drives of 55 MB that are in memory together on their way to the device


@dataclass(frozen=True)
class Piece:
    """How much of a training happens now."""

    minutes: float  # at most
    total_minutes: float  # of all pieces, this one being the first; counts when there is no schedule
    workers: int  # processes that record drives
    drives_per_step: float | None = None  # that join at most; None: all that are recorded; counts without a schedule
    steps_before: int = 0  # of the trainings whose weights this one begins with; counts when there is no schedule
    resume: bool = False
    schedule: Schedule | None = None  # None: as many steps as fit into all pieces, and the drives recorded meanwhile
    compiled: bool = False
    keep_drives: int | None = None  # that were in use stay on disk for the next piece, the newest; None: all
    drives: Path | None = None  # the folder for them; None: one beside the state
    learner: Learner | None = None  # who drives some of the drives, besides the expert
    begin_from: Path | None = None  # a checkpoint whose weights a new training begins with


class Course:
    """A training whose state, log and recorded drives lie in a folder."""

    def __init__(
        self, config: ModelConfig, out: Path, settings: TrainingSettings, piece: Piece, device: torch.device
    ) -> None:
        """Get ready.

        Args:
            config: Of a folder with the checkpoint's descriptions.
            out: For the state, the log and the drives.
            settings: Of the whole training.
            piece: Of this part.
            device: Where to train.

        Raises:
            ConfigurationError: there is nothing to resume from, or something of other settings.
        """
        self._started = time.monotonic()
        self._config, self._out, self._settings, self._piece = config, out, settings, piece
        out.mkdir(parents=True, exist_ok=True)
        torch.set_float32_matmul_precision("high")
        vocabulary = config.load_vocabulary()
        capacity = min(settings.kept_drives, settings.drives)
        self._store = ExampleStore(config, vocabulary, IMAGE_SIZE, LONGEST, capacity, device, settings.emphasis)
        self.trainer = Trainer(config, vocabulary, self._store.tables.layout, settings, device, piece.compiled)
        if piece.begin_from is not None:
            self.trainer.begin_from(piece.begin_from)
        self.schedule = self._resumed() if piece.resume else piece.schedule
        # until the pace is known; the warm-up is the same in each
        self._unplanned = Schedule(steps=1 << 30, drives_per_step=0.0, before=piece.steps_before)
        if self.schedule is None and settings.warm_up < PACE_STEPS:
            raise ConfigurationError(
                f"the warm-up has {settings.warm_up} steps; to plan a training by its pace it has to have {PACE_STEPS}"
            )
        self._deadline = self._started + 60 * piece.minutes - SAVING

    @property
    def finished(self) -> bool:
        """Whether the last step is done."""
        return self.schedule is not None and self.trainer.step >= self.schedule.steps

    def run(self, most_steps: int | None = None) -> None:
        """Train until the end or until the time is up, and save the state.

        Args:
            most_steps: That are done now at most.

        Raises:
            EngineError: the losses are no numbers any more, or the time was over before anything could be planned.
        """
        settings, piece = self._settings, self._piece
        self._store.skip(max(self._wanted() - settings.kept_drives, 0))
        seeds = range(settings.first_seed + self._store.drives, settings.first_seed + settings.drives)
        with DriveRecorder(
            self._config,
            piece.drives or self._out / "drives",
            seeds,
            settings.drive_seconds,
            piece.workers,
            piece.keep_drives,
            piece.learner,
            settings.other_routes,
            settings.ahead_share,
        ) as recorder:
            self._train(recorder, most_steps)
            if self.schedule is None:
                raise EngineError(
                    f"{piece.minutes:g} min were over after {self.trainer.step} steps, too few to plan by; "
                    "give more minutes, or the number of steps"
                )
            # before the drives that are being recorded are done, which nobody will see
            told = {"settings": asdict(settings), "schedule": asdict(self.schedule), "learner": self._learner}
            self.trainer.save(self._out / STATE_FILE, told)

    def _train(self, recorder: DriveRecorder, most_steps: int | None) -> None:
        first = self._store.drives
        if self._piece.compiled:
            self._compile()
        measured_from = 0.0
        last = None if most_steps is None else self.trainer.step + most_steps
        total = self.schedule.steps if self.schedule else None
        with progress(desc="training", unit=" steps", initial=self.trainer.step, total=total) as bar:
            while not self.finished and self.trainer.step != last and time.monotonic() < self._deadline:
                self._take_in(recorder, first, self._wanted())
                losses = self.trainer.run_step(self._store, self.schedule or self._unplanned)
                step = self.trainer.step
                bar.update()
                if step == 1 or step % LOG_EVERY == 0 or self.finished:
                    self._log(losses, recorder)
                if self.schedule is None and step == UNMEASURED:
                    measured_from = self._now()
                if self.schedule is None and step == PACE_STEPS:
                    pace = (self._now() - measured_from) / (PACE_STEPS - UNMEASURED)
                    self.schedule = self._planned(pace, recorder)
                    bar.total = self.schedule.steps
                    recorder.end_at(self.schedule.drives_at(self.schedule.steps, self._settings) - first)

    def _compile(self) -> None:
        """While the first drives are being recorded."""
        config, device = self._config, self.trainer.device
        blank = ExampleStore(config, config.load_vocabulary(), IMAGE_SIZE, LONGEST, 1, device)
        blank.add([blank_examples(IMAGE_SIZE, config)])
        self.trainer.compile_on(blank)

    def _planned(self, step_seconds: float, recorder: DriveRecorder) -> Schedule:
        """What fits into the rest of this piece and the pieces to come, by the pace so far."""
        now, recorded = time.monotonic(), recorder.ready
        remaining = self._deadline - now + 60 * (self._piece.total_minutes - self._piece.minutes)
        steps = max(int(PACE_MARGIN * remaining / step_seconds), 1)
        recording_pace = RECORDING_MARGIN * max(recorder.pace, recorder.recorded / (now - self._started))
        in_time = min(recorded + recording_pace * RECORDED_BY * remaining, self._settings.drives)
        joining = max(in_time - self._settings.first_drives, 0.0)
        drives_per_step = joining / (RECORDED_BY * steps)
        if self._piece.drives_per_step is not None:
            drives_per_step = min(drives_per_step, self._piece.drives_per_step)
        return Schedule(PACE_STEPS + steps, drives_per_step, self._piece.steps_before)

    def _resumed(self) -> Schedule:
        path = self._out / STATE_FILE
        if not path.is_file():
            raise ConfigurationError(f"{path} is missing; there is nothing to resume")
        course = self.trainer.load(path)
        if course["settings"] != asdict(self._settings):
            raise ConfigurationError(
                f"{path} was trained with {course['settings']}; it can't go on with {asdict(self._settings)}"
            )
        if course.get("learner", self._learner) != self._learner:
            raise ConfigurationError(
                f"{path} was trained with the learner {course['learner']}; it can't go on with {self._learner}: its "
                "drives would be others"
            )
        return Schedule(**course["schedule"])

    @property
    def _learner(self) -> str | None:
        """Who drives some of the drives, by name."""
        return self._piece.learner.name if self._piece.learner is not None else None

    def _wanted(self) -> int:
        """The drives that have joined by the next step."""
        return (self.schedule or self._unplanned).drives_at(self.trainer.step, self._settings)

    def _take_in(self, recorder: DriveRecorder, first: int, wanted: int) -> None:
        """Drives up to the number wanted, of which the recorder's first is number `first`; waits for them."""
        while wanted > self._store.drives:
            some = range(self._store.drives, min(self._store.drives + TAKEN_AT_ONCE, wanted))
            self._store.add([recorder.get(place - first) for place in some])

    def _log(self, losses: dict[str, Tensor], recorder: DriveRecorder) -> None:
        """One line, and a look at the losses, for which the device has to be waited for."""
        values = {name: float(value) for name, value in losses.items()}
        line: dict[str, Any] = {
            "step": self.trainer.step,
            "seconds": round(time.monotonic() - self._started, 2),
            **{name: round(value, 5) for name, value in values.items()},
            "learning_rate": self.trainer.learning_rate,
            "drives": self._store.drives,
            "recorded": recorder.ready,
        }
        with (self._out / LOG_FILE).open("a") as stream:
            stream.write(json.dumps(line) + "\n")
        if not is_finite(values):
            raise EngineError(f"the losses of step {self.trainer.step} are {values}; they have to be finite")

    def _now(self) -> float:
        """The time when the device has done everything so far."""
        if self.trainer.device.type == "cuda":
            torch.cuda.synchronize(self.trainer.device)
        return time.monotonic()

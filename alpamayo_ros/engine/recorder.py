"""Keeps the engine's last ticks, and writes them to a file when one fails, so that it can be run again.

The engine is wrapped, so that what is kept is what it was given and what it gave, and nothing else has to know. Keeping
a tick costs microseconds; files are written by a thread of their own. What goes wrong there is a warning.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import Counter, deque
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from alpamayo_ros.core.settings import Settings
from alpamayo_ros.core.types import (
    ConfigurationError,
    Frame,
    Observation,
    Prediction,
    SamplingOptions,
    Skip,
    SkipReason,
)
from alpamayo_ros.engine.base import Engine
from alpamayo_ros.engine.tick_file import SUFFIX, RecordedTick, TickFile, write_ticks

logger = logging.getLogger(__name__)

FAILURES = (SkipReason.ENGINE_ERROR, SkipReason.BAD_OUTPUT)
SAVED_ON_REQUEST = "service"
PATIENCE = 2.0  # s that closing waits for a file that is being written


class TickRecorder:
    """The last ticks of one engine. Thread-safe.

    Args:
        settings: `recorder` says how many are kept and where they go; all of them are written with the ticks.
        engine: to be wrapped; with `recorder.ticks` 0 it stays as it is.
    """

    def __init__(self, settings: Settings, engine: Engine) -> None:
        self._settings = settings
        self._written_settings = _with_whole_paths(settings)
        self._info = engine.info
        # to be used in its place
        self.engine: Engine = _Recorded(engine, self) if settings.recorder.ticks else engine
        self._lock = threading.Lock()
        self._ticks: deque[RecordedTick] = deque()
        self._held: Counter[int] = Counter()  # serial of a frame -> ticks that it is in
        self._bytes = 0
        self._begun = 0
        self._failure_saved = 0  # _begun, when ticks were last saved for a failure
        self._writer: threading.Thread | None = None

    def begin(self, observation: Observation, options: SamplingOptions) -> None:
        """The engine is given a tick."""
        limits = self._settings.recorder
        with self._lock:
            self._begun += 1
            self._ticks.append(RecordedTick(observation, options))
            for frame in _frames(observation):
                self._held[frame.serial] += 1
                self._bytes += _size(frame) if self._held[frame.serial] == 1 else 0
            while len(self._ticks) > limits.ticks or (len(self._ticks) > 1 and self._bytes > limits.memory_mb * 1e6):
                self._forget_oldest()

    def end(self, engine_ms: float, prediction: Prediction | None = None, error: str = "") -> None:
        """It has answered, or raised an error."""
        with self._lock:
            if self._ticks:  # or else it was closed meanwhile
                self._ticks[-1] = replace(
                    self._ticks[-1], prediction=prediction, error=error, finished=True, engine_ms=engine_ms
                )

    def on_skip(self, skip: Skip) -> None:
        """A tick gave no trajectory: save the ticks if it failed in the engine and is in no file yet."""
        if skip.reason not in FAILURES or not self._settings.recorder.ticks:
            return
        with self._lock:
            if self._failure_saved and self._begun - self._failure_saved < self._settings.recorder.ticks:
                return  # one file per full set of ticks is enough when all of them fail
            self._failure_saved = self._begun
        self.save(skip.reason.value)

    def save(self, why: str = SAVED_ON_REQUEST) -> Future[Path]:
        """Write what is kept to a new file in the folder, and go on meanwhile.

        Returns:
            The file to come, or the AlpamayoError or OSError that kept it from being written.
        """
        result: Future[Path] = Future()
        with self._lock:
            problem = self._obstacle()
            if problem:
                result.set_exception(ConfigurationError(problem))
                return result
            content = TickFile(why, self._written_settings, self._info, tuple(self._ticks))
            self._writer = threading.Thread(target=self._write, args=(content, result), name="recorder", daemon=True)
            self._writer.start()
        return result

    def close(self) -> None:
        """Wait a moment for a file that is being written, and forget the ticks."""
        with self._lock:
            writer, self._writer = self._writer, None
            self._ticks.clear()
            self._held.clear()
            self._bytes = 0
        if writer is not None:
            writer.join(PATIENCE)

    def _obstacle(self) -> str:
        if not self._settings.recorder.ticks:
            return "recorder.ticks is 0: no tick is kept; set it, and start the node again"
        if not self._ticks:
            return "there has been no tick yet"
        if self._writer is not None and self._writer.is_alive():
            return "the last file is still being written: try again"
        return ""

    def _forget_oldest(self) -> None:
        for frame in _frames(self._ticks.popleft().observation):
            self._held[frame.serial] -= 1
            if not self._held[frame.serial]:
                del self._held[frame.serial]
                self._bytes -= _size(frame)

    def _write(self, content: TickFile, result: Future[Path]) -> None:
        """In a thread of its own: the file appears whole or not at all."""
        settings = self._settings.recorder
        partial: Path | None = None
        try:
            folder = Path(settings.folder).expanduser()
            folder.mkdir(parents=True, exist_ok=True)
            present = len(list(folder.glob(f"*{SUFFIX}")))
            if content.why != SAVED_ON_REQUEST and present >= settings.max_files:
                raise ConfigurationError(
                    f"{folder} holds {present} files, and recorder.max_files is {settings.max_files}"
                )
            name = f"{content.ticks[-1].observation.t0_ns}_{content.why}"
            partial = folder / f".{name}.{os.getpid()}.partial"
            partial.unlink(missing_ok=True)
            write_ticks(partial, content)
            path = _free_name(folder, name)
            partial.rename(path)
        except Exception as error:  # a full disk, a folder that can't be written, an answer that can't be stored
            if partial is not None:
                _remove(partial)
            logger.warning("%d ticks could not be saved: %s", len(content.ticks), error)
            result.set_exception(error)
        else:
            level = logging.INFO if content.why == SAVED_ON_REQUEST else logging.WARNING
            logger.log(level, "%d ticks saved to %s (%s)", len(content.ticks), path, content.why)
            result.set_result(path)


class _Recorded:
    """An engine whose ticks are recorded."""

    def __init__(self, engine: Engine, recorder: TickRecorder) -> None:
        self.info = engine.info
        self.prepares_alongside = engine.prepares_alongside
        self._engine = engine
        self._recorder = recorder

    def warm_up(self) -> None:
        self._engine.warm_up()

    def prepare(self, frames: Sequence[Frame]) -> None:
        self._engine.prepare(frames)

    def predict(self, observation: Observation, options: SamplingOptions) -> Prediction:
        self._recorder.begin(observation, options)
        started = time.monotonic()
        try:
            prediction = self._engine.predict(observation, options)
        except BaseException as error:
            self._recorder.end((time.monotonic() - started) * 1e3, error=f"{type(error).__name__}: {error}")
            raise
        engine_ms = (time.monotonic() - started) * 1e3
        if isinstance(prediction, Prediction):
            self._recorder.end(engine_ms, prediction=prediction)
        else:
            self._recorder.end(engine_ms, error=f"the answer is a {type(prediction).__name__}, expected Prediction")
        return prediction

    def predict_batch(
        self, observations: Sequence[Observation], options: Sequence[SamplingOptions]
    ) -> list[Prediction]:
        return self._engine.predict_batch(observations, options)

    def ask(self, observation: Observation, question: str, options: SamplingOptions) -> str:
        return self._engine.ask(observation, question, options)

    def close(self) -> None:
        self._engine.close()


def _with_whole_paths(settings: Settings) -> dict[str, Any]:
    """The parameters, with folders given from where the node was started named so that they are found from anywhere."""
    values = settings.flat()
    for name in ("engine.checkpoint", "engine.base_model"):
        folder = Path(values[name]).expanduser()
        if values[name] and folder.is_dir():  # or else it is a Hugging Face name
            values[name] = str(folder.resolve())
    return values


def _frames(observation: Observation) -> list[Frame]:
    return [frame for frames in observation.frames.values() for frame in frames]


def _size(frame: Frame) -> int:
    return int(np.frombuffer(frame.data, np.uint8).size)


def _free_name(folder: Path, name: str) -> Path:
    path, number = folder / f"{name}{SUFFIX}", 1
    while path.exists():
        number += 1
        path = folder / f"{name}_{number}{SUFFIX}"
    return path


def _remove(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        logger.warning("%s stays behind: %s", path, error)

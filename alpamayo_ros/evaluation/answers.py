"""What the engine has answered in a run that isn't finished, so that an interrupted one goes on where it was.

A folder beside the results, with one file per answer. The next run goes through the bag again, which takes seconds, and
takes these answers instead of asking the engine: all else comes out the same as in one go, the measured times included.
"""

from __future__ import annotations

import json
import os
import shutil
import zipfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from alpamayo_ros.core.types import ConfigurationError, Prediction, Timings

FORMAT = "alpamayo_ros unfinished evaluation 1"
RUN = "run.json"
ARRAYS = ("xyz", "rotation", "actions", "speed")


@dataclass(frozen=True, eq=False)
class Answer:
    """One answer of the engine, with what it took."""

    t0_ns: int
    seed: int
    prediction: Prediction
    engine_ms: float
    prepare_ms: float


class Answers:
    """Answers in the order in which they were given.

    Args:
        folder: where they are; made when the first one comes.
        run: what decides the answers: engine, parameters, recording. Answers of another run are thrown away.

    Raises:
        ConfigurationError: something else is at `folder`.
    """

    def __init__(self, folder: Path, run: Mapping[str, Any]) -> None:
        self.folder = folder
        self._run = json.dumps({"format": FORMAT, **run}, sort_keys=True, default=str)
        self._number = 0  # of the next question
        if folder.exists():
            self._check()
        self.known = len(list(folder.glob("*.npz")))  # from an earlier run

    @property
    def knows_next(self) -> bool:
        """Whether the next question has been answered before."""
        return self._file(self._number).exists()

    def recall(self, t0_ns: int, seed: int) -> Answer | None:
        """The answer to the next question, if it was asked before; to be called once for each."""
        number, self._number = self._number, self._number + 1
        file = self._file(number)
        if not file.exists():
            return None
        try:
            answer = _read(file)
        except (OSError, ValueError, KeyError, zipfile.BadZipFile):  # cut off by a crash of the machine: ask again
            return None
        return answer if (answer.t0_ns, answer.seed) == (t0_ns, seed) else None

    def keep(self, answer: Answer) -> None:
        """Add the answer to the question that was recalled last."""
        if not self.folder.exists():
            self.folder.mkdir(parents=True)
            (self.folder / RUN).write_text(self._run, encoding="utf-8")
        file = self._file(self._number - 1)
        partial = file.with_suffix(".partial")
        with partial.open("wb") as stream:
            _write(stream, answer)
        os.replace(partial, file)

    def discard(self) -> None:
        """Remove all of them: the results are written."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _file(self, number: int) -> Path:
        return self.folder / f"{number:07d}.npz"

    def _check(self) -> None:
        """Throw away what belongs to another run; refuse what is none."""
        try:
            found = (self.folder / RUN).read_text(encoding="utf-8")
            ours = json.loads(found)["format"] == FORMAT
        except (OSError, ValueError, KeyError, TypeError):
            found, ours = "", False
        if not ours:
            raise ConfigurationError(
                f"{self.folder} is in the way: it should hold an unfinished run, and doesn't; remove it yourself"
            )
        if found != self._run:
            self.discard()


def _write(stream: Any, answer: Answer) -> None:
    prediction = answer.prediction
    rest = {
        **{name: getattr(answer, name) for name in ("t0_ns", "seed", "engine_ms", "prepare_ms")},
        "reasoning": prediction.reasoning,
        "reasoning_token_ids": prediction.reasoning_token_ids,
        "finish_reasons": prediction.finish_reasons,
        "prediction_seed": prediction.seed,
        "drafts_accepted": prediction.drafts_accepted,
        "timings": asdict(prediction.timings),
    }
    text = np.frombuffer(json.dumps(rest).encode(), np.uint8)
    arrays = {name: np.asarray(getattr(prediction, name)) for name in ARRAYS}
    np.savez(stream, allow_pickle=False, text=text, **arrays)


def _read(file: Path) -> Answer:
    with np.load(file, allow_pickle=False) as found:
        rest = json.loads(found["text"].tobytes())
        arrays = {name: found[name] for name in ARRAYS}
    prediction = Prediction(
        **arrays,
        reasoning=tuple(rest["reasoning"]),
        reasoning_token_ids=tuple(map(tuple, rest["reasoning_token_ids"])),
        finish_reasons=tuple(rest["finish_reasons"]),
        seed=rest["prediction_seed"],
        drafts_accepted=rest["drafts_accepted"],
        timings=Timings(**rest["timings"]),
    )
    return Answer(rest["t0_ns"], rest["seed"], prediction, rest["engine_ms"], rest["prepare_ms"])

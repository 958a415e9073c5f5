"""Drives recorded and prepared in processes of their own, one file each, while training goes on."""

from __future__ import annotations

import hashlib
import inspect
import multiprocessing
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType

import cv2
import numpy as np
import torch
from numpy.typing import NDArray

from alpamayo_ros.core.types import ConfigurationError
from alpamayo_ros.model.checkpoint import Checkpoint
from alpamayo_ros.model.config import ModelConfig
from alpamayo_ros.sim import recorded_drive
from alpamayo_ros.sim.car_plans import AHEAD_SHARE
from alpamayo_ros.sim.policies import Policy
from alpamayo_ros.sim.recorded_drive import record_drive
from alpamayo_ros.training import examples, observations
from alpamayo_ros.training.examples import DriveExamples, examples_of

READ_AHEAD, READERS = 8, 3  # drives, and threads that read them
RECORDED_AHEAD = 300  # drives on disk that nobody has asked for yet
EXAMPLES_SOURCES = (examples.__file__, observations.__file__)
JPEG_QUALITY = 90  # as the synthetic drive's topics have it


@dataclass(frozen=True)
class Learner:
    """A checkpoint that drives some of the drives."""

    checkpoint: Path
    every: int  # one of so many drives, those whose seeds it divides; odd, to meet pushes and JPEG as often as others
    policy: Callable[[Path], Policy]  # makes paths of the checkpoint; called in each process that records

    def __post_init__(self) -> None:
        if self.every < 1 or self.every % 2 == 0:
            raise ConfigurationError(
                f"the learner is to drive one of {self.every} drives; it has to be an odd number, since every second "
                "drive is disturbed"
            )

    @property
    def name(self) -> str:
        """Of its weights, its way of driving and its share."""
        way = hashlib.sha256(inspect.getsource(inspect.getmodule(self.policy) or self.policy).encode())
        return f"{Checkpoint.open(self.checkpoint).hash[:12]}-{way.hexdigest()[:6]}-{self.every}"


@dataclass(frozen=True)
class _Ways:
    """What all drives have in common; see `record_drive`."""

    seconds: float
    other_routes: float
    ahead_share: float


class DriveRecorder:
    """Records the drives of given seeds, in their order; what lies in the folder already isn't recorded again.

    It is no more than RECORDED_AHEAD drives ahead of what was asked for. Every second drive is disturbed, so that the
    model learns to come back to its lane, and of both kinds every second one's pictures have gone through JPEG. A
    context manager, whose end ends its processes at once, whatever they are recording.
    """

    def __init__(
        self,
        config: ModelConfig,
        folder: Path,
        seeds: Sequence[int],
        seconds: float,
        workers: int,
        keep: int | None = None,
        learner: Learner | None = None,
        other_routes: float = 0.0,
        ahead_share: float = AHEAD_SHARE,
    ) -> None:
        """Start.

        Args:
            config: The checkpoint's, which says how examples look.
            folder: For the files; those of another world or config lie apart. Trainings that share it use what lies
                there, whoever drove it.
            seeds: Of the drives.
            seconds: Length of each.
            workers: Processes.
            keep: So many files at most are left there that have been read, the newest; None: all. A drive of 30 s is
                55 MB.
            learner: Who drives some of them; None: the expert drives all.
            other_routes: Share of the ticks before junctions that show another way out; see `record_drive`.
            ahead_share: Of the roads, that have a car ahead.
        """
        self._keep = keep
        routes = f"-routes{other_routes:g}" if other_routes else ""
        cars = f"-cars{ahead_share:g}" if ahead_share != AHEAD_SHARE else ""
        self._folder = folder / f"{_fingerprint(config)}-{seconds:g}s{routes}{cars}"
        self._folder.mkdir(parents=True, exist_ok=True)
        self._others = set(multiprocessing.active_children())
        self._pool = ProcessPoolExecutor(
            workers,
            multiprocessing.get_context("spawn"),
            initializer=_prepare_worker,
            initargs=(str(config.folder), learner),
        )
        self._workers = workers
        self._loader = ThreadPoolExecutor(READERS)
        self._loaded: dict[int, Future[DriveExamples]] = {}
        self._seeds, self._ways = seeds, _Ways(seconds, other_routes, ahead_share)
        self._drives: list[Future[Path]] = []
        self._most = len(seeds)
        self.recorded = 0  # besides those that lay there
        self._first_recorded = 0.0  # when
        found = next((place for place in range(self._most) if not self._path(seeds[place]).is_file()), self._most)
        self._begin_until(min(found + RECORDED_AHEAD, self._most))

    def __enter__(self) -> DriveRecorder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in set(multiprocessing.active_children()) - self._others:
            process.terminate()  # a drive takes up to 30 s, and its file is written all or nothing
        self._pool.shutdown(cancel_futures=True)
        self._loader.shutdown(wait=False, cancel_futures=True)

    def __len__(self) -> int:
        return len(self._seeds)

    @property
    def ready(self) -> int:
        """How many drives are there."""
        return sum(drive.done() for drive in self._drives)

    @property
    def pace(self) -> float:
        """Drives recorded in a second, besides those that lay there.

        All processes begin with their first drive together, which says nothing about how long it takes them.
        """
        later = self.recorded - self._workers
        return later / (time.monotonic() - self._first_recorded) if later > 0 else 0.0

    def end_at(self, count: int) -> None:
        """Record no more drives than the first so many."""
        self._most = min(count, len(self))

    def get(self, place: int) -> DriveExamples:
        """The drive at this place among the seeds; waits until it is recorded. The next ones are read meanwhile."""
        self._begin_until(max(min(place + RECORDED_AHEAD, self._most), place + 1))
        for each in range(place, max(min(place + READ_AHEAD, self._most), place + 1)):
            if each not in self._loaded:
                self._loaded[each] = self._loader.submit(self._load, each)
        drive = self._loaded.pop(place).result()
        if self._keep is not None and place >= self._keep:
            self._drives[place - self._keep].result().unlink()
        return drive

    def _load(self, place: int) -> DriveExamples:
        return DriveExamples.load(self._drives[place].result())

    def _begin_until(self, place: int) -> None:
        """Begin with the drives up to that place."""
        while len(self._drives) < place:
            self._drives.append(self._begin(self._seeds[len(self._drives)]))

    def _path(self, seed: int) -> Path:
        return self._folder / f"drive-{seed}.npz"

    def _begin(self, seed: int) -> Future[Path]:
        path = self._path(seed)
        if not path.is_file():
            drive = self._pool.submit(_record, seed, self._ways, path)
            drive.add_done_callback(self._count)
            return drive
        kept: Future[Path] = Future()
        kept.set_result(path)
        return kept

    def _count(self, drive: Future[Path]) -> None:
        if not drive.cancelled() and drive.exception() is None:
            self._first_recorded = self._first_recorded or time.monotonic()
            self.recorded += 1


_config: ModelConfig | None = None  # of a worker process, as the rest
_every = 0  # 0: the learner drives none
_policy: Policy | None = None


def _prepare_worker(checkpoint: str, learner: Learner | None) -> None:
    global _config, _every, _policy
    os.nice(5)  # the process that trains goes first
    cv2.setNumThreads(1)
    torch.set_num_threads(1)
    _config = ModelConfig.load(checkpoint)
    if learner is not None:
        _every, _policy = learner.every, learner.policy(learner.checkpoint)


def _record(seed: int, ways: _Ways, path: Path) -> Path:
    assert _config is not None
    learner = _policy if _every and seed % _every == 0 else None
    drive = record_drive(
        seed,
        ways.seconds,
        disturbed=seed % 2 == 1,
        learner=learner,
        other_routes=ways.other_routes,
        ahead_share=ways.ahead_share,
    )
    if seed % 4 >= 2:
        drive = replace(drive, images=compressed(drive.images))
    examples_of(drive, _config).save(path)
    return path


def compressed(images: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """RGB pictures [..., H, W, 3] after JPEG, as a vehicle's topics carry them."""
    flat = images.reshape(-1, *images.shape[-3:])
    sent = np.empty_like(flat)
    for picture, place in zip(flat, sent, strict=True):
        data = cv2.imencode(".jpg", picture[..., ::-1], [cv2.IMWRITE_JPEG_QUALITY, JPEG_QUALITY])[1]
        decoded = cv2.imdecode(data, cv2.IMREAD_COLOR)
        assert decoded is not None  # it was just encoded
        place[...] = decoded[..., ::-1]
    return sent.reshape(images.shape)


def _fingerprint(config: ModelConfig) -> str:
    """Changes when the world's code changes, or what examples are made with."""
    digest = hashlib.sha256(repr((config.action_space, config.history, config.images, JPEG_QUALITY)).encode())
    for source in (*sorted(Path(recorded_drive.__file__).parent.glob("*.py")), *map(Path, EXAMPLES_SOURCES)):
        digest.update(source.read_bytes())
    return digest.hexdigest()[:12]

"""Frames in the hands of several threads: each is encoded once, and nobody waits for ever."""

import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager

import numpy as np
import pytest
import torch
from tiny_checkpoint import picture, raw_frame

from alpamayo_ros.core.types import BadImageError, Frame
from alpamayo_ros.engine import frame_decoding
from alpamayo_ros.engine.frame_features import WAITING, FoundFrames, FrameFeatures
from alpamayo_ros.engine.stage_clock import StageClock
from alpamayo_ros.model.backbone import ImageFeatures
from alpamayo_ros.model.images import ImageConfig, ImagePatches
from alpamayo_ros.sensors.decode import decode

CPU = torch.device("cpu")


class Tower:
    """A vision tower whose features are the image's mean; it can be held inside its work, or be made to fail."""

    def __init__(self) -> None:
        self.images = 0
        self.inside = self.most_inside = 0
        self.entered, self.open = threading.Event(), threading.Event()
        self.open.set()
        self.faults: list[Exception] = []

    def encode(self, patches: ImagePatches) -> list[ImageFeatures]:
        raise AssertionError("only single images are encoded")

    def encode_each(self, patches: Sequence[ImagePatches]) -> list[ImageFeatures]:
        self.inside += 1
        self.most_inside = max(self.most_inside, self.inside)
        self.entered.set()
        assert self.open.wait(5)
        self.inside -= 1
        if self.faults:
            raise self.faults.pop()
        self.images += len(patches)
        mean = [each.pixel_values.mean().reshape(1, 1) for each in patches]
        return [ImageFeatures(each, each[None], 1, 1) for each in mean]


@pytest.fixture
def tower() -> Tower:
    return Tower()


@pytest.fixture
def features(tower: Tower) -> FrameFeatures:
    return FrameFeatures(tower, ImageConfig(), CPU, capacity=8)


@pytest.fixture
def beside() -> Iterator[Callable[..., Future[None]]]:
    """Runs something in a thread of its own."""
    with ThreadPoolExecutor() as threads:
        yield threads.submit


def frame(seed: int) -> Frame:
    return raw_frame(1, seed, picture(seed))


class Clock(StageClock):
    """Calls something when its thread begins to wait for another one's frames."""

    def __init__(self, when_waiting: Callable[[], object] = lambda: None) -> None:
        super().__init__(CPU)
        self._when_waiting = when_waiting

    def host_stage(self, name: str) -> AbstractContextManager[None]:
        if name == WAITING:
            self._when_waiting()
        return super().host_stage(name)


def get(features: FrameFeatures, *frames: Frame) -> tuple[FoundFrames, dict[str, float]]:
    clock = Clock()
    return features.get(frames, clock), clock.stages_ms


def mean(found: FoundFrames) -> list[float]:
    return [each.features.embeddings.item() for each in found.frames]


def test_a_frame_on_its_way_is_waited_for_and_not_encoded_twice(
    features: FrameFeatures, tower: Tower, beside: Callable[..., Future[None]]
) -> None:
    first, second = frame(1), frame(2)
    tower.open.clear()
    preparing = beside(features.prepare, [first])
    assert tower.entered.wait(5)
    clock = Clock(when_waiting=tower.open.set)
    found = features.get([first, second], clock)
    preparing.result(5)
    assert tower.images == 2
    assert found.encoded == 1
    assert WAITING in clock.stages_ms
    assert mean(found) == mean(get(FrameFeatures(tower, ImageConfig(), CPU, 8), first, second)[0])


def test_a_prepared_frame_is_neither_encoded_nor_waited_for(features: FrameFeatures, tower: Tower) -> None:
    one = frame(1)
    features.prepare([one])
    found, stages = get(features, one)
    assert (tower.images, found.encoded, stages) == (1, 0, {})
    features.prepare([one])
    assert tower.images == 1


def test_one_thread_at_a_time_is_in_the_tower_and_every_frame_is_encoded_once(
    features: FrameFeatures, tower: Tower, beside: Callable[..., Future[None]]
) -> None:
    for _ in range(20):
        frames = [frame(seed) for seed in range(4)]
        tower.images = 0
        preparing = [beside(features.prepare, some) for some in (frames[:2], frames[1:3], frames[2:])]
        found = beside(get, features, *frames).result(5)[0]
        for each in preparing:
            each.result(5)
        assert tower.images == 4
        assert mean(found) == mean(get(features, *frames)[0])
        assert len(set(mean(found))) == 4
    assert tower.most_inside == 1


def test_what_is_being_encoded_is_used_at_once_and_seen_by_others_at_the_end(
    features: FrameFeatures, tower: Tower, beside: Callable[..., Future[None]]
) -> None:
    first, second = frame(1), frame(2)
    features.prepare([first])
    with features.use([first, second], Clock()) as found:
        assert found.encoded == 1
        waiting = threading.Event()
        other = beside(features.get, [second], Clock(when_waiting=waiting.set))
        assert waiting.wait(5)
        assert not other.done()
    assert mean(other.result(5)) == mean(found)[1:]
    assert tower.images == 2


def test_who_has_nothing_to_encode_waits_for_nobody(
    features: FrameFeatures, tower: Tower, beside: Callable[..., Future[None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither for the lock nor for the stream, on which another thread may be encoding the next tick's frames."""
    there, coming = frame(1), frame(2)
    features.prepare([there])
    tower.entered.clear()
    tower.open.clear()
    preparing = beside(features.prepare, [coming])
    assert tower.entered.wait(5)
    waits: list[str] = []
    with monkeypatch.context() as patch:
        for name in ("_synchronize", "_let_reader_wait"):
            patch.setattr(features, name, lambda name=name: waits.append(name))
        assert get(features, there)[0].encoded == 0
        assert waits == []
    tower.open.set()
    preparing.result(5)


def test_a_fault_of_who_uses_frames_loses_none_of_them(features: FrameFeatures, tower: Tower) -> None:
    one = frame(1)
    with pytest.raises(ValueError, match="the prompt is too long"), features.use([one], Clock()):
        raise ValueError("the prompt is too long")
    assert get(features, one)[0].encoded == 0
    assert tower.images == 1


def test_two_who_use_each_others_frames_both_get_them(
    features: FrameFeatures, tower: Tower, beside: Callable[..., Future[None]]
) -> None:
    first, second = frame(1), frame(2)
    tower.open.clear()
    one = beside(get, features, first, second)  # which has claimed both before it is in the tower
    assert tower.entered.wait(5)
    third = frame(3)
    other = beside(get, features, third, second)
    tower.open.set()
    assert mean(one.result(5)[0])[1] == mean(other.result(5)[0])[1]
    assert tower.images == 3


def test_a_bad_frame_is_passed_over_by_prepare_and_named_to_who_asks_and_who_waits(
    features: FrameFeatures, tower: Tower, beside: Callable[..., Future[None]]
) -> None:
    good, broken = frame(1), Frame(10_000_001, 6, 0, b"no jpeg", "jpeg")
    features.prepare([broken, good])
    assert tower.images == 1
    assert len(features) == 1
    for _ in range(2):  # it isn't kept, so each time anew
        with pytest.raises(BadImageError) as caught:
            get(features, good, broken)
        assert caught.value.serial == broken.serial
    assert get(features, good)[0].encoded == 0


def test_a_fault_of_the_tower_reaches_who_met_it_and_who_waited_tries_by_himself(
    features: FrameFeatures, tower: Tower, beside: Callable[..., Future[None]]
) -> None:
    one = frame(1)
    tower.faults.append(RuntimeError("out of memory"))
    tower.open.clear()
    preparing = beside(features.prepare, [one])
    assert tower.entered.wait(5)
    found = features.get([one], Clock(when_waiting=tower.open.set))
    with pytest.raises(RuntimeError, match="out of memory"):
        preparing.result(5)
    assert (found.encoded, tower.images) == (1, 1)
    assert get(features, one)[0].encoded == 0


def test_a_fault_that_stays_is_raised_and_the_next_try_is_a_new_one(features: FrameFeatures, tower: Tower) -> None:
    tower.faults.append(RuntimeError("out of memory"))
    with pytest.raises(RuntimeError, match="out of memory"):
        get(features, frame(1))
    assert get(features, frame(1))[0].encoded == 1


def test_frames_are_decoded_side_by_side_and_a_bad_one_is_named_when_all_others_are_done(
    features: FrameFeatures, monkeypatch: pytest.MonkeyPatch
) -> None:
    together = threading.Barrier(4)
    finished: list[int] = []

    def decode_with_others(frame: Frame) -> object:
        together.wait(5)  # breaks unless four are at it at once
        image = decode(frame)
        finished.append(frame.serial)
        return image

    monkeypatch.setattr(frame_decoding, "decode", decode_with_others)
    good, broken = [frame(seed) for seed in range(3)], Frame(10_000_001, 6, 0, b"no jpeg", "jpeg")
    with pytest.raises(BadImageError) as caught:
        get(features, broken, *good)
    assert caught.value.serial == broken.serial
    assert {each.serial for each in good} == set(finished)


def test_whoever_holds_a_fault_of_decoding_holds_no_view_of_the_data(
    features: FrameFeatures, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are lent to an engine process; another thread that waited may hold the fault beyond that."""

    def decode_without_memory(frame: Frame) -> None:
        view = np.frombuffer(frame.data, np.uint8)
        raise MemoryError(f"no room for the picture of {len(view)} bytes")

    monkeypatch.setattr(frame_decoding, "decode", decode_without_memory)
    owner = np.zeros(500, np.uint8)
    lent, alive = memoryview(owner), weakref.ref(owner)
    del owner
    with pytest.raises(MemoryError) as caught:
        features.prepare([Frame(10_000_002, 6, 0, lent, "jpeg")])
    lent.release()
    assert alive() is None
    assert "500 bytes" in str(caught.value)


def test_forgetting_while_a_frame_is_on_its_way_leaves_nobody_waiting(
    features: FrameFeatures, tower: Tower, beside: Callable[..., Future[None]]
) -> None:
    one = frame(1)
    tower.open.clear()
    getting = beside(get, features, one)
    assert tower.entered.wait(5)
    features.clear()
    tower.open.set()
    assert len(getting.result(5)[0].frames) == 1
    assert len(features) == 0


def test_what_is_kept_is_bounded(features: FrameFeatures) -> None:
    for seed in range(20):
        features.prepare([frame(seed)])
    assert len(features) == 8
    assert get(features, *[frame(seed) for seed in range(12)])[0].encoded == 12

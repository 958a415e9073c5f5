"""Frames in shared memory: each once, the newest stay, and nobody sees another one's bytes."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from alpamayo_ros.core.types import EngineError, Frame
from alpamayo_ros.engine.process.ring import FrameMemory, LentMemory, Loan, Ring, RingFull
from alpamayo_ros.engine.process.wire import Slot

SIZE = 4096


def frame(serial: int, size: int = 100) -> Frame:
    """Its bytes depend on serial and size alone."""
    return Frame(serial, 0, serial, np.random.default_rng([serial % 997, size]).bytes(size), "jpeg")


def seen(ring: Ring) -> Loan:
    """The same memory as the engine process sees it at a request."""
    return Loan(LentMemory(os.dup(ring.descriptor), ring.size))


@pytest.fixture
def ring():
    made = Ring(SIZE)
    yield made
    made.close()


# requests of up to 5 frames, some of them asked for again: of any size up to all of the memory
requests = st.lists(
    st.lists(st.tuples(st.integers(0, 12), st.integers(0, SIZE // 4)), max_size=5, unique_by=lambda each: each[0]),
    max_size=30,
)


@given(requests)
def test_whatever_is_asked_for_lies_there_apart_from_all_else(batches: list[list[tuple[int, int]]]) -> None:
    ring, sizes = Ring(SIZE), {}
    view = seen(ring)
    for batch in batches:
        frames = [frame(serial, sizes.setdefault(serial, size)) for serial, size in batch]
        try:
            slots = ring.place(frames)
        except RingFull:
            # only when half of the memory is needed at once: what has to stay may lie in the way
            assert sum(max(64, sizes[serial] + 63) for serial, _ in batch) > SIZE / 2
            continue
        assert set(slots) == {serial for serial, _ in batch}
        for each in frames:
            assert bytes(view.lend(slots[each.serial])) == each.data
        ends = sorted((slot.offset, slot.offset + slot.size) for slot in slots.values())
        assert all(end <= start for (_, end), (start, _) in pairwise(ends))
        view.take_back()
    ring.close()


@given(requests)
def test_what_another_request_needs_stays_where_it_is(batches: list[list[tuple[int, int]]]) -> None:
    ring, sizes = Ring(SIZE), {}
    others: dict[int, Slot] = {}  # of the request before, which is under way
    for batch in batches:
        frames = [frame(serial, sizes.setdefault(serial, size)) for serial, size in batch]
        try:
            slots = ring.place(frames, others)
        except RingFull:
            others = {}
            continue
        assert set(slots) == {each.serial for each in frames}
        for serial, slot in {**others, **slots}.items():
            assert bytes(seen(ring).lend(slot)) == frame(serial, sizes[serial]).data
        others = slots
    ring.close()


def test_a_frame_is_written_once(ring: Ring) -> None:
    first = ring.place([frame(1), frame(2)])
    changed = Frame(1, 0, 1, b"never looked at", "jpeg")
    again = ring.place([changed, frame(3)])
    assert again[1] == first[1]
    assert bytes(seen(ring).lend(again[1])) == frame(1).data


def test_the_oldest_make_room_for_the_newest_and_come_back_when_they_are_asked_for(ring: Ring) -> None:
    for serial in range(100):
        ring.place([frame(serial, 1000)])
    view = seen(ring)
    kept = ring.place([frame(99, 1000), frame(98, 1000)])
    assert bytes(view.lend(kept[98])) == frame(98, 1000).data
    assert bytes(view.lend(ring.place([frame(3, 1000)])[3])) == frame(3, 1000).data


def test_what_a_request_needs_is_never_overwritten_by_its_other_frames(ring: Ring) -> None:
    ring.place([frame(1, 1000)])
    for serial in range(2, 50):  # 1 is the oldest all the time
        slots = ring.place([frame(serial, 1000), frame(1, 1000)])
        assert bytes(seen(ring).lend(slots[1])) == frame(1, 1000).data


def test_more_than_fits_in_is_said_and_the_memory_grows_for_it(ring: Ring) -> None:
    with pytest.raises(RingFull):
        ring.place([frame(1, SIZE + 1)])
    with pytest.raises(RingFull):
        ring.place([frame(serial, SIZE // 4) for serial in range(5)])

    memory = FrameMemory(cameras=1)
    small = memory.ring.size
    large = frame(1, small + 1)
    slots = memory.place([large])
    assert memory.ring.size >= 8 * large.data.__len__()  # so that the next ones find room too
    assert bytes(seen(memory.ring).lend(slots[1])) == large.data
    grown = memory.ring
    memory.place([frame(serial, small + 1) for serial in range(2, 9)])
    assert memory.ring is grown
    # a small frame that finds no room beside those of a request under way makes no smaller memory
    memory.place([frame(20, 100)], others=range(1, 9))
    assert memory.ring is not grown
    assert memory.ring.size >= grown.size
    memory.close()


@pytest.mark.parametrize(
    "data",
    [
        b"bytes",
        memoryview(b"a view"),
        np.arange(24, dtype=np.uint8).reshape(2, 4, 3),
        np.arange(48, dtype=np.uint8).reshape(2, 8, 3)[:, ::2],
        b"",
        np.zeros((0, 4, 3), np.uint8),
    ],
    ids=["bytes", "view", "pixels", "every other pixel", "empty", "no pixels"],
)
def test_all_that_a_frames_data_may_be(ring: Ring, data: object) -> None:
    slots = ring.place([Frame(1, 0, 1, data, "rgb8")])  # type: ignore[arg-type]
    expected = data.tobytes() if isinstance(data, np.ndarray) else bytes(data)  # type: ignore[call-overload]
    assert bytes(seen(ring).lend(slots[1])) == expected


def test_a_lent_view_can_not_be_written_and_not_be_read_after_its_request(ring: Ring) -> None:
    slots = ring.place([frame(1)])
    memory = seen(ring)
    view = memory.lend(slots[1])
    with pytest.raises(TypeError, match="read-only"):
        view[0] = 0
    memory.take_back()
    with pytest.raises(ValueError, match="released"):
        bytes(view)


def test_an_engine_that_keeps_what_it_was_lent_is_told_and_what_only_a_cycle_keeps_is_nothing(ring: Ring) -> None:
    slots = ring.place([frame(1)])
    memory = seen(ring)
    kept = np.frombuffer(memory.lend(slots[1]), np.uint8)
    with pytest.raises(EngineError, match="kept views of 1 frames' data"):
        memory.take_back()
    assert kept.tobytes() == frame(1).data
    cycle = [np.frombuffer(memory.lend(slots[1]), np.uint8)]
    cycle.append(cycle)  # type: ignore[arg-type]
    del cycle
    memory.take_back()


def test_a_slot_outside_of_the_memory_is_refused(ring: Ring) -> None:
    memory = seen(ring)
    for slot in (Slot(SIZE - 10, 11), Slot(-1, 1), Slot(0, -1)):
        with pytest.raises(ValueError, match="outside"):
            memory.lend(slot)


def test_nothing_stays_behind(ring: Ring) -> None:
    def held() -> list[str]:
        links = [str(link.readlink()) for link in Path("/proc/self/fd").iterdir() if link.exists()]
        mapped = Path("/proc/self/maps").read_text().splitlines()
        return [each for each in (*links, *mapped) if "alpamayo_frames" in each]

    before = len(held())
    other = Ring(SIZE)
    memory = seen(other)
    assert len(held()) > before
    other.close()
    del memory
    assert len(held()) == before


def test_too_little_memory_is_one_clear_error_at_the_start() -> None:
    program = (
        "import resource, sys\n"
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({1 << 20}, resource.RLIM_INFINITY))\n"
        "from alpamayo_ros.core.types import EngineError\n"
        "from alpamayo_ros.engine.factory import create_engine\n"
        "try:\n"
        "    create_engine('null', '', process='subprocess', max_cameras=4)\n"
        "except EngineError as error:\n"
        "    print(error)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment, timeout=60)
    assert "needs 34 MB of shared memory for camera frames, which can't be had: File too large" in said.stdout, said
    assert "engine.process to in_process" in said.stdout

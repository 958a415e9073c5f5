"""Frames in memory that the node and its engine process share: each is written once, under its serial number.

The memory has no name in any folder (memfd): it is gone with the last process that holds it, however that ends, and
the size of /dev/shm, 64 MB in a container, doesn't limit it.

There are no locks. One thread of the node at a time writes, and never over what a request that is under way needs; the
engine process reads a request's frames only until it answers it.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import mmap
import os
import weakref
from collections import OrderedDict
from collections.abc import Collection, Sequence

import numpy as np
from numpy.typing import NDArray

from alpamayo_ros.core.types import FRAMES_PER_CAMERA, EngineError, Frame
from alpamayo_ros.engine.process.wire import Slot

logger = logging.getLogger(__name__)

ALIGNMENT = 64  # bytes: a line of the CPU's cache
USUAL_FRAME = 1 << 20  # bytes; a JPEG of 1920x1080 takes less
KEPT_PER_CAMERA = 2 * FRAMES_PER_CAMERA  # the frames of a tick, and those that come until it is done


class RingFull(Exception):
    """The frames of one request don't fit in, all at once."""


class Ring:
    """The node's side: the newest frames, in the order in which they came; the next one overwrites the oldest.

    Args:
        size: bytes.

    Raises:
        EngineError: there is not so much memory.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.descriptor = os.memfd_create("alpamayo_frames", os.MFD_CLOEXEC)
        try:
            os.posix_fallocate(self.descriptor, 0, size)  # now, or else the first write beyond what is there kills
            self._memory = mmap.mmap(self.descriptor, size)
        except OSError as error:
            os.close(self.descriptor)
            raise EngineError(
                f"the engine process needs {size / 1e6:.0f} MB of shared memory for camera frames, which can't be had: "
                f"{error.strerror}; give the machine or container more memory, or set engine.process to in_process"
            ) from error
        self._kept: OrderedDict[int, Slot] = OrderedDict()  # by serial, in the order of places, from the head on
        self._head = 0

    def place(self, frames: Sequence[Frame], others: Collection[int] = ()) -> dict[int, Slot]:
        """See that all of these are in; returns where, by serial.

        Args:
            frames: of a request.
            others: serials that have to stay where they are: requests under way need them.

        Raises:
            RingFull: they don't fit in together.
        """
        needed = {frame.serial for frame in frames} | set(others)
        for frame in frames:
            if frame.serial not in self._kept:
                data = _flat(frame)
                slot = Slot(self._reserve(_aligned(data.size), needed), data.size)
                self._memory[slot.offset : slot.offset + slot.size] = data.data
                self._kept[frame.serial] = slot
        return {frame.serial: self._kept[frame.serial] for frame in frames}

    def close(self) -> None:
        """Give the memory back. Idempotent."""
        if not self._memory.closed:
            self._kept.clear()
            self._memory.close()
            os.close(self.descriptor)

    def _reserve(self, size: int, needed: Collection[int]) -> int:
        """Make room of that size, behind the head or at the start; returns where."""
        start, wrapped = self._head, False
        while True:
            if start + size > self.size:
                if wrapped or size > self.size:
                    raise RingFull
                self._step_over_the_rest()
                start = self._head = 0
                wrapped = True
            blocking = self._first_between(start, start + size)
            if blocking is None:
                self._head = start + size
                return start
            slot = self._kept[blocking]
            if blocking in needed:
                self._kept.move_to_end(blocking)
                start = self._head = slot.offset + _aligned(slot.size)
            else:
                del self._kept[blocking]

    def _first_between(self, start: int, end: int) -> int | None:
        """The frame that comes next behind the head, if it lies in this part."""
        serial, slot = next(iter(self._kept.items()), (None, Slot(0, 0)))
        return serial if start <= slot.offset < end else None

    def _step_over_the_rest(self) -> None:
        """The frames from the head to the memory's end stay, and come last."""
        for serial, slot in list(self._kept.items()):
            if slot.offset < self._head:
                break
            self._kept.move_to_end(serial)


class FrameMemory:
    """A ring that is replaced by a larger one when frames turn out to need it.

    Args:
        cameras: at most.

    Raises:
        EngineError: there is too little memory.
    """

    def __init__(self, cameras: int) -> None:
        self._frames = KEPT_PER_CAMERA * cameras
        self.ring = Ring(self._frames * USUAL_FRAME)

    def place(self, frames: Sequence[Frame], others: Collection[int] = ()) -> dict[int, Slot]:
        """Where these frames are, by serial; those that are not in yet are written.

        Args:
            frames: of a request.
            others: serials that have to stay where they are. In a ring that is replaced they do: the engine process
                has a map of its own of that memory.

        Raises:
            EngineError: there is too little memory.
        """
        try:
            return self.ring.place(frames, others)
        except RingFull:
            sizes = {frame.serial: _aligned(_flat(frame).size) for frame in frames}
            # never smaller: a request of few small frames may be what finds no room beside a large one
            larger = Ring(max(self.ring.size, 2 * sum(sizes.values()), self._frames * max(sizes.values())))
            logger.info("shared memory for frames: %d bytes in the place of %d", larger.size, self.ring.size)
            self.ring.close()
            self.ring = larger
            return self.ring.place(frames)

    def close(self) -> None:
        """Give the memory back."""
        self.ring.close()


class LentMemory:
    """The engine process's side.

    Args:
        descriptor: of the memory; is closed here.
        size: bytes.
    """

    def __init__(self, descriptor: int, size: int) -> None:
        try:
            self._memory = np.frombuffer(mmap.mmap(descriptor, size, prot=mmap.PROT_READ), np.uint8)
        finally:
            os.close(descriptor)

    def part(self, slot: Slot) -> NDArray[np.uint8]:
        """The bytes there, not to be written."""
        if not 0 <= slot.offset <= slot.offset + slot.size <= len(self._memory):
            raise ValueError(f"{slot} is outside the shared memory of {len(self._memory)} bytes")
        return self._memory[slot.offset : slot.offset + slot.size]


class Loan:
    """Views of the frames of one request, for as long as that takes. The memory stays until then, also a former one."""

    def __init__(self, memory: LentMemory) -> None:
        self._memory = memory
        self._lent: list[memoryview] = []
        self._owners: list[weakref.ref[NDArray[np.uint8]]] = []  # of what was lent: alive while any view of it is

    def lend(self, slot: Slot) -> memoryview:
        """The bytes there, not to be written; until `take_back`."""
        owner = self._memory.part(slot)
        self._owners.append(weakref.ref(owner))
        self._lent.append(memoryview(owner))  # type: ignore[arg-type]
        return self._lent[-1]

    def take_back(self) -> None:
        """End what was lent: another frame may lie there soon.

        Raises:
            EngineError: somebody still has a view. He would see the other frame, and never know.
        """
        while self._lent:
            with contextlib.suppress(BufferError):  # held: its owner says so below
                self._lent.pop().release()
        owners, self._owners = self._owners, []
        if any(owner() is not None for owner in owners):
            gc.collect()  # what only a cycle holds is nobody's
        held = sum(owner() is not None for owner in owners)
        if held:
            raise EngineError(
                f"the engine kept views of {held} frames' data beyond its call; it has to copy what it keeps"
            )


def _flat(frame: Frame) -> NDArray[np.uint8]:
    data = frame.data
    if isinstance(data, np.ndarray):
        return np.ascontiguousarray(data).reshape(-1).view(np.uint8)
    return np.frombuffer(data, np.uint8)


def _aligned(size: int) -> int:
    return max(-size // ALIGNMENT * -ALIGNMENT, ALIGNMENT)

"""Frames to the vision tower's features, each once: what was encoded is kept under the frame's serial number."""

from __future__ import annotations

import threading
import traceback
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from alpamayo_ros.core.types import BadImageError, Frame
from alpamayo_ros.engine.resident_model import VisionModel
from alpamayo_ros.engine.stage_clock import StageClock
from alpamayo_ros.model.backbone import ImageFeatures
from alpamayo_ros.model.images import ImageConfig, preprocess, target_size
from alpamayo_ros.model.resize import Resize, resize
from alpamayo_ros.sensors.decode import decode

DECODERS = 8  # threads; decoding leaves Python's lock to others
WAITING = "arrival"  # the stage: for frames that another thread has in hand


@dataclass(frozen=True, eq=False)
class EncodedFrame:
    """A frame's features, and the size of the picture that they came from."""

    features: ImageFeatures
    height: int  # pixels, before the resize
    width: int


@dataclass(frozen=True, eq=False)
class FoundFrames:
    """What was asked for, in its order."""

    frames: list[EncodedFrame]
    encoded: int  # how many of them weren't there or on their way


@dataclass(frozen=True, eq=False)
class _Claim:
    """A frame that the thread which holds this has to encode; others wait for its result."""

    frame: Frame
    result: Future[EncodedFrame]


class FrameFeatures:
    """The newest `capacity` frames' features, for any number of threads.

    On CUDA all encoding is queued on one stream of its own, whoever asks, so that it runs beside a prediction and a
    frame's features are the same in either thread. Why that is safe:

    * The lock is held until the stream has done all that was queued. So one thread at a time uses the tower's static
      buffers and the resize's tables, and features that can be seen are complete: any stream may read them.
    * Weights are only read, and were complete before the first encoding: the device is waited for once.
    * Features lie in memory that the allocator would give to the next encoding as soon as nobody holds them, although
      kernels of the reader's stream may not have run yet. A prediction holds its features until its answer is on the
      host; one that fails doesn't, so `get` records the reader's stream with them.
    * A graph for a new size of image is captured under the lock, in thread_local mode: other threads may use CUDA
      then, except to wait for the whole device, which StageClock doesn't.
    """

    def __init__(
        self, vision: VisionModel, images: ImageConfig, device: torch.device, capacity: int, resize: Resize = resize
    ) -> None:
        self._vision = vision
        self._images = images
        self._device = device
        self._capacity = capacity
        self._resize = resize
        self._kept: OrderedDict[int, Future[EncodedFrame]] = OrderedDict()  # by serial, the one used last at the end
        self._keeping = threading.Lock()  # of _kept
        self._encoding = threading.Lock()
        self._decoders = ThreadPoolExecutor(DECODERS, thread_name_prefix="decode")
        self._stream: torch.cuda.Stream | None = None
        if device.type == "cuda":
            torch.cuda.synchronize(device)
            self._stream = torch.cuda.Stream(device)

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, frames: Sequence[Frame], clock: StageClock) -> FoundFrames:
        """The features of these frames; what is missing is decoded and encoded, what is on its way is waited for.

        Raises:
            BadImageError: a frame can't be decoded or has a size that the model can't take.
        """
        results, claims = self._claim_and_wait(frames, clock)
        if any(
            _failed(result) for result in results
        ):  # in another thread, as when it finds no memory; here it may work
            results, more = self._claim_and_wait(frames, clock)
            claims += more
        encoded = [result.result() for result in results]
        if self._stream is not None:
            reader = torch.cuda.current_stream(self._device)
            for each in encoded:
                for part in (each.features.embeddings, each.features.deepstack):
                    if part.is_cuda:  # a tower may leave them on the host
                        part.record_stream(reader)
        return FoundFrames(encoded, len(claims))

    def prepare(self, frames: Sequence[Frame]) -> None:
        """Encode those that are missing. A bad one is passed over, and not kept."""
        _, claims = self._claim(frames)
        self._redeem(claims, StageClock(self._device))

    def clear(self) -> None:
        """Forget all; who waits for a frame still gets it."""
        with self._keeping:
            self._kept.clear()

    def _claim_and_wait(
        self, frames: Sequence[Frame], clock: StageClock
    ) -> tuple[list[Future[EncodedFrame]], list[_Claim]]:
        """Every frame's result, which is there or failed, and the claims that were this thread's."""
        results, claims = self._claim(frames)
        self._redeem(claims, clock)  # first: those who wait for these may have what is waited for below
        if not all(result.done() for result in results):
            with clock.host_stage(WAITING):
                wait(results)
        return results, claims

    def _claim(self, frames: Sequence[Frame]) -> tuple[list[Future[EncodedFrame]], list[_Claim]]:
        """Every frame's result, there or still to come, and those that are now the caller's to encode."""
        claims = []
        with self._keeping:
            for frame in frames:
                if frame.serial not in self._kept:
                    claims.append(_Claim(frame, Future()))
                    self._kept[frame.serial] = claims[-1].result
                self._kept.move_to_end(frame.serial)
            results = [self._kept[frame.serial] for frame in frames]
            while len(self._kept) > max(self._capacity, len(frames)):
                self._kept.popitem(last=False)
        return results, claims

    def _redeem(self, claims: Sequence[_Claim], clock: StageClock) -> None:
        """Encode what was claimed. Whatever happens, every claim gets its result or the error."""
        try:
            decoded = self._decode_all(claims, clock)
            if decoded:
                self._encode([claim for claim, _ in decoded], [picture for _, picture in decoded], clock)
        except BaseException as error:
            for claim in claims:
                if not claim.result.done():
                    self._fail(claim, error)
            raise

    def _decode_all(self, claims: Sequence[_Claim], clock: StageClock) -> list[tuple[_Claim, Tensor]]:
        """Decode side by side; those that can be."""
        if not claims:
            return []
        decoded = []
        with clock.host_stage("decode"):
            decoding = [self._decoders.submit(self._decode, claim.frame) for claim in claims]
            wait(decoding)  # for all, whatever becomes of one: their data are there no longer than this call
            for claim, picture in zip(claims, decoding, strict=True):
                try:
                    decoded.append((claim, picture.result()))
                except BadImageError as error:
                    _let_go_of_data(error)
                    self._fail(claim, error)
        return decoded

    def _encode(self, claims: Sequence[_Claim], pictures: Sequence[Tensor], clock: StageClock) -> None:
        with self._device_to_oneself(clock):
            with clock.stage("preprocess"):
                patches = [preprocess([picture], self._images, self._device, self._resize) for picture in pictures]
            with clock.stage("vision"):
                features = self._vision.encode_each(patches)
        for claim, each, picture in zip(claims, features, pictures, strict=True):
            claim.result.set_result(EncodedFrame(each, *picture.shape[:2]))

    @contextmanager
    def _device_to_oneself(self, clock: StageClock) -> Iterator[None]:
        """Hold the lock, and be on the encoding's stream; at the end that has nothing left to do."""
        if not self._encoding.acquire(blocking=False):
            with clock.host_stage(WAITING):
                self._encoding.acquire()
        try:
            with self._on_stream():
                try:
                    yield
                finally:
                    if self._stream is not None:
                        self._stream.synchronize()
        finally:
            self._encoding.release()

    def _on_stream(self) -> AbstractContextManager[object]:
        return nullcontext() if self._stream is None else torch.cuda.stream(self._stream)

    def _fail(self, claim: _Claim, error: BaseException) -> None:
        """Tell those who wait, and let the next one who asks try again."""
        with self._keeping:
            if self._kept.get(claim.frame.serial) is claim.result:
                del self._kept[claim.frame.serial]
        claim.result.set_exception(error)

    def _decode(self, frame: Frame) -> Tensor:
        """RGB uint8 [H, W, 3] on the host, for a GPU in memory that it reads by itself."""
        picture = torch.from_numpy(np.ascontiguousarray(decode(frame)))
        height, width, _ = picture.shape
        try:
            target_size(height, width, self._images)
        except BadImageError as error:
            message = f"camera {frame.camera}, stamp {frame.stamp_ns} ns: {error}"
            raise BadImageError(message, frame.serial) from error
        return picture.pin_memory() if self._device.type == "cuda" else picture


def _failed(result: Future[EncodedFrame]) -> bool:
    """Whether something else than the frame itself was to blame."""
    return not isinstance(result.exception(), BadImageError | None)


def _let_go_of_data(error: BaseException | None) -> None:
    """Clear the local variables of what has failed: another thread may hold the error beyond this call."""
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__

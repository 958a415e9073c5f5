"""Frames to the vision tower's features, each once: what was encoded is kept under the frame's serial number."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, wait
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor

from alpamayo_ros.core.types import BadImageError, Frame
from alpamayo_ros.engine.frame_decoding import FrameDecoder, Picture, let_go_of_data
from alpamayo_ros.engine.gpu_jpegs import GpuJpegs
from alpamayo_ros.engine.resident_model import VisionModel
from alpamayo_ros.engine.stage_clock import StageClock
from alpamayo_ros.model.backbone import ImageFeatures
from alpamayo_ros.model.images import ImageConfig, preprocess
from alpamayo_ros.model.resize import Resize, resize

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
      buffers and the resize's tables, and features that others can see are complete: any stream may read them. Who
      encodes them may read them earlier, on a stream that waits for this one.
    * Pictures come to the device on the decoder's stream, into memory of that; the encoding waits for it, and they are
      let go of when all is encoded.
    * Weights are only read, and were complete before the first encoding: the device is waited for once.
    * Features lie in memory that the allocator would give to the next encoding as soon as nobody holds them, although
      kernels of the reader's stream may not have run yet. A prediction holds its features until its answer is on the
      host; one that fails doesn't, so `get` records the reader's stream with them.
    * What decodes JPEGs on the device does so on a stream that it chooses, into memory of this one: under the lock too,
      so that nothing is queued which would still use that memory.
    * A graph for a new size of image is captured under the lock, in thread_local mode: other threads may use CUDA
      then, except to wait for the whole device, which StageClock doesn't.
    """

    def __init__(
        self,
        vision: VisionModel,
        images: ImageConfig,
        device: torch.device,
        capacity: int,
        resize: Resize = resize,
        jpegs: GpuJpegs | None = None,
    ) -> None:
        self._vision = vision
        self._images = images
        self._device = device
        self._capacity = capacity
        self._resize = resize
        self._kept: OrderedDict[int, Future[EncodedFrame]] = OrderedDict()  # by serial, the one used last at the end
        self._keeping = threading.Lock()  # of _kept
        self._encoding = threading.Lock()
        self._decoder = FrameDecoder(images, device, jpegs)
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
        with self.use(frames, clock) as found:
            return found

    @contextmanager
    def use(self, frames: Sequence[Frame], clock: StageClock) -> Iterator[FoundFrames]:
        """The same for work that is queued on this thread's current stream: it follows the tower without a gap.

        Inside, the device may still be encoding, and no other thread can; at the end the features are there.

        Raises:
            BadImageError: as by `get`.
        """
        results, claims = self._claim(frames)
        with self._encoded(claims, clock) as own:
            pairs = list(zip(frames, results, strict=True))
            if all(frame.serial in own or (result.done() and not _failed(result)) for frame, result in pairs):
                encoded = [own.get(frame.serial) or result.result() for frame, result in pairs]
                if own:
                    self._let_reader_wait()
                yield self._found(encoded, len(claims))
                return
        # Only now, when its own are there: those who wait for them may have what is waited for here.
        self._wait(results, clock)
        if any(
            _failed(result) for result in results
        ):  # in another thread, as when it finds no memory; here it may work
            results, more = self._claim(frames)
            with self._encoded(more, clock):
                pass
            self._wait(results, clock)
            claims += more
        yield self._found([result.result() for result in results], len(claims))

    def prepare(self, frames: Sequence[Frame]) -> None:
        """Encode those that are missing. A bad one is passed over, and not kept."""
        _, claims = self._claim(frames)
        with self._encoded(claims, StageClock(self._device)):
            pass

    def clear(self) -> None:
        """Forget all; who waits for a frame still gets it."""
        with self._keeping:
            self._kept.clear()

    def _let_reader_wait(self) -> None:
        """Let the caller's stream wait for what is queued here."""
        if self._stream is not None:
            torch.cuda.current_stream(self._device).wait_stream(self._stream)

    def _found(self, encoded: list[EncodedFrame], claimed: int) -> FoundFrames:
        """What was asked for, which the caller's stream reads."""
        for each in encoded:
            for part in (each.features.embeddings, each.features.deepstack):
                if part.is_cuda:  # a tower may leave them on the host
                    part.record_stream(torch.cuda.current_stream(self._device))
        return FoundFrames(encoded, claimed)

    def _wait(self, results: Sequence[Future[EncodedFrame]], clock: StageClock) -> None:
        """Until all are there or failed."""
        if not all(result.done() for result in results):
            with clock.host_stage(WAITING):
                wait(results)

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

    @contextmanager
    def _encoded(self, claims: Sequence[_Claim], clock: StageClock) -> Iterator[dict[int, EncodedFrame]]:
        """What was claimed, by serial, its encoding queued. At the end every claim has its result or the error."""
        with ExitStack() as holding:
            try:
                queued = self._queue(claims, clock, holding)
            except BaseException as error:
                let_go_of_data(error)
                self._fail_all(claims, error)
                raise
            try:
                yield {claim.frame.serial: each for claim, each in queued}
            finally:
                if queued:  # and nothing else waits: another thread may be encoding for a later tick
                    self._complete(claims, queued)

    def _complete(self, claims: Sequence[_Claim], queued: Sequence[tuple[_Claim, EncodedFrame]]) -> None:
        """Wait for what was queued, and let others see it."""
        try:
            self._synchronize()
        except BaseException as error:
            self._fail_all(claims, error)
            raise
        for claim, each in queued:
            claim.result.set_result(each)

    def _queue(
        self, claims: Sequence[_Claim], clock: StageClock, holding: ExitStack
    ) -> list[tuple[_Claim, EncodedFrame]]:
        """Decode, and queue the encoding of those that could be decoded, for which the device is held."""
        for_device = [claim for claim in claims if self._decoder.takes_on_device(claim.frame)]
        for_host = [claim for claim in claims if claim not in for_device]
        decoded = self._usable(for_host, self._decoder.on_host(_frames_of(for_host), clock))
        if not decoded and not for_device:
            return []
        holding.enter_context(self._device_to_oneself(clock))
        with self._on_stream():
            decoded += self._usable(for_device, self._decoder.on_device(_frames_of(for_device), clock))
            if self._stream is not None:
                self._decoder.let_wait(self._stream)
            pictures = [picture for _, picture in decoded]
            features = self._encode(pictures, clock)
        holding.callback(pictures.clear)  # when the stream has read them
        encoded = [EncodedFrame(each, *picture.shape[:2]) for each, picture in zip(features, pictures, strict=True)]
        return [(claim, each) for (claim, _), each in zip(decoded, encoded, strict=True)]

    def _usable(self, claims: Sequence[_Claim], pictures: Sequence[Picture]) -> list[tuple[_Claim, Tensor]]:
        """Those that have a picture; the others fail."""
        usable = []
        for claim, picture in zip(claims, pictures, strict=True):
            if isinstance(picture, BadImageError):
                self._fail(claim, picture)
            else:
                usable.append((claim, picture))
        return usable

    def _encode(self, pictures: Sequence[Tensor], clock: StageClock) -> list[ImageFeatures]:
        """Features of each."""
        if not pictures:
            return []
        with clock.stage("preprocess"):
            patches = preprocess(pictures, self._images, self._device, self._resize)
        with clock.stage("vision"):
            return list(self._vision.encode_each(patches.each()))

    @contextmanager
    def _device_to_oneself(self, clock: StageClock) -> Iterator[None]:
        """Hold the lock; at the end the encoding's stream has nothing left to do."""
        if not self._encoding.acquire(blocking=False):
            with clock.host_stage(WAITING):
                self._encoding.acquire()
        try:
            yield
        finally:
            try:
                self._synchronize()
            finally:
                self._encoding.release()

    def _synchronize(self) -> None:
        if self._stream is not None:
            self._stream.synchronize()

    def _on_stream(self) -> AbstractContextManager[object]:
        return nullcontext() if self._stream is None else torch.cuda.stream(self._stream)

    def _fail_all(self, claims: Sequence[_Claim], error: BaseException) -> None:
        """Those that have no result yet."""
        for claim in claims:
            if not claim.result.done():
                self._fail(claim, error)

    def _fail(self, claim: _Claim, error: BaseException) -> None:
        """Tell those who wait, and let the next one who asks try again."""
        with self._keeping:
            if self._kept.get(claim.frame.serial) is claim.result:
                del self._kept[claim.frame.serial]
        claim.result.set_exception(error)


def _failed(result: Future[EncodedFrame]) -> bool:
    """Whether something else than the frame itself was to blame."""
    return not isinstance(result.exception(), BadImageError | None)


def _frames_of(claims: Sequence[_Claim]) -> list[Frame]:
    return [claim.frame for claim in claims]

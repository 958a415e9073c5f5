"""Lets vLLM write reasoning and read prefixes, one batch of requests at a time."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from alpamayo_ros.core.types import EngineError
from alpamayo_ros.engine.stage_clock import StageClock
from alpamayo_ros.engine.vllm.jobs import PIN, PINNED, ExpertPlan, ExpertReady
from alpamayo_ros.engine.vllm.pictures import Picture
from alpamayo_ros.engine.vllm.startup import stop_vllm
from alpamayo_ros.model.prompt import Prompt

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Reading:
    """Tokens and pictures that vLLM reads."""

    prompt: Prompt
    pictures: tuple[Picture, ...]
    further: tuple[int, ...] = ()  # tokens after the prompt

    @property
    def length(self) -> int:
        """In tokens."""
        return len(self.prompt) + len(self.further)

    def as_input(self) -> dict[str, Any]:
        """As vLLM takes it: with one image token per picture, which it multiplies itself."""
        token_ids: list[int] = []
        start = 0
        for image in self.prompt.images:
            token_ids.extend(self.prompt.token_ids[start : image.start + 1])
            start = image.stop
        token_ids.extend(self.prompt.token_ids[start:])
        token_ids.extend(self.further)
        given: dict[str, Any] = {"prompt_token_ids": token_ids}
        if self.pictures:
            given["multi_modal_data"] = {"image": [picture.features for picture in self.pictures]}
            given["multi_modal_uuids"] = {"image": [picture.name for picture in self.pictures]}
        return given


@dataclass(frozen=True, eq=False)
class Writing:
    """Something to write after a reading."""

    reading: Reading
    ends: tuple[int, ...]  # tokens that end it; the last one written
    limit: int  # tokens, at least 1
    draw: dict[str, Any] | None = None  # for SamplingParams.extra_args; None: greedily
    deadline: float = math.inf  # s, from the first token on


@dataclass
class Written:
    """What came of it."""

    token_ids: list[int] = field(default_factory=list)
    late: bool = False  # the deadline cut it


@dataclass(frozen=True)
class Pinned:
    """A sequence in the KV cache that stays until it is released."""

    request: str
    block_ids: tuple[int, ...]
    length: int


@dataclass
class _Running:
    writing: Writing
    written: Written
    started: float = math.nan  # when the first token came


class VllmBackbone:
    """Drives a vLLM engine step by step. Not for several threads at once."""

    def __init__(self, engine: Any, plan: ExpertPlan) -> None:
        """Load the expert into a vLLM engine (LLMEngine)."""
        self._engine = engine
        self._numbers = itertools.count()
        self._ready: ExpertReady = self.call("alpamayo_load", plan)
        self._scheduler = engine.engine_core.engine_core.scheduler  # in this process, see startup.py
        self._steps_in_flight: int = engine.vllm_config.max_concurrent_batches
        self._cache_blocks = engine.vllm_config.cache_config.num_gpu_blocks - 1  # vLLM keeps one for itself

    def describe(self) -> str:
        """The cache, for the log."""
        return f"a KV cache of {self.cache_tokens} tokens laid out as {self._ready.layout}"

    @property
    def cache_tokens(self) -> int:
        """How many the KV cache has room for."""
        return int(self._cache_blocks * self._ready.block_size)

    def write(self, writings: Sequence[Writing], clock: StageClock) -> list[Written]:
        """Write all of them side by side.

        Args:
            writings: What to write.
            clock: Gets the stages "prefill", until every one has its first token, and "reasoning".

        Raises:
            EngineError: vLLM gave one up.
        """
        from vllm import SamplingParams

        running: dict[str, _Running] = {}
        started = first = time.monotonic()
        with self._leaving_nothing(running):
            for writing in writings:
                parameters = SamplingParams(
                    temperature=0.0,
                    max_tokens=writing.limit,
                    stop_token_ids=list(writing.ends),
                    ignore_eos=True,
                    detokenize=False,
                    extra_args=writing.draw,
                )
                running[self._add(writing.reading, parameters)] = _Running(writing, Written())
            results = [each.written for each in running.values()]
            while running:
                for output in self._step():
                    one = running.get(output.request_id)
                    if one is None:
                        continue
                    if math.isnan(one.started):
                        one.started = first = time.monotonic()
                    if self._take(one, output):
                        del running[output.request_id]
        clock.add("prefill", first - started)
        clock.add("reasoning", time.monotonic() - first)
        return results

    def pin(self, readings: Sequence[Reading]) -> list[Pinned]:
        """Read sequences to their last token and keep them in the cache until `release`.

        What vLLM has in its cache already isn't read again.

        Raises:
            EngineError: the cache has too little room for all at once, or vLLM gave one up.
        """
        from vllm import SamplingParams

        self._check_room(readings)
        names: list[str] = []
        left: dict[str, None] = {}
        found: dict[str, Pinned] = {}
        with self._leaving_nothing(left):
            for reading in readings:
                parameters = SamplingParams(
                    temperature=0.0,
                    max_tokens=1,
                    ignore_eos=True,
                    detokenize=False,
                    extra_args={"kv_transfer_params": {PIN: True}},
                )
                names.append(self._add(reading, parameters))
                left[names[-1]] = None
            while left:
                for output in self._step():
                    if output.request_id not in left or not output.finished:
                        continue
                    del left[output.request_id]
                    kept = (output.kv_transfer_params or {}).get(PINNED)
                    if kept is None:
                        raise EngineError("vLLM gave up a request that reads the reasoning; see its log")
                    found[output.request_id] = Pinned(kept["request"], tuple(kept["block_ids"]), kept["length"])
        return [found[name] for name in names]

    def release(self, pinned: Sequence[Pinned]) -> None:
        """Free what was pinned, at once.

        Raises:
            EngineError: vLLM keeps it.
        """
        self._release({each.request for each in pinned})

    def close(self) -> None:
        """Stop vLLM and free its memory."""
        stop_vllm(self._engine)
        del self._engine, self._scheduler

    def inspect(self, function: Callable[[Any], T]) -> T:
        """What a function finds in the first rank's worker; for tools and tests."""
        found: T = self._engine.collective_rpc(function)[0]
        return found

    def call(self, method: str, *arguments: Any) -> Any:
        """Call a method of ExpertWorker in every rank; the first rank's answer."""
        return self._engine.collective_rpc(method, args=arguments)[0]

    def _add(self, reading: Reading, parameters: Any) -> str:
        name = f"alpamayo-{next(self._numbers)}"
        self._engine.add_request(name, reading.as_input(), parameters)
        return name

    def _release(self, requests: Set[str]) -> None:
        if not requests:
            return
        self.call("alpamayo_release", sorted(requests))
        for _ in range(self._steps_in_flight):  # word of it comes with a step's results, behind those in flight
            self._engine.step()
            if requests.isdisjoint(self._scheduler.requests):
                return
        raise EngineError(f"vLLM keeps sequences {self._steps_in_flight} steps after their release; see its log")

    def _step(self) -> list[Any]:
        outputs = list(self._engine.step())
        if not outputs and not self._engine.has_unfinished_requests():
            raise EngineError("vLLM lost a request; see its log")
        return outputs

    def _take(self, one: _Running, output: Any) -> bool:
        """Note new tokens; whether it is done."""
        written = one.written
        if time.monotonic() - one.started >= one.writing.deadline:
            written.late = True
            if not output.finished:
                self._engine.abort_request([output.request_id])
            return True
        written.token_ids = list(output.outputs[0].token_ids)
        if output.finished and output.outputs[0].finish_reason not in ("stop", "length"):
            raise EngineError(f"vLLM ended a request as {output.outputs[0].finish_reason!r}; see its log")
        return bool(output.finished)

    @contextmanager
    def _leaving_nothing(self, running: dict[str, Any]) -> Iterator[None]:
        """If something goes wrong: end what runs, free what it pinned, forget what it should have computed."""
        others = set(self._scheduler.requests)
        try:
            yield
        except BaseException as failure:
            self._engine.abort_request(list(running))
            self._engine.step()
            self._release(self._scheduler.requests.keys() - others)  # also what no output told of
            # vLLM notes blocks and pictures as computed when it schedules a step; one that failed computed nothing
            self._engine.reset_encoder_cache()
            if not self._engine.reset_prefix_cache():
                raise EngineError("vLLM failed while something was pinned; its cache may be wrong") from failure
            raise

    def _check_room(self, readings: Sequence[Reading]) -> None:
        """All of them are pinned at once; whole blocks of the same tokens are shared."""
        size = self._ready.block_size
        columns = zip(*((*reading.prompt.token_ids, *reading.further) for reading in readings), strict=False)
        shared = sum(1 for _ in itertools.takewhile(lambda tokens: len(set(tokens)) == 1, columns)) // size
        needed = shared + sum(math.ceil((reading.length + 1) / size) - shared for reading in readings)
        if needed > self._cache_blocks:
            raise EngineError(
                f"the KV cache has {self._cache_blocks} blocks of {size} tokens; {len(readings)} sequences need "
                f"{needed}: raise engine.kv_cache_memory, or lower num_samples"
            )

"""Whatever becomes of a request, its blocks of the KV cache come back, with steps in turn and with overlapped ones."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from inside_vllm import before_each_flow, broken_model, free_blocks, scheduler
from overlapped_steps import OTHER_SCHEDULING
from tiny_checkpoint import drive

from alpamayo_ros.core.types import EngineError, SamplingOptions
from alpamayo_ros.engine.stage_clock import StageClock
from alpamayo_ros.engine.vllm.backbone import Reading, Writing
from alpamayo_ros.engine.vllm.engine import VllmEngine

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.parametrize("engine", [None, OTHER_SCHEDULING], ids=["as_by_default", OTHER_SCHEDULING], indirect=True),
]

SHORT = SamplingOptions(max_reasoning_tokens=6, seed=3)
ROUTE = "Turn left in 30m"
TIMES = 10  # each kind of request by itself
ROUNDS = 10  # of all kinds, one after the other


class Interrupted(BaseException):
    """As a signal would."""


class Requests:
    """Every kind that there is; two different ones at a time where a batch matters."""

    def __init__(self, engine: VllmEngine) -> None:
        self.engine = engine
        self.backbone = engine._backbone
        observation = drive()
        tick = engine._open(observation, SHORT)
        self.prompt = Reading(tick.prompt, tick.pictures)
        self.readings = [Reading(tick.prompt, tick.pictures, (token,)) for token in range(2)]
        self.observation = observation
        self.routed = drive(navigation=ROUTE)
        self.stop = self.write(3)[0].token_ids[2]

    def write(self, limit: int, ends: tuple[int, ...] = (), deadline: float = float("inf")) -> list[Any]:
        writings = [Writing(reading, ends, limit, deadline=deadline) for reading in (self.prompt, *self.readings)]
        return self.backbone.write(writings, StageClock(torch.device("cpu")))

    def finished(self) -> None:
        assert self.write(50, ends=(self.stop,))[0].token_ids[-1] == self.stop

    def capped(self) -> None:
        assert [len(each.token_ids) for each in self.write(2)] == [2, 2, 2]

    def cut_by_the_deadline(self) -> None:
        assert all(each.late for each in self.write(50, deadline=0.0))

    def pinned(self) -> None:
        self.backbone.release(self.backbone.pin(self.readings))

    def interrupted(self) -> None:
        calls = itertools.count(1)
        self._interrupted(lambda: self.write(50), "_take", lambda _done: next(calls) == 4)

    def interrupted_while_reading(self) -> None:
        self._interrupted(lambda: self.backbone.pin(self.readings), "_step", bool)

    def failed_at_once(self) -> None:
        self._failed(lambda: self.backbone.pin(self.readings), "forward", 0)

    def failed_after_the_forward_pass(self) -> None:
        self._failed(lambda: self.backbone.pin(self.readings), "compute_logits", 0)

    def failed_while_writing(self) -> None:
        self._failed(lambda: self.write(50), "compute_logits", 3)  # forward isn't called where a graph is replayed

    def with_a_flow_that_failed(self) -> None:
        def fail(_job: Any) -> None:
            raise RuntimeError("no more memory")

        with before_each_flow(self.engine, fail), pytest.raises(EngineError, match="RuntimeError: no more memory"):
            self.guided()

    def shared(self) -> None:
        self.engine.predict(self.observation, replace(SHORT, num_samples=3))

    def independent(self) -> None:
        self.engine.predict(self.observation, replace(SHORT, num_samples=3, reasoning="independent"))

    def guided(self) -> None:
        options = replace(SHORT, num_samples=2, reasoning="independent", guidance_weight=1.5)
        self.engine.predict(self.routed, options)

    def _failed(self, request: Callable[[], object], method: str, works: int) -> None:
        with broken_model(self.engine, method, works), pytest.raises(EngineError, match="broken on purpose"):
            request()

    def _interrupted(self, request: Callable[[], object], method: str, now: Callable[[Any], bool]) -> None:
        """The call of the backbone's method after whose result it is time is the last one."""
        inner = getattr(self.backbone, method)

        def interrupt(*arguments: Any) -> Any:
            result = inner(*arguments)
            if now(result):
                raise Interrupted
            return result

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(self.backbone, method, interrupt)
            with pytest.raises(Interrupted):
                request()


KINDS = [name for name in vars(Requests) if not name.startswith("_") and name != "write"]


@pytest.fixture(scope="module")
def requests(engine: VllmEngine) -> Requests:
    return Requests(engine)


@pytest.mark.parametrize("kind", KINDS)
def test_short_requests_leak_nothing(engine: VllmEngine, requests: Requests, kind: str) -> None:
    request = getattr(requests, kind)
    request()
    before = free_blocks(engine)
    for _ in range(TIMES):
        request()
    assert_all_back(engine, before, f"{TIMES} requests, {kind}")


def test_short_requests_of_all_kinds_leak_nothing(engine: VllmEngine, requests: Requests) -> None:
    """Mixed, and nothing settles between them."""
    before = free_blocks(engine)
    for _ in range(ROUNDS):
        for kind in KINDS:
            getattr(requests, kind)()
    assert_all_back(engine, before, f"{ROUNDS} rounds of {', '.join(KINDS)}")
    assert engine.predict(requests.observation, SHORT).finish_reasons == ("length",)


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_pinned_is_free_at_once(engine: VllmEngine, requests: Requests, kind: str) -> None:
    """Not only when vLLM is next busy: a tick that needs the whole cache may come first."""
    getattr(requests, kind)()
    pool = scheduler(engine).kv_cache_manager.block_pool
    assert not scheduler(engine).requests
    assert pool.get_num_free_blocks() == pool.num_gpu_blocks - 1, kind


def assert_all_back(engine: VllmEngine, before: int, what: str) -> None:
    missing = before - free_blocks(engine)
    assert not missing, f"{missing} of {before} blocks are missing after {what}"
    assert not scheduler(engine).requests, f"requests are left after {what}"

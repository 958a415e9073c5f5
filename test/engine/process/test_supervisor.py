"""What happens when the engine process dies, stops or hangs, and when the node does."""

from __future__ import annotations

import logging
import math
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
from processes import in_background, is_gone, wait_until
from tiny_checkpoint import drive

from alpamayo_ros.core.types import EngineError, EngineNotReadyError, SamplingOptions
from alpamayo_ros.engine.process import child, supervisor
from alpamayo_ros.engine.process.client import ProcessEngine
from alpamayo_ros.engine.process.wire import VERSION, receive_bytes

ROOT = Path(__file__).parents[3]
OPTIONS = SamplingOptions()
ENDLESS = SamplingOptions(reasoning="off", flow_steps=10**9)
BACK = 60.0  # s within which an engine has to be back on a busy machine
Start = Callable[..., ProcessEngine]


@pytest.fixture
def tiny(start: Start, checkpoint: Path) -> Start:
    """Starts the tiny engine, warmed up."""

    def make(**options: object) -> ProcessEngine:
        engine = start("transformers", str(checkpoint), device="cpu", max_cameras=2, **options)
        engine.warm_up()
        return engine

    return make


def is_at_work(engine: ProcessEngine) -> bool:
    """Whether the process has been given a request."""
    return bool(engine._supervisor._requests)


def test_a_kill_in_the_middle_of_a_prediction_is_said_at_once_and_the_engine_comes_back(
    tiny: Start, caplog: pytest.LogCaptureFixture
) -> None:
    engine = tiny()
    before = engine.predict(drive(), OPTIONS)
    dying = in_background(lambda: engine.predict(drive(), ENDLESS))
    wait_until(lambda: is_at_work(engine))
    time.sleep(0.3)  # well inside
    first = engine.health.pid
    os.kill(first, signal.SIGKILL)
    killed = time.monotonic()
    with pytest.raises(EngineError, match=f"the engine process {first} was killed by SIGKILL.*, while predicting"):
        dying.result(BACK)
    assert time.monotonic() - killed < 5
    with pytest.raises(EngineNotReadyError, match="was killed by SIGKILL"):
        engine.predict(drive(), OPTIONS)
    engine.prepare(drive().frames[1])  # no error: it may do nothing
    health = engine.health
    assert (health.ready, health.pid) == (False, 0)
    wait_until(lambda: "starting it anew, attempt 1 of 5: loading for" in engine.health.state)
    wait_until(lambda: engine.health.ready, BACK)
    health = engine.health
    assert (health.state, health.restarts) == ("ready", 1)
    assert health.pid != first
    after = engine.predict(drive(), OPTIONS)
    assert after.xyz.tobytes() == before.xyz.tobytes()
    assert f"the engine process {first} was killed by SIGKILL" in caplog.text
    assert "the engine process is back after" in caplog.text


def test_a_kill_over_a_prediction_and_frames_beside_it_ends_both(tiny: Start) -> None:
    engine = tiny()
    dying = in_background(lambda: engine.predict(drive(), ENDLESS))
    wait_until(lambda: is_at_work(engine))
    engine.prepare(drive().frames[1])  # served meanwhile
    os.kill(engine.health.pid, signal.SIGSTOP)  # so that it can't be served
    preparing = in_background(lambda: engine.prepare(drive().frames[6]))
    wait_until(lambda: len(engine._supervisor._requests) == 2)
    os.kill(engine.health.pid, signal.SIGKILL)
    with pytest.raises(EngineError, match=r"was killed by SIGKILL.*, while predicting"):
        dying.result(BACK)
    preparing.result(BACK)  # no error: it may do nothing
    wait_until(lambda: engine.health.ready, BACK)
    engine.predict(drive(), OPTIONS)


def test_a_request_that_the_process_cant_read_fails_alone(tiny: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = tiny()
    predicting = in_background(lambda: engine.predict(drive(), SamplingOptions(flow_steps=3000)))
    wait_until(lambda: is_at_work(engine))
    with monkeypatch.context() as patch:
        patch.setattr(supervisor, "encode", lambda _message, _slots: b'[%d,{"Prepare":{}}]' % VERSION)
        with pytest.raises(EngineError, match="a message of the engine process has a wrong form"):
            engine.prepare(drive().frames[1])
    assert not predicting.done()
    assert predicting.result(BACK).num_samples == OPTIONS.num_samples
    assert engine.health.restarts == 0


def test_an_answer_that_cant_be_read_fails_alone(tiny: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    def damaged(connection: Connection, patience: float) -> bytes:
        data = receive_bytes(connection, patience)
        return data.replace(b'"value"', b'"surprise"') if b'"to":"Prepare"' in data else data

    engine = tiny()
    predicting = in_background(lambda: engine.predict(drive(), SamplingOptions(flow_steps=3000)))
    wait_until(lambda: is_at_work(engine))
    monkeypatch.setattr(child, "receive_bytes", damaged)
    with pytest.raises(EngineError, match="a message of the engine process has a wrong form"):
        engine.prepare(drive().frames[1])
    assert not predicting.done()
    assert predicting.result(BACK).num_samples == OPTIONS.num_samples
    assert engine.health.restarts == 0


def send_as_message(engine: ProcessEngine, data: bytes) -> None:
    engine._supervisor._process.send(data)  # type: ignore[union-attr]


def send_as_it_is(engine: ProcessEngine, data: bytes) -> None:
    os.write(engine._supervisor._process._connection.fileno(), data)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("send", "data", "told"),
    [
        (send_as_message, b"nonsense", "what comes is no message: .*b'nonsense'; the node and its .* are out of step"),
        (send_as_message, b"[%d,{}]" % VERSION, "a message of the engine process has a wrong form"),
        (send_as_it_is, b"nonsense", "said to have more than 268435456 bytes; the node and its .* are out of step"),
        (send_as_it_is, b"\0\0\0\2", r"what comes is no message: .*b'\\x00\\x00'; the node and its .* are out of"),
    ],
    ids=["no JSON", "no request", "no length", "a message in a message"],
)
def test_what_is_no_message_at_all_ends_everything_with_the_reason_and_the_engine_comes_back(
    tiny: Start,
    caplog: pytest.LogCaptureFixture,
    send: Callable[[ProcessEngine, bytes], None],
    data: bytes,
    told: str,
) -> None:
    """Nobody knows what it was, nor whether what follows means what it says."""
    engine = tiny()
    first = engine.health.pid
    predicting = in_background(lambda: engine.predict(drive(), ENDLESS))
    wait_until(lambda: is_at_work(engine))
    send(engine, data)
    engine.prepare(drive().frames[1])  # no error: it may do nothing; it is what a message in a message is filled up by
    with pytest.raises(EngineError, match=told + ".*, while predicting"):
        predicting.result(BACK)
    wait_until(lambda: engine.health.ready and engine.health.pid != first, BACK)
    assert is_gone(first)
    assert engine.health.restarts == 1
    assert engine.predict(drive(), OPTIONS).num_samples == 1
    assert "starting it anew, attempt 1 of 5" in caplog.text


def test_what_the_process_says_is_no_message_ends_everything_as_well(
    tiny: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = tiny()
    first = engine.health.pid
    predicting = in_background(lambda: engine.predict(drive(), ENDLESS))
    wait_until(lambda: is_at_work(engine))
    with monkeypatch.context() as patch:
        patch.setattr(child, "receive_bytes", lambda *arguments: receive_bytes(*arguments)[:-3])
        with pytest.raises(EngineError, match=r"what comes is no message: .* are out of step, while predicting"):
            predicting.result(BACK)
    wait_until(lambda: engine.health.ready and engine.health.pid != first, BACK)
    assert engine.predict(drive(), OPTIONS).num_samples == 1


def test_a_kill_while_idle_is_noticed_without_any_call_and_the_new_one_is_warmed_up(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "alpamayo_ros")
    engine = start()
    engine.warm_up()
    first = engine.health.pid
    os.kill(first, signal.SIGKILL)
    wait_until(lambda: engine.health.ready and engine.health.pid != first, BACK)
    second = engine.health.pid
    assert engine.predict(drive(), OPTIONS).num_samples == 1
    assert [record.getMessage().split(" the ")[0] for record in caplog.records if "warmed up" in record.msg] == [
        f"process {pid} warmed up" for pid in (first, second)
    ]


def test_what_a_killed_process_had_started_is_ended_too(start: Start, tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nsleep 1000 & echo $! >> {tmp_path}/pids\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    engine = start(python=str(python))
    helper = int((tmp_path / "pids").read_text())
    assert not is_gone(helper)
    os.kill(engine.health.pid, signal.SIGKILL)
    wait_until(lambda: is_gone(helper))


def test_a_stopped_process_is_ended_and_said_and_comes_back(start: Start) -> None:
    engine = start()
    first = engine.health.pid
    os.kill(first, signal.SIGSTOP)
    with pytest.raises(EngineError, match=rf"process {first} was suspended \(SIGSTOP\), while predicting"):
        engine.predict(drive(), OPTIONS)
    wait_until(lambda: is_gone(first))
    wait_until(lambda: engine.health.ready, BACK)
    assert engine.predict(drive(), OPTIONS).num_samples == 1


def test_a_process_that_is_stopped_in_the_midst_of_its_answer_is_ended_and_said_and_comes_back(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = start(max_samples=64)
    first = engine.health.pid

    def receive(connection: Connection, patience: float) -> bytes:
        with socket.socket(fileno=os.dup(connection.fileno())) as end:
            length = int.from_bytes(end.recv(4, socket.MSG_PEEK | socket.MSG_WAITALL), "big")
        if length > 2_000_000:  # more than a socket holds: the process is still at it
            os.kill(first, signal.SIGSTOP)
        return receive_bytes(connection, patience)

    monkeypatch.setattr(child, "receive_bytes", receive)
    started = time.monotonic()
    with pytest.raises(EngineError, match=rf"process {first} was suspended \(SIGSTOP\), while predicting"):
        engine.predict_batch([drive()] * 8, [SamplingOptions(num_samples=64)] * 8)
    assert child.REST <= time.monotonic() - started < 3 * child.REST
    wait_until(lambda: is_gone(first))
    wait_until(lambda: engine.health.ready, BACK)
    assert engine.predict(drive(), OPTIONS).num_samples == 1
    started = time.monotonic()
    engine.close()
    assert time.monotonic() - started < 10


def test_a_process_that_was_stopped_for_a_moment_goes_on(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "STOPPED", BACK)  # a moment may be long on a busy machine
    engine = start()
    first = engine.health.pid
    os.kill(first, signal.SIGSTOP)
    predicted = in_background(lambda: engine.predict(drive(), OPTIONS))
    time.sleep(0.3)
    os.kill(first, signal.SIGCONT)
    assert predicted.result(BACK).num_samples == 1
    assert engine.health.restarts == 0


def test_a_prediction_that_takes_for_ever_is_ended_after_the_hang_timeout(tiny: Start) -> None:
    engine = tiny(hang_timeout=6.0)
    started = time.monotonic()
    with pytest.raises(EngineError, match=r"hangs: it is not done after 6 s \(engine.hang_timeout\), while predicting"):
        engine.predict(drive(), ENDLESS)
    assert time.monotonic() - started >= 6
    engine.wait_until_ready()
    engine._limit = math.inf  # on a busy machine any prediction may take 2 s
    assert engine.predict(drive(), OPTIONS).num_samples == 1


def test_a_process_that_gives_no_sign_of_life_is_ended(
    start: Start, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As when something holds the interpreter: here the sign of life comes too seldom."""
    monkeypatch.setattr(supervisor, "SILENT", 0.15)
    first = start().health.pid
    wait_until(lambda: f"the engine process {first} has given no sign of life for 0.15 s" in caplog.text)
    wait_until(lambda: is_gone(first))


def test_restarts_are_bounded_and_counted_and_the_last_reason_stays(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(supervisor, "RESTART_DELAYS", (0.0, 0.01, 0.02))
    monkeypatch.setattr(supervisor, "STABLE", 0.0)  # counts for one that was ready, and not for one that takes long
    python = tmp_path / "python"  # works once
    python.write_text(
        f'#!/bin/sh\n[ -e {tmp_path}/used ] && exit 7\ntouch {tmp_path}/used\nexec "{sys.executable}" "$@"\n'
    )
    python.chmod(0o755)
    engine = start(python=str(python))
    os.kill(engine.health.pid, signal.SIGKILL)
    wait_until(lambda: not engine.health.ready)
    engine.wait_until_ready()
    health = engine.health
    assert (health.ready, health.restarts) == (False, 3)
    assert "ended with exit code 7" in health.state
    assert "given up after 3 attempts" in health.state
    with pytest.raises(EngineNotReadyError, match="given up after 3 attempts"):
        engine.predict(drive(), OPTIONS)
    attempts = [record for record in caplog.records if "starting it anew, attempt" in record.getMessage()]
    assert [record.levelno for record in attempts] == [logging.ERROR] * 3


def test_a_fault_of_the_supervision_itself_is_an_error_and_leaves_nobody_waiting(
    start: Start, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(_: object) -> None:
        raise RuntimeError("no such thing")

    caplog.set_level(logging.INFO, "alpamayo_ros")
    monkeypatch.setattr(supervisor, "_log", broken)
    with pytest.raises(EngineError, match="watching the engine process failed: RuntimeError: no such thing"):
        start()


def test_closing_ends_a_prediction_under_way_and_doesnt_wait_for_it(tiny: Start) -> None:
    engine = tiny()
    pid = engine.health.pid
    endless = in_background(lambda: engine.predict(drive(), ENDLESS))
    wait_until(lambda: is_at_work(engine))
    started = time.monotonic()
    engine.close()
    assert time.monotonic() - started < 10
    with pytest.raises(EngineError, match="the engine was closed, while predicting"):
        endless.result(BACK)
    assert is_gone(pid)


def test_closing_ends_a_restart_under_way(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "RESTART_DELAYS", (1000.0,))
    engine = start()
    os.kill(engine.health.pid, signal.SIGKILL)
    wait_until(lambda: not engine.health.ready)
    waiting = in_background(engine.wait_until_ready)
    started = time.monotonic()
    engine.close()
    assert time.monotonic() - started < 10
    waiting.result(5)


def test_signals_for_everybody_do_not_end_it(start: Start) -> None:
    engine = start()
    for number in (signal.SIGINT, signal.SIGTERM):
        os.kill(engine.health.pid, number)
    assert engine.predict(drive(), OPTIONS).num_samples == 1
    assert engine.health.restarts == 0


PARENT = """
import sys, time
sys.path.insert(0, "test/support")
from alpamayo_ros.engine.factory import create_engine
engine = create_engine(sys.argv[1], sys.argv[2], device="cpu", max_cameras=2, process="subprocess")
print(engine.health.pid, flush=True)
if sys.argv[3] == "at work":
    from tiny_checkpoint import drive
    from alpamayo_ros.core.types import SamplingOptions
    engine.predict(drive(), SamplingOptions(reasoning="off", flow_steps=10**9))
time.sleep(1000)
"""


@pytest.mark.parametrize(
    ("kind", "doing", "number"),
    [
        ("null", "idle", signal.SIGKILL),
        ("null", "idle", signal.SIGTERM),
        ("null", "stopped", signal.SIGKILL),
        ("transformers", "at work", signal.SIGKILL),
    ],
)
def test_it_dies_with_its_parent_and_leaves_no_memory(
    checkpoint: Path, kind: str, doing: str, number: signal.Signals
) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, kind, str(checkpoint), doing],
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
        cwd=ROOT,
    )
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    if doing == "stopped":
        os.kill(pid, signal.SIGSTOP)
    if doing == "at work":
        time.sleep(1.0)
    assert not is_gone(pid)
    # memory without a name, which the kernel frees with the last process that has it
    assert "/memfd:alpamayo_frames (deleted)" in Path(f"/proc/{parent.pid}/maps").read_text()
    parent.send_signal(number)
    parent.wait(10)
    wait_until(lambda: is_gone(pid), 10)

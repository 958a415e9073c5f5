"""Messages come out as they went in, and nothing else comes in."""

from __future__ import annotations

import dataclasses
import json
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy

from alpamayo_ros.core.types import EgoPose, Frame, Observation, Prediction, SamplingOptions, Timings
from alpamayo_ros.engine.null_engine import INFO
from alpamayo_ros.engine.process import bootstrap, wire

numbers = st.floats(width=64)  # NaN and infinities too
texts = st.text()  # lone surrogates are left out by hypothesis, not by JSON
counts = st.integers(-(2**63), 2**63)


def arrays(*shape: int) -> st.SearchStrategy[Any]:
    return st_numpy.arrays(np.float64, shape, elements=numbers)


poses = st.builds(EgoPose, counts, arrays(3), arrays(4), st.none() | arrays(3), st.none() | arrays(3))
options = st.builds(
    SamplingOptions,
    num_samples=st.integers(1, 64),
    temperature=numbers,
    seed=counts,
    given_reasoning=texts,
    draft_token_ids=st.lists(st.integers(0, 2**31)).map(tuple),
    deadline_ms=st.none() | numbers,
)
frames = st.builds(
    Frame,
    serial=counts,
    camera=st.integers(0, 6),
    stamp_ns=counts,
    data=st.binary(),
    encoding=texts,
    height=st.integers(0, 4000),
    is_bigendian=st.booleans(),
)
observations = st.builds(
    Observation,
    t0_ns=counts,
    epoch=st.integers(0, 2**31),
    frames=st.dictionaries(st.integers(0, 6), st.lists(frames, max_size=2).map(tuple), max_size=3),
    history_xyz=arrays(16, 3),
    history_rotation=arrays(16, 3, 3),
    pose=poses,
    navigation=st.none() | texts,
)
predictions = st.builds(
    Prediction,
    xyz=arrays(2, 64, 3),
    rotation=arrays(2, 64, 3, 3),
    actions=st_numpy.arrays(np.float32, (2, 64, 2)),
    speed=arrays(2, 65),
    reasoning=st.tuples(texts, texts),
    reasoning_token_ids=st.lists(st.lists(st.integers(0, 2**20)).map(tuple)).map(tuple),
    finish_reasons=st.tuples(texts),
    seed=counts,
    timings=st.builds(Timings, st.dictionaries(texts, numbers), counts),
)


def assert_equal(left: Any, right: Any) -> None:
    """Equal to the last bit, in values and types; lists count as tuples, and a frame's bytes as a view of them."""
    if isinstance(left, np.ndarray):
        assert left.dtype == right.dtype
        assert left.shape == right.shape
        assert left.tobytes() == right.tobytes()
    elif dataclasses.is_dataclass(left):
        assert type(left) is type(right)
        for each in dataclasses.fields(left):
            assert_equal(getattr(left, each.name), getattr(right, each.name))
    elif isinstance(left, dict):
        assert list(left) == list(right)  # the order of cameras is that of the prompt
        for key, value in left.items():
            assert_equal(value, right[key])
    elif isinstance(left, list | tuple):
        assert isinstance(right, tuple)
        assert len(left) == len(right)
        for pair in zip(left, right, strict=True):
            assert_equal(*pair)
    elif isinstance(left, bytes):
        assert left == bytes(right)
    elif isinstance(left, float) and np.isnan(left):
        assert np.isnan(right)
    else:
        assert left == right
        assert type(left) is type(right)


class Memory:
    """Frames' bytes one behind the other, as the ring has them."""

    def __init__(self, frames: list[Frame]) -> None:
        self.data = b""
        self.slots = {}
        for frame in {frame.serial: frame for frame in frames}.values():
            self.slots[frame.serial] = wire.Slot(len(self.data), len(frame.data))
            self.data += bytes(frame.data)

    def lend(self, slot: wire.Slot) -> memoryview:
        return memoryview(self.data)[slot.offset : slot.offset + slot.size]


@given(observations, options)
def test_a_request_arrives_as_it_was_sent(observation: Observation, chosen: SamplingOptions) -> None:
    by_serial = {}  # a serial stands for one frame, which hypothesis doesn't know
    unique = {c: tuple(by_serial.setdefault(f.serial, f) for f in of) for c, of in observation.frames.items()}
    observation = dataclasses.replace(observation, frames=unique)
    memory = Memory([frame for of in unique.values() for frame in of])
    sent = wire.Predict([observation], [chosen])
    assert_equal(sent, wire.decode(wire.encode(sent, memory.slots), memory.lend))


@given(predictions, numbers, st.integers(0, 2**40))
def test_an_answer_arrives_as_it_was_sent(prediction: Prediction, ms: float, held: int) -> None:
    sent = wire.Answer([prediction], ms, held)
    assert_equal(sent, wire.decode(wire.encode(sent)))


@given(st.sampled_from(["i1", "<u2", ">i4", "<i8", ">f2", "<f4", "?"]).flatmap(lambda t: st_numpy.arrays(t, (2, 0, 3))))
def test_an_array_keeps_its_type_and_shape_even_without_elements(array: Any) -> None:
    received = wire.decode(wire.encode(wire.Answer(array))).value
    assert (received.dtype, received.shape) == (array.dtype, array.shape)


def test_a_view_arrives_as_the_array_that_it_shows_and_can_be_written() -> None:
    cube = np.arange(24.0).reshape(2, 3, 4)
    view = cube[::-1, :, ::2].transpose(2, 0, 1)
    received = wire.decode(wire.encode(wire.Answer((view, np.float32(0.1), np.array(7))))).value
    np.testing.assert_array_equal(received[0], view)
    received[0][:] = 0
    assert received[1] == float(np.float32(0.1))
    assert received[2].shape == ()


@pytest.mark.parametrize(
    "message",
    [
        wire.Load("null", "", {"device": "auto", "base_model": None, "max_cameras": 4}, 20),
        wire.NewMemory(123),
        wire.Hello("3.12.1"),
        wire.Beat(),
        wire.LogLine("alpamayo_ros.engine", 30, "100 % done\nsecond line \udcff"),
        wire.Failure("BadImageError", "camera 1, stamp 5 ns: …"),
        wire.Answer(INFO),
        wire.Answer(None),
    ],
    ids=lambda message: type(message).__name__,
)
def test_every_other_message_arrives_as_it_was_sent(message: object) -> None:
    assert_equal(message, wire.decode(wire.encode(message)))


@pytest.mark.parametrize("value", [np.array([object()]), np.array(["text"]), b"bytes", {1, 2}, object(), dataclasses])
def test_what_has_no_form_on_the_wire_is_refused_by_name(value: object) -> None:
    with pytest.raises(wire.WireError, match="can't cross"):
        wire.encode(wire.Answer(value))


@given(st.binary())
def test_any_other_bytes_are_one_clear_error(data: bytes) -> None:
    with pytest.raises(wire.WireError):
        wire.decode(data)


@pytest.mark.parametrize(
    "plain",
    [
        {"os.system": {"command": "true"}},
        {"Answer": {"value": 1, "surprise": 2}},
        {"LogLine": {"logger": "x"}},
        {"Answer": 3},
        {"array": ["|O", [1], 0]},
        {"array": ["<f8", [4], 0]},
        {"array": ["<f8", [1], -8]},
        {"Frame": [{}, 0, 0]},
        {"Hello": {"python": "3"}, "Beat": {}},
        {},
    ],
    ids=str,
)
def test_a_message_of_a_wrong_form_is_one_clear_error(plain: object) -> None:
    with pytest.raises(wire.WireError, match="wrong form"):
        wire.decode(json.dumps([wire.VERSION, plain]).encode() + b"\n" + bytes(8))


@pytest.mark.parametrize(
    ("data", "to"),
    [
        (b'[%d,{"Predict":{}}]', "Predict"),
        (b'[%d,{"Predict":{"observations":%b}}]' % (wire.VERSION, b"[" * 600 + b"]" * 600), "Predict"),
        (b'[99,{"Ask":{}}]', "Ask"),
        (b'[%d,{"Answer":{"value":1,"surprise":2,"to":"Prepare"}}]', "Prepare"),
        (b'[%d,{"Failure":{"to":"Ask"}}]', "Ask"),
        (b'[%d,{"Failure":{"to":["Ask"]}}]', ""),
        (b'[%d,{"Answer":{"value":1,"surprise":2}}]', ""),
        (b'[%d,{"Answer":3}]', ""),
        (b'[%d,{"NewMemory":{}}]', ""),  # a descriptor follows, which is no message
        (b'[%d,{"LogLine":{}}]', ""),
        (b'[%d,{"os.system":{}}]', ""),
        (b"[%d,{}]", ""),
        (b"nonsense", ""),
    ],
)
def test_what_cant_be_read_is_told_by_its_request_as_far_as_that_goes(data: bytes, to: str) -> None:
    with pytest.raises(wire.WireError) as caught:
        wire.decode(data.replace(b"%d", b"%d" % wire.VERSION))
    assert caught.value.to == to


def test_a_length_that_no_message_has_is_no_message_and_nobody_waits_for_its_end() -> None:
    here, there = socket.socketpair()
    with Connection(here.detach()) as connection, there:
        there.sendall(b"[2,{")  # a message without its length
        with pytest.raises(wire.WireError, match="more than 268435456 bytes; the node and its engine process are out"):
            wire.receive_bytes(connection)


def test_the_end_of_the_connection_is_no_message_that_cant_be_read() -> None:
    here, there = socket.socketpair()
    with Connection(here.detach()) as connection:
        there.sendall(b"\0\0\0\5half")
        there.close()
        for _ in range(2):  # within a message, and before one
            with pytest.raises(EOFError):
                wire.receive_bytes(connection)


@pytest.mark.parametrize(
    ("sent", "told"),
    [
        (b"\0", "of a message's 4 bytes only 1 have come"),
        (b"\0\0\0\5half", "of a message's 5 bytes only 4 have come"),
    ],
)
def test_nobody_waits_for_ever_for_the_rest_of_a_message(sent: bytes, told: str) -> None:
    here, there = socket.socketpair()
    with Connection(here.detach()) as connection, there:
        there.sendall(sent)
        with pytest.raises(wire.WireError, match=told + " after .*; the node and its engine process are out of step"):
            wire.receive_bytes(connection, patience=0.2)


def test_a_message_may_come_in_pieces() -> None:
    here, there = socket.socketpair()
    with Connection(here.detach()) as connection, there, ThreadPoolExecutor() as threads:
        received = threads.submit(wire.receive_bytes, connection, 5.0)
        for piece in (b"\0\0", b"\0\5ha", b"lf", b"!and what follows"):
            there.sendall(piece)
            time.sleep(0.02)
        assert received.result() == b"half!"


def test_another_version_is_refused_with_both_numbers() -> None:
    data = wire.encode(wire.Beat()).replace(b"[%d," % wire.VERSION, b"[99,")
    with pytest.raises(wire.WireError, match=f"version 99 of the protocol, and this is version {wire.VERSION}"):
        wire.decode(data)


def test_the_bootstrap_speaks_this_version() -> None:
    assert bootstrap.PROTOCOL == wire.VERSION

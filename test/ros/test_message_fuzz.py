"""Whatever numbers and bytes messages hold, the node's inner part lives, and its books add up."""

from __future__ import annotations

import struct

import numpy as np
from drives import decode_all
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from nav_msgs.msg import Odometry
from rclpy.serialization import deserialize_message, serialize_message
from ride import Event, Ride
from scenarios import START, frames, odometry
from sensor_msgs.msg import CompressedImage, Image

from alpamayo_ros.core.incoming import image_arguments, pose_from_message
from alpamayo_ros.engine.null_engine import NullEngine
from alpamayo_ros.sensors.decode import RAW_ENCODINGS

ANY = settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.too_slow])
NUMBER = st.floats() | st.sampled_from([0.0, 1e-320, 1e154, 1e308, -1e308])
STAMP = st.floats(-10, 10) | st.sampled_from([-START, 2**31 - 1 - START, 0.0])


@st.composite
def events(draw: st.DrawFn) -> list[Event]:
    found: list[Event] = []
    for number in range(draw(st.integers(1, 12))):
        at = START + 2 + number * 0.03
        stamp = START + 2 + draw(STAMP)
        if draw(st.booleans()):
            pose = {
                "position": draw(st.lists(NUMBER, min_size=3, max_size=3)),
                "orientation": draw(st.lists(NUMBER, min_size=4, max_size=4)),
                "twist": draw(st.lists(NUMBER, min_size=6, max_size=6)),
            }
            found.append({"at": at, "type": "odometry", "stamp": stamp, **pose})
        else:
            size = {name: draw(st.integers(0, 5)) for name in ("height", "width", "step")}
            encoding = draw(st.sampled_from([*RAW_ENCODINGS, "jpeg", "x"]))
            data = {"data": draw(st.binary(max_size=30)), "encoding": encoding, **size}
            found.append({"at": at, "type": "frame", "camera": "wide", "stamp": stamp, **data})
    return found


@ANY
@given(events())
def test_any_numbers_among_a_healthy_drive(strange: list[Event]) -> None:
    ride = Ride("wide", engine=NullEngine(before=lambda observation: None))
    healthy = frames("wide", 10, 4) + odometry(hz=20, seconds=4)
    ride.play(healthy + strange)
    for outcome in ride.published:
        assert np.isfinite(outcome.observation.history_xyz).all()
        assert np.isfinite(outcome.prediction.xyz).all()
    ride.close()


MESSAGES = (Odometry(), CompressedImage(format="jpeg", data=b"\xff\xd8" * 20), Image(encoding="rgb8", data=b"123456"))


@ANY
@given(
    which=st.sampled_from(range(len(MESSAGES))),
    places=st.lists(st.tuples(st.integers(4, 400), st.integers(0, 255)), max_size=12),
)
def test_any_bytes_of_a_message(which: int, places: list[tuple[int, int]]) -> None:
    kind = type(MESSAGES[which])
    data = bytearray(serialize_message(MESSAGES[which]))
    for at, value in places:
        data[4 + at % (len(data) - 4)] = value
    try:
        message = deserialize_message(bytes(data), kind)
    except Exception:  # it would not have come through DDS
        return
    ride = Ride("wide", engine=NullEngine(before=decode_all))
    ride.play(frames("wide", 10, 1) + odometry(hz=20, seconds=1))
    if kind is Odometry:
        ride.drive.add_pose(pose_from_message(message), message.header.frame_id, message.child_frame_id)
        ride.sent["odometry"] += 1
    else:
        ride.drive.add_frame("wide", image_arguments(message))
        ride.sent["wide"] += 1
    ride.settle()
    ride.check_books()
    ride.close()


def test_a_length_that_the_bytes_do_not_have_is_refused_before_it_is_allocated() -> None:
    data = bytearray(serialize_message(CompressedImage(format="jpeg", data=b"1234")))
    data[-8:-4] = struct.pack("<I", 2**32 - 16)
    try:
        message = deserialize_message(bytes(data), CompressedImage)
    except Exception:
        return
    assert len(message.data) <= len(data)

"""A scenario is read exactly, with the defaults a user expects; what is wrong is named by line, field and value."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from scenarios import config, write

from alpamayo_ros.core.builder_config import BuilderConfig, CameraConfig
from alpamayo_ros.core.settings import parse_settings
from alpamayo_ros.core.types import ConfigurationError
from alpamayo_ros.evaluation.scenario import ClockEvent, FrameEvent, OdometryEvent, TickEvent, parse_scenario

FRONT = config("front_wide")


def parsed_config(**given: Any) -> BuilderConfig:
    return parse_scenario(write([{"type": "config", "cameras": {"front_wide": {}}, **given}])).config


class TestConfiguration:
    def test_as_the_issue_writes_it(self) -> None:
        cameras = {"front_wide": {"index": 1, "required": True}, "cross_left": {"index": 0, "required": False}}
        got = parsed_config(cameras=cameras, anchor="front_wide", sync_tolerance=0.04, rate_hz=5)
        wanted = (CameraConfig("cross_left", 0, required=False), CameraConfig("front_wide", 1))
        assert got == BuilderConfig(wanted, "front_wide", sync_tolerance=0.04, rate_hz=5)

    def test_a_known_camera_needs_no_index_and_another_gets_one_that_is_free(self) -> None:
        got = parsed_config(cameras={"left": {}, "front_wide": {}, "right": {}, "rear": {"index": 2}})
        assert {camera.name: camera.index for camera in got.cameras} == {
            "left": 0,
            "front_wide": 1,
            "rear": 2,
            "right": 3,
        }
        assert all(camera.required for camera in got.cameras)

    def test_the_default_anchor_is_the_nodes(self) -> None:
        assert parsed_config(cameras={"cross_left": {}, "front_wide": {}}).anchor == "front_wide"
        optional = {"required": False}
        got = parsed_config(cameras={"cross_left": optional, "rear_left": {}, "front_wide": optional})
        assert got.anchor == "rear_left"

    def test_every_parameter_of_the_builder_is_known_by_its_name(self) -> None:
        odd = BuilderConfig(
            (CameraConfig("front_wide", 1, time_offset=0.02),),
            "front_wide",
            rate_hz=7,
            sync_tolerance=0.03,
            wait_timeout=0.2,
            optional_wait=0.07,
            future_tolerance=0.3,
            max_input_age=0.6,
            max_odometry_age=0.7,
            max_odometry_gap=0.2,
            max_odometry_jump=2.0,
            odometry_time_offset=-0.05,
            standstill_padding=False,
            navigation_timeout=5.0,
            child_to_base=(1.0, 2.0, 3.0, 0.1, 0.2, 0.3),
        )
        default = BuilderConfig((CameraConfig("front_wide", 1),), "front_wide")
        named = {name: value for name, value in vars(odd).items() if name not in ("cameras", "anchor")}
        assert all(value != getattr(default, name) for name, value in named.items())  # or this shows nothing
        assert parsed_config(cameras={"front_wide": {"time_offset": 0.02}}, **named) == odd

    def test_the_nodes_parameters_give_the_nodes_configuration(self) -> None:
        flat = {
            "cameras.front_wide.topic": "/front",
            "cameras.front_wide.time_offset": 0.02,
            "cameras.cross_left.topic": "/left",
            "cameras.cross_left.required": False,
            "odometry.time_offset": 0.01,
            "sync_tolerance": 0.02,
            "max_odometry_jump": 3.0,
            "max_result_age": 2.0,
            "engine.kind": "null",
        }
        assert parse_scenario(write([{"type": "config", **flat}])).config == parse_settings(flat).builder_config()
        nested: dict[str, Any] = {"cameras": {"front_wide": {}, "cross_left": {}}}
        for name, value in flat.items():
            *path, last = name.split(".")
            here = nested
            for part in path:
                here = here.setdefault(part, {})
            here[last] = value
        assert parse_scenario(write([{"type": "config", **nested}])).config == parse_settings(flat).builder_config()

    def test_the_odometrys_mounting_by_the_nodes_name(self) -> None:
        assert parsed_config(**{"odometry.child_to_base": [1, 0, 0, 0, 0, 0]}).child_to_base == (1, 0, 0, 0, 0, 0)

    @pytest.mark.parametrize(
        ("given", "words"),
        [
            ({"cameras": {}}, "cameras is empty"),
            ({"cameras": ["front_wide"]}, r"cameras is \['front_wide'\]: it must be an object"),
            ({"cameras": {"a": 1}}, "cameras.a is 1: it must be an object"),
            ({"cameras": {"a": {"index": 7}}}, "cameras.a.index is 7: it must be .* 0 to 6"),
            ({"cameras": {"a": {"index": True}}}, "cameras.a.index is True"),
            ({"cameras": {"a": {"indx": 1}}}, "cameras.a.indx is no parameter.*did you mean cameras.a.index"),
            ({"cameras": {"a": {"required": 1}}}, "cameras.a.required is 1: it must be true or false"),
            ({"cameras": {"a": {"time_offset": "0"}}}, "cameras.a.time_offset is '0'"),
            ({"cameras": {"a": {"index": 1}, "b": {"index": 1}}}, "index 1 is given twice"),
            ({"cameras": {str(i): {} for i in range(8)}}, "cameras has 8 entries: the model takes at most 7"),
            ({"cameras": {"odometry": {}}}, "no camera can be called odometry"),
            ({"anchor": "left"}, "anchor is 'left': it must be a required camera, one of front_wide"),
            ({"sync_tolerence": 0.05}, "sync_tolerence is no parameter.*did you mean sync_tolerance"),
            ({"qqq": 1}, "qqq is no parameter.*expected one of cameras, anchor, rate_hz, sync_tolerance"),
            ({"sync_tolerance": 9}, "sync_tolerance is 9: it must be from 0.0005 to 0.1 s"),
            ({"rate_hz": None}, "rate_hz is None"),
            ({"standstill_padding": 1}, "standstill_padding is 1: it must be true or false"),
            ({"child_to_base": 5}, "child_to_base is 5: it must be a list of 6 numbers"),
            ({"child_to_base": [0, 0]}, "child_to_base is"),
            ({"odometry": {"time_offset": 1}, "odometry_time_offset": 1}, "given twice"),
            ({"engine": {"kind": "warp"}}, "engine.kind is 'warp': it must be one of"),
        ],
    )
    def test_what_is_wrong_is_named(self, given: dict[str, Any], words: str) -> None:
        with pytest.raises(ConfigurationError, match=f"^line 1: .*{words}"):
            parsed_config(**given)

    @pytest.mark.parametrize(
        ("lines", "words"),
        [
            ([], "the scenario is empty"),
            ([{"at": 1, "type": "tick"}], "line 1: type is 'tick': the first line must be the configuration"),
            ([{"cameras": {}}], "line 1: type is missing: the first line must be the configuration"),
            ([FRONT, FRONT], "line 2: type is 'config': after the first line it must be one of frame, odometry"),
        ],
    )
    def test_it_is_the_first_line_and_no_other(self, lines: list[dict[str, Any]], words: str) -> None:
        with pytest.raises(ConfigurationError, match=words):
            parse_scenario(write(lines))


class TestEvents:
    def test_every_kind(self) -> None:
        pose = {"position": [1, 2.5, 3], "orientation": [0, 0, 0.6, 0.8]}
        lines = [
            FRONT,
            {"at": 1, "type": "frame", "camera": "front_wide", "stamp": 0.99},
            {"at": 1.5, "type": "frame", "camera": "front_wide", "stamp": 1.49, "height": 48, "width": 64},
            {"at": 2.0, "type": "odometry", "stamp": 1.98, **pose, "twist": [1, 2, 3, 4, 5, 6]},
            {"at": 2.0, "type": "odometry", "stamp": 1.98, **pose, "frame_id": "map", "child_frame_id": "imu"},
            {"at": 3, "type": "clock", "now": -1},
            {"at": 4, "type": "tick"},
        ]
        frame, sized, with_twist, without, clock, tick = parse_scenario(write(lines)).events
        assert frame == FrameEvent(1_000_000_000, "front_wide", 990_000_000)
        assert sized == FrameEvent(1_500_000_000, "front_wide", 1_490_000_000, 48, 64)
        assert isinstance(with_twist, OdometryEvent)
        assert isinstance(without, OdometryEvent)
        assert with_twist.pose.stamp_ns == 1_980_000_000
        assert with_twist.pose.position.tolist() == [1, 2.5, 3]
        assert with_twist.pose.orientation.tolist() == [0, 0, 0.6, 0.8]
        assert (with_twist.pose.linear_velocity, with_twist.pose.angular_velocity) == (
            pytest.approx(np.array([1, 2, 3])),
            pytest.approx(np.array([4, 5, 6])),
        )
        assert (with_twist.frame_id, with_twist.child_frame_id) == ("odom", "base_link")
        assert without.pose.linear_velocity is without.pose.angular_velocity is None
        assert (without.frame_id, without.child_frame_id) == ("map", "imu")
        assert clock == ClockEvent(3_000_000_000, -1_000_000_000)
        assert tick == TickEvent(4_000_000_000)

    def test_unix_times_are_exact_to_the_nanosecond(self) -> None:
        line = b'{"at": 1700000000.123456789, "type": "frame", "camera": "front_wide", "stamp": 1.7000000001234567e9}'
        (event,) = parse_scenario([*write([FRONT]), line]).events
        assert event == FrameEvent(1_700_000_000_123_456_789, "front_wide", 1_700_000_000_123_456_700)

    def test_what_an_odometry_may_send_by_mistake_can_be_written(self) -> None:
        line = b'{"at":1,"type":"odometry","stamp":1,"position":[NaN,Infinity,1e999],"orientation":[0,0,0,0]}'
        (event,) = parse_scenario([*write([FRONT]), line]).events
        assert isinstance(event, OdometryEvent)
        assert np.isnan(event.pose.position[0])
        assert np.isinf(event.pose.position[1:]).all()

    def test_empty_lines_are_left_out_but_counted(self) -> None:
        with pytest.raises(ConfigurationError, match=r"^line 4: type is 'x'"):
            parse_scenario([*write([FRONT]), b"\n", b"  \r\n", b'{"at": 1, "type": "x"}'])

    def test_a_field_that_means_nothing_is_warned_of_once_a_kind(self) -> None:
        tick = {"at": 1, "type": "tick", "why": "here it went wrong"}
        assert parse_scenario(write([FRONT, tick, tick])).warnings == (
            "line 2: why means nothing in an event of type tick; it is ignored",
        )

    @pytest.mark.parametrize(
        ("event", "words"),
        [
            ({"at": 1}, "type is missing: .*one of frame, odometry, clock, tick"),
            ({"at": 1, "type": "image"}, "type is 'image': .*one of frame, odometry, clock, tick"),
            ({"at": 1, "type": ["tick"]}, r"type is \['tick'\]"),
            ({"type": "tick"}, "at is missing: an event of type tick needs it"),
            ({"at": "1", "type": "tick"}, "at is '1': it must be a time in seconds"),
            ({"at": True, "type": "tick"}, "at is true: it must be a time in seconds"),
            ({"at": float("nan"), "type": "tick"}, "at is nan"),
            ({"at": 1e10, "type": "tick"}, "at is 10000000000.0: it must be .* to 9000000000"),
            ({"at": 1, "type": "frame", "stamp": 1}, "camera is missing: an event of type frame needs it"),
            ({"at": 1, "type": "frame", "camera": "left", "stamp": 1}, "camera is 'left': .*one of front_wide"),
            ({"at": 1, "type": "frame", "camera": 1, "stamp": 1}, "camera is 1: it must be a text"),
            ({"at": 1, "type": "frame", "camera": "front_wide"}, "stamp is missing"),
            ({"at": 1, "type": "frame", "camera": "front_wide", "stamp": None}, "stamp is null"),
            ({"at": 1, "type": "frame", "camera": "front_wide", "stamp": 1, "height": -1}, "height is -1"),
            ({"at": 1, "type": "clock"}, "now is missing"),
            ({"at": 1, "type": "odometry", "stamp": 1, "orientation": [0, 0, 0, 1]}, "position is missing"),
            ({"at": 1, "type": "odometry", "stamp": 1, "position": [0, 0, 0]}, "orientation is missing"),
            (
                {"at": 1, "type": "odometry", "stamp": 1, "position": [0, 0], "orientation": [0, 0, 0, 1]},
                r"position is \[0, 0\]: it must be a list of 3 numbers",
            ),
            (
                {"at": 1, "type": "odometry", "stamp": 1, "position": [0, 0, "1"], "orientation": [0, 0, 0, 1]},
                r"position is \[0, 0, '1'\]",
            ),
            (
                {
                    "at": 1,
                    "type": "odometry",
                    "stamp": 1,
                    "position": [0, 0, 0],
                    "orientation": [0, 0, 0, 1],
                    "twist": [1, 2, 3],
                },
                r"twist is \[1, 2, 3\]: it must be a list of 6 numbers",
            ),
        ],
    )
    def test_what_is_wrong_is_named(self, event: dict[str, Any], words: str) -> None:
        with pytest.raises(ConfigurationError, match=f"^line 3: {words}"):
            parse_scenario(write([FRONT, {"at": 1, "type": "tick"}, event]))

    @pytest.mark.parametrize(
        ("line", "words"),
        [
            (b"{", "it is no JSON: .* at column"),
            (b"[1, 2]", r"it is \[1, 2\]: it must be an object with a type"),
            (b"\xff\xfe", "it is no UTF-8"),
            (b'{"at": 1, "type": "tick", "at": 2}', "at is given twice"),
            (b"[" * 100_000, "it can't be read as JSON"),
            (b'{"at": ' + b"9" * 10_000 + b', "type": "tick"}', "it can't be read as JSON"),
            (b'{"at": 1e9999999999999999999, "type": "tick"}', "it can't be read as JSON"),
        ],
    )
    def test_a_line_that_is_no_event_is_named(self, line: bytes, words: str) -> None:
        with pytest.raises(ConfigurationError, match=f"^line 2: {words}"):
            parse_scenario([*write([FRONT]), line])


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=8,
)
NAMES = st.sampled_from(["at", "type", "stamp", "camera", "cameras", "position", "orientation", "twist", "now", "x"])
VALUES = JSON | st.sampled_from(["frame", "odometry", "clock", "tick", "front_wide", "config", [0, 0, 0], [0, 0, 0, 1]])


ANY = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # the machine may be busy


def reads_or_names_the_line(lines: list[bytes]) -> bool:
    try:
        parse_scenario(lines)
    except ConfigurationError as error:
        return str(error).startswith("line ")
    return True


@ANY
@given(st.dictionaries(NAMES, VALUES, max_size=8))
@example({"at": -1e-300, "type": "tick"})
@example({"at": 1, "type": "odometry", "stamp": 1, "position": [10**400, 0, 0], "orientation": [0, 0, 0, 1]})
def test_whatever_an_event_holds_it_is_read_or_refused_by_its_line(event: dict[str, Any]) -> None:
    assert reads_or_names_the_line([*write([FRONT]), json.dumps(event).encode()])


@ANY
@given(st.dictionaries(NAMES | st.sampled_from(["anchor", "rate_hz", "child_to_base", "odometry"]), VALUES, max_size=6))
def test_whatever_a_configuration_holds_it_is_read_or_refused_by_its_line(given: dict[str, Any]) -> None:
    assert reads_or_names_the_line([json.dumps({"cameras": {"a": {}}, **given, "type": "config"}).encode()])


@ANY
@given(st.lists(st.binary(max_size=60), max_size=4))
def test_whatever_bytes_come_they_are_read_or_refused_by_their_line(lines: list[bytes]) -> None:
    assert reads_or_names_the_line([*write([FRONT]), *lines])

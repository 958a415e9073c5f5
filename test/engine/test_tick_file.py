"""Recorded ticks come back exactly; a file that is damaged, or made to harm, is refused by name."""

from __future__ import annotations

import json
import zipfile
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tiny_checkpoint import drive

from alpamayo_ros.core.types import ConfigurationError, EgoPose, Observation, Prediction, SamplingOptions
from alpamayo_ros.engine.null_engine import INFO, NullEngine
from alpamayo_ros.engine.tick_file import RecordedTick, TickFile, read_ticks, write_ticks

OPTIONS = SamplingOptions(num_samples=3, seed=2**60, draft_token_ids=(5, 6), deadline_ms=80.5, guidance_weight=1.5)


def tick(observation: Observation | None = None, **changes: Any) -> RecordedTick:
    observation = observation or drive(navigation="Turn left")
    prediction = replace(NullEngine().predict(observation, OPTIONS), reasoning_token_ids=((1, 2), (3,), ()))
    return replace(RecordedTick(observation, OPTIONS, prediction, finished=True, engine_ms=12.5), **changes)


def content(*ticks: RecordedTick) -> TickFile:
    return TickFile("service", {"cameras.front_wide.topic": "/front", "rate_hz": 10.0}, INFO, ticks)


def written(path: Path, *ticks: RecordedTick) -> Path:
    write_ticks(path, content(*ticks))
    return path


def assert_equal(got: Any, wanted: Any) -> None:
    """Dataclasses with arrays in them, field by field."""
    for name, value in vars(wanted).items():
        other = getattr(got, name)
        if isinstance(value, np.ndarray):
            assert other.dtype == value.dtype
            assert np.array_equal(other, value, equal_nan=True), name
        elif isinstance(value, EgoPose):
            assert_equal(other, value)
        elif name == "frames":
            assert list(other) == list(value)
            for a, b in zip(sum(other.values(), ()), sum(value.values(), ()), strict=True):
                assert bytes(a.data) == np.asarray(b.data).tobytes()
                assert replace(a, data=b"").__dict__ == replace(b, data=b"").__dict__
        else:
            assert other == value, name


def test_everything_comes_back_as_it_was(tmp_path: Path) -> None:
    observation = drive(navigation=None)
    moving = replace(
        observation,
        pose=replace(observation.pose, linear_velocity=np.array([0.1, 0.2, 1 / 3]), angular_velocity=np.ones(3)),
    )
    ticks = (
        tick(),
        tick(moving),
        tick(prediction=None, error="EngineError: no"),
        tick(prediction=None, finished=False),
    )
    got = read_ticks(written(tmp_path / "a.ticks.zip", *ticks))
    assert (got.why, got.settings, got.engine) == ("service", content().settings, INFO)
    for back, was in zip(got.ticks, ticks, strict=True):
        assert_equal(back.observation, was.observation)
        assert back.options == was.options
        assert (back.error, back.finished, back.engine_ms) == (was.error, was.finished, was.engine_ms)
        if was.prediction is None:
            assert back.prediction is None
        else:
            assert_equal(back.prediction, was.prediction)


@pytest.mark.parametrize("changes", [{"xyz": np.full((3, 64, 3), np.nan)}, {"xyz": np.zeros((0, 2), np.float32)}])
def test_an_answer_that_is_unfit_comes_back_too(tmp_path: Path, changes: dict[str, Any]) -> None:
    good = tick()
    assert good.prediction is not None
    bad = replace(good, prediction=replace(good.prediction, **changes))
    got = read_ticks(written(tmp_path / "a.ticks.zip", bad)).ticks[0].prediction
    assert isinstance(got, Prediction)
    assert_equal(got, bad.prediction)


def test_a_frame_that_several_ticks_share_is_stored_once(tmp_path: Path) -> None:
    observation = drive()
    path = written(tmp_path / "a.ticks.zip", *(tick(observation) for _ in range(5)))
    with zipfile.ZipFile(path) as archive:
        assert len([name for name in archive.namelist() if name.startswith("frames/")]) == 8
    assert path.stat().st_size < 1.5 * (8 * 96 * 160 * 3)


def test_images_of_every_kind_of_buffer(tmp_path: Path) -> None:
    base = drive(cameras=(1,))
    kinds = (bytes, bytearray, memoryview, lambda data: np.frombuffer(data, np.uint8))
    frames = tuple(
        replace(frame, data=kind(np.asarray(frame.data).tobytes()))
        for frame, kind in zip(base.frames[1], kinds, strict=True)
    )
    got = read_ticks(written(tmp_path / "a.ticks.zip", tick(replace(base, frames={1: frames}))))
    assert [bytes(f.data) for f in got.ticks[0].observation.frames[1]] == [bytes(f.data) for f in frames]


def changed_index(path: Path, change: Any) -> Path:
    """The same file with another ticks.json."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    index = json.loads(members["ticks.json"])
    change(index)
    members["ticks.json"] = json.dumps(index).encode()
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return path


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda index: index.update(format="other"), "its format is 'other', expected 'alpamayo_ros ticks'"),
        (lambda index: index.update(version=2), "its version is 2, this program knows 1"),
        (lambda index: index["ticks"][0]["options"].update(num_samples="3"), "num_samples is '3', expected int"),
        (lambda index: index["ticks"][0]["options"].update(extra=1), "extra"),
        (lambda index: index["ticks"][0].update(t0_ns=None), "t0_ns is None, expected int"),
        (lambda index: index["ticks"][0]["frames"].update({"1": []}), "camera 1 has frames at"),
        (lambda index: index["ticks"][0].pop("pose"), "pose"),
        (lambda index: index.pop("engine"), "engine"),
        (lambda index: index["frames"].clear(), "KeyError"),
    ],
)
def test_an_index_that_is_wrong_is_named(tmp_path: Path, change: Any, words: str) -> None:
    path = changed_index(written(tmp_path / "a.ticks.zip", tick()), change)
    with pytest.raises(ConfigurationError, match=words) as caught:
        read_ticks(path)
    assert str(path) in str(caught.value)


def test_what_is_no_such_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no zip")
    with zipfile.ZipFile(tmp_path / "zip", "w") as archive:
        archive.writestr("other", "x")
    for name, words in (
        ("text", "no file of recorded ticks"),
        ("zip", "no file of recorded ticks"),
        ("absent", "No such"),
    ):
        with pytest.raises(ConfigurationError, match=words):
            read_ticks(tmp_path / name)


def test_compressed_members_are_refused_since_they_can_grow(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "bomb", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("ticks.json", bytes(10_000_000))
    with pytest.raises(ConfigurationError, match="compressed"):
        read_ticks(tmp_path / "bomb")


@pytest.mark.parametrize(
    "header",
    [
        "{'descr': '<f8', 'fortran_order': False, 'shape': (9999999999, 3), }",
        "{'descr': '|O', 'fortran_order': False, 'shape': (16, 3), }",
        "__import__('os')",
    ],
)
def test_an_array_cannot_claim_more_than_it_is_nor_hold_objects(tmp_path: Path, header: str) -> None:
    path = written(tmp_path / "a.ticks.zip", tick())
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    head = header.ljust(117).encode() + b"\n"
    members["ticks/0/history_xyz.npy"] = b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head + bytes(384)
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    with pytest.raises(ConfigurationError, match="recorded ticks"):
        read_ticks(path)


@pytest.fixture(scope="module")
def intact(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return written(tmp_path_factory.mktemp("ticks") / "a", tick()).read_bytes()


@settings(deadline=None, suppress_health_check=list(HealthCheck))
@given(at=st.integers(0, 2**20), damage=st.binary(min_size=1, max_size=20), cut=st.booleans())
def test_damage_anywhere_is_read_or_named(tmp_path: Path, intact: bytes, at: int, damage: bytes, cut: bool) -> None:
    at %= len(intact)
    data = intact[:at] if cut else intact[:at] + damage + intact[at + len(damage) :]
    (tmp_path / "damaged").write_bytes(data)
    try:
        good = len(read_ticks(tmp_path / "damaged").ticks) == 1
    except ConfigurationError as error:
        good = str(tmp_path / "damaged") in str(error)
    assert good


def test_an_existing_file_is_never_overwritten(tmp_path: Path) -> None:
    path = written(tmp_path / "a.ticks.zip", tick())
    with pytest.raises(FileExistsError):
        write_ticks(path, content(tick()))


def test_the_options_hold_every_field(tmp_path: Path) -> None:
    with zipfile.ZipFile(written(tmp_path / "a.ticks.zip", tick())) as archive:
        stored = json.loads(archive.read("ticks.json"))["ticks"][0]["options"]
    assert set(stored) == set(asdict(OPTIONS))

"""Recorded ticks as a file: what the engine was given, what it answered, and with which engine.

A zip file without compression: ticks.json with the format's name and version, frames/ with each image once, as it was
received (a JPEG can be looked at), and ticks/N/ with the arrays as .npy. Reading it runs no code from it, and nothing
in it can claim more memory than the file is large.
"""

from __future__ import annotations

import io
import json
import types
import typing
import zipfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy

from alpamayo_ros.core.checks import check_observation
from alpamayo_ros.core.types import (
    AlpamayoError,
    ConfigurationError,
    EgoPose,
    Frame,
    Observation,
    Prediction,
    SamplingOptions,
    Timings,
)
from alpamayo_ros.engine.base import EngineInfo

FORMAT, VERSION = "alpamayo_ros ticks", 1
SUFFIX = ".ticks.zip"
INDEX = "ticks.json"
POSE_ARRAYS = ("position", "orientation", "linear_velocity", "angular_velocity")
PREDICTION_ARRAYS = ("xyz", "rotation", "actions", "speed")


@dataclass(frozen=True, eq=False)
class RecordedTick:
    """One call of the engine."""

    observation: Observation
    options: SamplingOptions  # as the engine was given them, with the draft tokens
    prediction: Prediction | None = None  # also one that was not fit to be published
    error: str = ""  # the type and text of what the engine raised
    finished: bool = False  # False: the engine was still at it
    engine_ms: float = 0.0  # inside the engine


@dataclass(frozen=True, eq=False)
class TickFile:
    """The content of a file."""

    why: str  # what made the recorder write it
    settings: Mapping[str, Any]  # every parameter of the node by its name
    engine: EngineInfo
    ticks: tuple[RecordedTick, ...]  # oldest first


def write_ticks(path: Path, content: TickFile) -> None:
    """Write a file that must not exist yet.

    Raises:
        OSError: it can't be written.
    """
    with zipfile.ZipFile(path, "x", zipfile.ZIP_STORED) as archive:
        frames = {
            frame.serial: frame
            for tick in content.ticks
            for of_camera in tick.observation.frames.values()
            for frame in of_camera
        }
        for frame in frames.values():
            archive.writestr(_frame_name(frame.serial), np.frombuffer(frame.data, np.uint8).data)
        index = {
            "format": FORMAT,
            "version": VERSION,
            "why": content.why,
            "settings": dict(content.settings),
            "engine": asdict(content.engine),
            "frames": {serial: _without(frame, "data", "serial") for serial, frame in frames.items()},
            "ticks": [_write_tick(archive, number, tick) for number, tick in enumerate(content.ticks)],
        }
        archive.writestr(INDEX, json.dumps(index, indent=1, default=np.ndarray.tolist))


def read_ticks(path: Path) -> TickFile:
    """Read a file.

    Raises:
        ConfigurationError: it is none, is damaged, or has a version that this program doesn't know.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
            if any(member.compress_type != zipfile.ZIP_STORED for member in members):
                raise ConfigurationError("it holds compressed data, expected stored ones")
            if sum(member.file_size for member in members) > path.stat().st_size:
                raise ConfigurationError("its members claim to be larger than the file")
            return _read(archive)
    except OSError as error:
        raise ConfigurationError(f"{path} can't be read: {error.strerror or error}") from error
    except AlpamayoError as error:
        raise ConfigurationError(f"{path} can't be used as recorded ticks: {error}") from error
    except Exception as error:  # damaged bytes raise whatever their reading runs into
        raise ConfigurationError(f"{path} is no file of recorded ticks, or is damaged: {error!r}") from error


def _write_tick(archive: zipfile.ZipFile, number: int, tick: RecordedTick) -> dict[str, Any]:
    observation, prediction = tick.observation, tick.prediction
    arrays = {"history_xyz": observation.history_xyz, "history_rotation": observation.history_rotation}
    if prediction is not None:
        arrays |= {name: getattr(prediction, name) for name in PREDICTION_ARRAYS}
    for name, array in arrays.items():
        archive.writestr(_array_name(number, name), _npy(array))
    return {
        "t0_ns": observation.t0_ns,
        "epoch": observation.epoch,
        "navigation": observation.navigation,
        "frames": {camera: [frame.serial for frame in frames] for camera, frames in observation.frames.items()},
        "pose": {name: getattr(observation.pose, name) for name in POSE_ARRAYS},
        "options": asdict(tick.options),
        "prediction": None if prediction is None else _without(prediction, *PREDICTION_ARRAYS),
        "error": tick.error,
        "finished": tick.finished,
        "engine_ms": tick.engine_ms,
    }


def _read(archive: zipfile.ZipFile) -> TickFile:
    index = json.loads(archive.read(INDEX))
    if index.get("format") != FORMAT:
        raise ConfigurationError(f"its format is {index.get('format')!r}, expected {FORMAT!r}")
    if index["version"] != VERSION:
        raise ConfigurationError(f"its version is {index['version']!r}, this program knows {VERSION}")
    frames = {
        int(serial): Frame(serial=int(serial), data=archive.read(_frame_name(int(serial))), **_typed(Frame, each))
        for serial, each in index["frames"].items()
    }
    return TickFile(
        why=str(index["why"]),
        settings=dict(index["settings"]),
        engine=EngineInfo(**_typed(EngineInfo, index["engine"])),
        ticks=tuple(_read_tick(archive, number, each, frames) for number, each in enumerate(index["ticks"])),
    )


def _read_tick(archive: zipfile.ZipFile, number: int, entry: Any, frames: Mapping[int, Frame]) -> RecordedTick:
    def array(name: str) -> np.ndarray:
        return _from_npy(archive.read(_array_name(number, name)))

    pose = {name: None if value is None else np.array(value, float) for name, value in entry["pose"].items()}
    observation = Observation(
        frames={
            int(camera): tuple(frames[serial] for serial in serials) for camera, serials in entry["frames"].items()
        },
        history_xyz=array("history_xyz"),
        history_rotation=array("history_rotation"),
        pose=EgoPose(_value(int, entry["t0_ns"], "t0_ns"), **pose),  # type: ignore[arg-type]
        **_typed(Observation, {name: entry[name] for name in ("t0_ns", "epoch", "navigation")}),
    )
    check_observation(observation)
    prediction = None
    if entry["prediction"] is not None:
        given = dict(entry["prediction"])
        timings = Timings(**_typed(Timings, given.pop("timings")))
        arrays: dict[str, Any] = {name: array(name) for name in PREDICTION_ARRAYS}
        prediction = Prediction(**arrays, **_typed(Prediction, given), timings=timings)
    options = SamplingOptions(**_typed(SamplingOptions, entry["options"]))
    rest = _typed(RecordedTick, {name: entry[name] for name in ("error", "finished", "engine_ms")})
    return RecordedTick(observation, options, prediction, **rest)


def _frame_name(serial: int) -> str:
    return f"frames/{serial}"


def _array_name(number: int, name: str) -> str:
    return f"ticks/{number}/{name}.npy"


def _without(instance: Any, *names: str) -> dict[str, Any]:
    """A dataclass as JSON types, without some of its fields."""
    kept = {each.name: getattr(instance, each.name) for each in fields(instance) if each.name not in names}
    return {name: asdict(value) if isinstance(value, Timings) else value for name, value in kept.items()}


def _npy(array: Any) -> bytes:
    buffer = io.BytesIO()
    npy.write_array(buffer, np.asarray(array), version=(1, 0), allow_pickle=False)
    return buffer.getvalue()


def _from_npy(data: bytes) -> np.ndarray:
    buffer = io.BytesIO(data)
    version = npy.read_magic(buffer)
    if version != (1, 0):
        raise ConfigurationError(f"an array has version {version}, expected (1, 0)")
    shape, fortran, dtype = npy.read_array_header_1_0(buffer)
    if dtype.kind not in "fiub":
        raise ConfigurationError(f"an array has the type {dtype}, expected numbers")
    return np.frombuffer(data, dtype, offset=buffer.tell()).reshape(shape, order="F" if fortran else "C")


def _typed(kind: type, given: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of a dataclass from JSON types; one of another type is refused."""
    hints = typing.get_type_hints(kind)
    return {name: _value(hints[name], value, name) for name, value in given.items()}


def _value(hint: Any, value: Any, name: str) -> Any:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        hint = type(None) if value is None else next(each for each in arguments if each is not type(None))
        return _value(hint, value, name)
    if origin is tuple and isinstance(value, list):
        return tuple(_value(arguments[0], each, name) for each in value)
    if isinstance(value, dict) and origin is not None and issubclass(origin, Mapping):
        return {key: _value(arguments[1], each, name) for key, each in value.items()}
    if hint is float and type(value) is int:
        return float(value)
    if type(value) is not hint:
        raise ConfigurationError(f"{name} is {value!r}, expected {getattr(hint, '__name__', hint)}")
    return value

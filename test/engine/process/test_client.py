"""An engine in its own process answers as in this one: the same numbers, the same errors, the same log."""

from __future__ import annotations

import ast
import itertools
import logging
import os
import subprocess
import sys
import venv
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pytest
from processes import in_background, is_gone, wait_until
from tiny_checkpoint import drive, picture

from alpamayo_ros.core.types import (
    BadImageError,
    ConfigurationError,
    EngineError,
    Frame,
    Observation,
    Prediction,
    SamplingOptions,
)
from alpamayo_ros.engine.base import Engine, SupervisedEngine
from alpamayo_ros.engine.factory import create_engine
from alpamayo_ros.engine.process.client import STAGE, ProcessEngine
from alpamayo_ros.engine.transformers_engine import TransformersEngine

ROOT = Path(__file__).parents[3]
SHORT = SamplingOptions(num_samples=3, max_reasoning_tokens=6, seed=3)
LONG = 1000  # steps of a flow: some seconds
SERIALS = itertools.count(20_000_000)
Start = Callable[..., ProcessEngine]


@pytest.fixture(scope="module")
def remote(checkpoint: Path):
    """The tiny engine of test/engine/conftest.py, in a process of its own."""
    os.environ["OMP_NUM_THREADS"] = "1"  # as here, so that sums round alike
    made = create_engine(
        "transformers", str(checkpoint), device="cpu", max_samples=8, max_cameras=2, process="subprocess"
    )
    made.warm_up()
    yield made
    made.close()


def as_jpeg(observation: Observation) -> Observation:
    """The same pictures as a camera driver sends them."""
    frames = {
        camera: tuple(
            Frame(-frame.serial, camera, frame.stamp_ns, cv2.imencode(".jpg", frame.data)[1].tobytes(), "jpeg")
            for frame in of_camera
        )
        for camera, of_camera in observation.frames.items()
    }
    return replace(observation, frames=frames)


def assert_equal(left: Prediction, right: Prediction) -> None:
    """To the last bit, but for the times."""
    for name in ("xyz", "rotation", "actions", "speed"):
        one, other = getattr(left, name), getattr(right, name)
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)
    for name in ("reasoning", "reasoning_token_ids", "finish_reasons", "seed", "drafts_accepted"):
        assert getattr(left, name) == getattr(right, name)
    assert list(right.timings.stages_ms) == [*left.timings.stages_ms, STAGE]
    for name in ("frames_encoded", "frames_reused", "reasoning_tokens"):
        assert getattr(left.timings, name) == getattr(right.timings, name)


def test_it_is_an_engine_and_says_what_the_one_in_the_process_is(engine: TransformersEngine, remote: Engine) -> None:
    assert isinstance(remote, SupervisedEngine)
    assert not isinstance(engine, SupervisedEngine)
    assert remote.info == engine.info


@pytest.mark.parametrize(
    ("options", "compressed"),
    [
        (SHORT, False),
        (SHORT, True),
        (replace(SHORT, reasoning="independent", temperature=1.0, seed=2**62), False),
        (replace(SHORT, reasoning="given", given_reasoning="Schräg ab 50 m.", flow_steps=3), True),
        (replace(SHORT, reasoning="off", guidance_weight=1.5, noise_temperature=0.5), False),
    ],
    ids=["raw", "jpeg", "independent", "given", "guided"],
)
def test_predictions_are_the_same_to_the_last_bit(
    engine: TransformersEngine, remote: Engine, options: SamplingOptions, compressed: bool
) -> None:
    observation = drive(navigation="Turn left in 30m")
    if compressed:
        observation = as_jpeg(observation)
    assert_equal(engine.predict(observation, options), remote.predict(observation, options))


def test_a_batch_and_an_answer_in_words_are_the_same(engine: TransformersEngine, remote: Engine) -> None:
    observations = [drive(), drive(cameras=(1,), speed=2.0)]
    options = [SHORT, replace(SHORT, num_samples=1, seed=8)]
    for pair in zip(
        engine.predict_batch(observations, options), remote.predict_batch(observations, options), strict=True
    ):
        assert_equal(*pair)
    assert remote.predict_batch([], []) == []
    question = "What is ahead?"
    assert engine.ask(observations[0], question, SHORT) == remote.ask(observations[0], question, SHORT)


def test_frames_that_were_prepared_are_neither_encoded_nor_sent_again(remote: Engine) -> None:
    observation = drive()
    for frames in observation.frames.values():
        for frame in frames:
            remote.prepare([frame])
    # other pixels under the same serials: whatever is read again would show
    other = {c: tuple(replace(f, data=b"nonsense") for f in frames) for c, frames in observation.frames.items()}
    timings = remote.predict(replace(observation, frames=other), SHORT).timings
    assert (timings.frames_encoded, timings.frames_reused) == (0, 8)


def frames_of(observation: Observation) -> list[Frame]:
    return [frame for frames in observation.frames.values() for frame in frames]


def test_it_prepares_alongside_if_the_engine_does(remote: Engine, start: Start) -> None:
    assert remote.prepares_alongside
    assert not start("null").prepares_alongside


def test_frames_are_prepared_while_a_prediction_runs(remote: Engine) -> None:
    coming = drive()
    predicting = in_background(lambda: remote.predict(drive(), replace(SHORT, flow_steps=LONG)))
    wait_until(lambda: "Predict" in remote._supervisor._requests)
    remote.prepare(frames_of(coming))
    assert not predicting.done()
    predicting.result(120)
    timings = remote.predict(coming, SHORT).timings
    assert (timings.frames_encoded, timings.frames_reused) == (0, 8)


def test_a_prediction_keeps_its_frames_while_others_come_and_the_memory_grows(
    engine: TransformersEngine, remote: Engine
) -> None:
    """A raw frame of 12 MB is larger than the whole memory of 16 MB allows beside the others."""
    large = np.random.default_rng(3).integers(0, 256, (1600, 2560, 3), dtype=np.uint8)
    for number in range(4):
        observation = drive(speed=2.0 + number)
        later = Frame(next(SERIALS), 1, 7, np.roll(large, number, 0), "rgb8", 1600, 2560, 7680)
        broken = Frame(next(SERIALS), 6, 7, b"no image", "jpeg")
        coming = [later, broken, *frames_of(observation)[4:]]  # its own frames, too: whoever comes first encodes them
        preparing = in_background(lambda coming=coming: remote.prepare(coming))
        answer = remote.predict(observation, SHORT)
        preparing.result(60)
        expected = engine.predict(observation, SHORT)
        np.testing.assert_array_equal(answer.xyz, expected.xyz)
        assert answer.reasoning_token_ids == expected.reasoning_token_ids


def test_ticks_with_frames_that_are_prepared_meanwhile_are_the_same_to_the_last_bit(
    engine: TransformersEngine, remote: Engine
) -> None:
    scenes = [as_jpeg(drive(speed=speed)) for speed in (3.0, 9.0, 6.0, 1.0) * 3]
    for number, scene in enumerate(scenes):
        coming = [frame for later in scenes[number : number + 2] for frame in frames_of(later)]
        preparing = in_background(lambda coming=coming: remote.prepare(coming))
        answer = remote.predict(scene, SHORT)
        preparing.result(60)
        np.testing.assert_array_equal(answer.xyz, engine.predict(scene, SHORT).xyz)


def test_a_bad_image_that_both_wait_for_is_named_and_nobody_keeps_its_data(
    remote: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(5):
        observation = drive((1,))
        broken = Frame(next(SERIALS), 1, 400_000_000 + number, b"no image" * 99, "jpeg")
        bad = replace(observation, frames={1: (*observation.frames[1][:3], broken)})
        preparing = in_background(lambda bad=bad: remote.prepare(frames_of(bad)))
        with pytest.raises(BadImageError) as caught:
            remote.predict(bad, SHORT)
        assert caught.value.serial == broken.serial
        preparing.result(60)
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_frames_are_told_apart_by_serial_alone(engine: TransformersEngine, remote: Engine) -> None:
    first, second = drive(), drive(speed=8.0)
    other = {
        camera: tuple(replace(frame, data=picture(1000 + frame.serial)) for frame in frames)
        for camera, frames in second.frames.items()
    }
    second = replace(second, frames=other)  # the same stamps, other pixels and serials
    of_first, of_second = remote.predict(first, SHORT), remote.predict(second, SHORT)
    assert np.abs(of_first.xyz - of_second.xyz).max() > 0
    assert_equal(engine.predict(second, SHORT), of_second)


def test_frames_larger_than_the_memory_make_it_grow(engine: TransformersEngine, remote: Engine) -> None:
    pixels = picture(5, 1600, 2560)  # 12 MB each, of 16 MB that there are at first
    observation = drive(cameras=(1,))
    frames = {
        1: tuple(
            Frame(10_000 + i, 1, i, np.roll(pixels, i, 0), "rgb8", 1600, 2560, 7680)
            for i, _ in enumerate(observation.frames[1])
        )
    }
    observation = replace(observation, frames=frames)
    assert_equal(engine.predict(observation, SHORT), remote.predict(observation, SHORT))


@pytest.mark.parametrize(
    ("observation", "options", "error"),
    [
        (drive(cameras=()), SHORT, EngineError),
        (drive(), replace(SHORT, num_samples=9), EngineError),
        (drive(), replace(SHORT, temperature=float("nan")), EngineError),
        (
            replace(drive((1,)), frames={1: tuple(Frame(50_000 + i, 1, 7, b"no image", "jpeg") for i in range(4))}),
            SHORT,
            BadImageError,
        ),
    ],
    ids=["no camera", "samples", "temperature", "image"],
)
def test_errors_are_the_same_in_type_and_words(
    engine: TransformersEngine,
    remote: Engine,
    observation: Observation,
    options: SamplingOptions,
    error: type[Exception],
) -> None:
    with pytest.raises(error) as here:
        engine.predict(observation, options)
    with pytest.raises(error) as there:
        remote.predict(observation, options)
    assert type(here.value) is type(there.value)
    assert str(here.value) == str(there.value)
    assert vars(here.value) == vars(there.value)  # the serial of a bad image
    remote.predict(drive(), SHORT)  # and it goes on


def test_a_bad_image_is_no_error_while_preparing(remote: Engine) -> None:
    remote.prepare([Frame(60_000, 1, 7, b"no image", "jpeg")])


def test_an_error_that_nobody_foresaw_arrives_with_its_type_and_its_traceback_in_the_log(
    remote: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    broken = replace(drive(), history_xyz=np.zeros((3, 2)))
    with pytest.raises(EngineError):
        remote.predict(broken, SHORT)
    wrong_type = replace(SHORT, num_samples="three")  # type: ignore[arg-type]
    with pytest.raises(EngineError, match="TypeError: "):
        remote.predict(drive(), wrong_type)
    assert "Traceback" in caplog.text
    assert remote.predict(drive(), SHORT).num_samples == 3


def test_what_cannot_be_loaded_is_the_same_error_as_in_this_process(tmp_path: Path, checkpoint: Path) -> None:
    for arguments in (
        {"checkpoint": ""},
        {"checkpoint": str(tmp_path / "nowhere")},
        {"checkpoint": str(checkpoint), "device": "gpu"},
    ):
        caught = []
        for process in ("in_process", "subprocess"):
            with pytest.raises((ConfigurationError, EngineError)) as error:
                create_engine("transformers", process=process, **arguments)  # type: ignore[arg-type]
            caught.append((type(error.value), str(error.value)))
        assert caught[0] == caught[1]


@pytest.mark.parametrize(("level", "arrives"), [(logging.INFO, True), (logging.WARNING, False)])
def test_what_is_logged_there_is_logged_here_from_the_same_level_on(
    start: Start, caplog: pytest.LogCaptureFixture, level: int, arrives: bool
) -> None:
    with caplog.at_level(level, "alpamayo_ros"):
        engine = start()
        engine.warm_up()
    said = f"process {engine.health.pid}, {sys.executable}, loaded the engine in"
    records = [record for record in caplog.records if said in record.getMessage()]
    assert [(record.name, record.levelno) for record in records] == [
        ("alpamayo_ros.engine.process.server", logging.INFO)
    ] * arrives


def test_the_server_needs_neither_ros_nor_the_node() -> None:
    program = "import sys, alpamayo_ros.engine.process.server; print(sorted(sys.modules))"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment, check=True)
    modules = ast.literal_eval(said.stdout)
    own = {module.split(".")[1] for module in modules if module.startswith("alpamayo_ros.")}
    assert own == {"core", "engine"}
    assert not {"rclpy", "torch", "cv2", "std_msgs"} & set(modules)


@pytest.fixture(scope="module")
def other_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter that has NumPy and nothing else: no torch, no OpenCV, no rclpy, not this package."""
    folder = tmp_path_factory.mktemp("other") / "venv"
    venv.create(folder, symlinks=True)
    packages = next((folder / "lib").glob("python3*/site-packages"))
    numpy = Path(np.__file__).parent
    for source in (numpy, numpy.with_name("numpy.libs")):
        if source.exists():
            (packages / source.name).symlink_to(source)
    return folder / "bin" / "python"


def test_an_interpreter_with_other_packages_serves_what_it_can(
    start: Start, other_python: Path, checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(cv2.__file__).parents[1]))  # as ROS sets it; not for that interpreter
    engine = start(python=str(other_python))
    assert_equal(create_engine("null", "").predict(drive(), SHORT), engine.predict(drive(), SHORT))
    with pytest.raises(EngineError, match=r"the transformers engine can't be imported \(No module named '(torch|cv2)'"):
        create_engine("transformers", str(checkpoint), python=str(other_python))


@pytest.mark.parametrize(
    ("python", "error", "message"),
    [
        ("/nowhere/python", ConfigurationError, "engine.python is '/nowhere/python', which can't be started: No such"),
        ("/etc/passwd", ConfigurationError, "engine.python is '/etc/passwd', which can't be started: Permission"),
        ("/bin/true", EngineError, "exit code 0 before it said anything; is '/bin/true' (engine.python) a Python"),
    ],
)
def test_an_interpreter_that_is_none_is_named(python: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error) as caught:
        create_engine("null", "", python=python)
    assert message in str(caught.value)


def test_an_interpreter_that_cannot_import_the_server_says_what_is_missing(tmp_path: Path) -> None:
    venv.create(tmp_path / "bare", symlinks=True)
    python = str(tmp_path / "bare" / "bin" / "python")
    with pytest.raises(EngineError) as caught:
        create_engine("null", "", python=python)
    assert str(caught.value).startswith(f"{python} (Python {sys.version.split()[0]}) can't run the engine: No module")
    assert "'numpy'; install what is missing there" in str(caught.value)


def test_closing_ends_the_process_and_all_that_it_started_and_later_calls_say_so(start: Start, tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nsleep 1000 & echo $! > {tmp_path}/pid\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    engine = start(python=str(python))
    pids = [engine.health.pid, int((tmp_path / "pid").read_text())]
    assert not any(map(is_gone, pids))
    engine.close()
    engine.close()
    assert is_gone(pids[0])
    wait_until(lambda: is_gone(pids[1]))  # killed, but not this process's child: on a busy machine it takes a moment
    with pytest.raises(EngineError, match="the engine is closed"):
        engine.predict(drive(), SHORT)

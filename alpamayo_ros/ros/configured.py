"""What exists from configure to cleanup: made step by step, and undone in reverse order, also when a step fails."""

from __future__ import annotations

import gc
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from rclpy.callback_groups import CallbackGroup

from alpamayo_ros.core.settings import Settings
from alpamayo_ros.engine.base import Engine, SupervisedEngine
from alpamayo_ros.engine.limits import check_limits
from alpamayo_ros.engine.recorder import TickRecorder
from alpamayo_ros.ros import serialized
from alpamayo_ros.ros.drive import USUAL_ODOMETRY_FRAME, Drive, Sinks
from alpamayo_ros.ros.inputs import Inputs
from alpamayo_ros.ros.outputs import Outputs
from alpamayo_ros.ros.overlay import Overlay
from alpamayo_ros.ros.tick_log import TickLog
from alpamayo_ros.ros.topics import input_topics
from alpamayo_ros.ros.transforms import Transforms

STOP_TIMEOUT = 60.0  # s that a cleanup waits for the engine's present work
KILL_TIMEOUT = 1.0  # s that it waits before it ends an engine's own process


@dataclass(frozen=True, eq=False)
class Configured:
    """The engine, warmed up, and all that goes with it."""

    engine: Engine
    recorder: TickRecorder
    outputs: Outputs
    drive: Drive
    inputs: Inputs
    log: TickLog
    undo: ExitStack  # ends all of these, the last one first

    def close(self) -> None:
        """Stop the engine's work, and free everything.

        Raises:
            TimeoutError: the engine is still at work; nothing is freed then.
        """
        if isinstance(self.engine, SupervisedEngine) and not self.drive.stop(KILL_TIMEOUT):
            self.engine.close()  # which ends its tick
        if not self.drive.stop(STOP_TIMEOUT):
            raise TimeoutError(f"the engine is still at its tick after {STOP_TIMEOUT:g} s and can't be closed")
        self.undo.close()


def configured(
    node: Any,
    settings: Settings,
    make_engine: Callable[[Settings], Engine],
    sinks: Sinks,
    transforms: Transforms,
    group: CallbackGroup,
    say: Callable[[str], None],
) -> Configured:
    """Load and warm up the engine, and make all that goes with it.

    Args:
        node: the lifecycle node, with its clock as `now_ns`.
        settings: as parsed.
        make_engine: gives the engine that the settings ask for.
        sinks: where results go.
        transforms: of the odometry.
        group: of the inputs' callbacks.
        say: is told what is being done.

    Raises:
        Exception: whatever a step raises; what the steps before it had begun has ended then.
    """
    input_topics(node, settings)  # before minutes of loading
    with ExitStack() as undo:
        undo.callback(gc.unfreeze)  # what is frozen below is garbage in the end, cycles among it
        say(f"loading engine {settings.engine.kind}")
        for frame_id in (settings.odometry.base_frame, USUAL_ODOMETRY_FRAME):
            serialized.warm_up(frame_id)
        engine = make_engine(settings)
        undo.callback(engine.close)
        check_limits(settings, engine.info)
        say(f"warming up {engine.info.engine} on {engine.info.device}")
        engine.warm_up()
        overlay = Overlay(node, settings, group) if settings.overlay.publish else None
        if overlay is not None:
            undo.callback(overlay.close)
        outputs = Outputs(node, settings, overlay)
        undo.callback(outputs.close)
        recorder = TickRecorder(settings, engine)
        undo.callback(recorder.close)
        drive = Drive(settings, recorder.engine, node.now_ns, sinks)
        undo.callback(drive.stop, STOP_TIMEOUT)
        inputs = Inputs(node, settings, drive, transforms, group)
        topics = {name: stream.endpoint.topic for name, stream in inputs.cameras.items()}
        log = TickLog(node.get_logger(), topics, inputs.odometry.endpoint.topic)
        gc.collect()
        gc.freeze()  # collections while driving look at what is new alone, not at torch and the model
        return Configured(engine, recorder, outputs, drive, inputs, log, undo.pop_all())

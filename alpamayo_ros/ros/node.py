"""The lifecycle node: transitions and the heartbeat around the drive.

Callback groups, each served by a thread of its own (executor.py): lifecycle services (configuring takes minutes),
inputs, heartbeat, services (services.py); parameters and /clock are in the default one. So nothing slow keeps the
clock, the status or the parameters from working.
"""

from __future__ import annotations

import functools
import gc
import logging
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from diagnostic_msgs.msg import DiagnosticArray
from rclpy.callback_groups import MutuallyExclusiveCallbackGroup
from rclpy.clock import Clock
from rclpy.clock_type import ClockType
from rclpy.lifecycle import LifecycleNodeMixin, LifecycleState, TransitionCallbackReturn
from rclpy.node import Node

from alpamayo_ros.core.child_frame import ChildFrame
from alpamayo_ros.core.settings import Settings
from alpamayo_ros.core.types import ConfigurationError, Skip, SkipReason
from alpamayo_ros.engine.base import Engine
from alpamayo_ros.engine.factory import engine_by_settings
from alpamayo_ros.engine.job import Outcome
from alpamayo_ros.engine.limits import check_limits
from alpamayo_ros.msg import InferenceStatus
from alpamayo_ros.ros.arguments import given_parameters, with_last_values
from alpamayo_ros.ros.autoware import check_autoware
from alpamayo_ros.ros.clock import ClockWatch
from alpamayo_ros.ros.configured import Configured, configured
from alpamayo_ros.ros.diagnostics import diagnostics_message
from alpamayo_ros.ros.drive import Sinks
from alpamayo_ros.ros.logs import RosLogHandler
from alpamayo_ros.ros.outputs import OUTPUT_QOS
from alpamayo_ros.ros.parameters import NodeParameters
from alpamayo_ros.ros.report import NodeReport, TickReport
from alpamayo_ros.ros.reporter import Reporter
from alpamayo_ros.ros.services import Services
from alpamayo_ros.ros.status import status_message
from alpamayo_ros.ros.transforms import Transforms

Transition = Callable[[Any, LifecycleState], TransitionCallbackReturn]

HEARTBEAT = 1.0  # s
POLL = 0.05  # s; a tick that waits in vain ends by this, every other by the message that completes it


def logged(transition: Transition) -> Transition:
    """rclpy swallows what a transition callback raises: log it, and return FAILURE instead of the ERROR it makes."""

    @functools.wraps(transition)
    def caught(node: AlpamayoNode, state: LifecycleState) -> TransitionCallbackReturn:
        try:
            return transition(node, state)
        except BaseException as error:  # SystemExit too: the state machine would stay in the transition for good
            node.failed(transition.__name__, error)
            return TransitionCallbackReturn.FAILURE

    return caught


class AlpamayoNode(LifecycleNodeMixin, Node):
    """See docs/node.md for the interface.

    Args:
        make_engine: replaces the engine that the settings ask for; it is warmed up here.
        argv: the command line that rclpy was initialised with.

    Raises:
        ConfigurationError: for parameters that can't be used.
    """

    def __init__(
        self, make_engine: Callable[[Settings], Engine] | None = None, argv: Sequence[str] = (), **options: Any
    ) -> None:
        Node.__init__(self, "alpamayo", **options)
        try:
            self._build(make_engine or engine_by_settings, argv)
        except BaseException:
            self.destroy_node()
            raise

    def _build(self, make_engine: Callable[[Settings], Engine], argv: Sequence[str]) -> None:
        name = self.get_fully_qualified_name()
        overrides = {name: parameter.value for name, parameter in self._parameter_overrides.items()}
        if not overrides:
            raise ConfigurationError(
                f"none was given for {name}: start with --ros-args --params-file RIG.yaml, a file with a section "
                f"/** or {name}; config/ holds one for several rigs"
            )
        overrides = with_last_values(overrides, given_parameters(argv, name))
        self._parameters_of_node = NodeParameters(self, overrides, self._check_settings, self._on_settings)
        check_autoware(self.settings.output)
        LifecycleNodeMixin.__init__(self, callback_group=MutuallyExclusiveCallbackGroup())
        self._make_engine = make_engine
        self._input_group = MutuallyExclusiveCallbackGroup()
        heartbeat_group = MutuallyExclusiveCallbackGroup()
        self._configured: Configured | None = None
        self._handler = RosLogHandler(self.get_logger())
        self._clock_watch = ClockWatch(self, self._on_clock_began, self._on_time_jump)
        child_frame = ChildFrame(self.settings.odometry)
        self._transforms = Transforms(self, self.settings, child_frame, self._input_group)
        self._reporter = Reporter(self, self._clock_watch, self._transforms)
        # ordinary publishers: they speak in every lifecycle state
        self._status = self.create_publisher(InferenceStatus, "~/output/status", OUTPUT_QOS)
        self._diagnostics = self.create_publisher(DiagnosticArray, "/diagnostics", 10)
        Services(self, lambda: self._configured, self._publish_nothing)
        steady = Clock(clock_type=ClockType.STEADY_TIME)
        self.create_timer(HEARTBEAT, self._on_heartbeat, callback_group=heartbeat_group, clock=steady)
        self.create_timer(POLL, self._on_poll, callback_group=self._input_group, clock=steady)
        logging.getLogger("alpamayo_ros").addHandler(self._handler)  # last: it would stay when a step fails

    @property
    def settings(self) -> Settings:
        """The settings in force."""
        return self._parameters_of_node.settings

    @property
    def state(self) -> str:
        """The lifecycle state's name."""
        return str(self._state_machine.current_state[1])

    def autostart(self) -> None:
        """Configure and activate, unless the parameter says otherwise. Not to be called from the executor."""
        if not self.settings.autostart:
            return
        if self.trigger_configure() == TransitionCallbackReturn.SUCCESS:
            self.trigger_activate()
        elif self.state == "unconfigured":
            again = f"ros2 lifecycle set {self.get_fully_qualified_name()} configure"
            self.get_logger().error(
                "the node is unconfigured and does nothing: correct what is said above and start it again, or, where "
                f"no parameter has to change, configure it again: {again}"
            )

    def close(self) -> None:
        """Leave whatever state it is in; the executor must have stopped."""
        if self.state in ("unconfigured", "inactive", "active"):
            self.trigger_shutdown()
        self._clock_watch.close()
        logging.getLogger("alpamayo_ros").removeHandler(self._handler)

    def destroy_node(self) -> None:
        """As Node does; and let go of the state machine, which would keep the DDS participant until it is collected."""
        super().destroy_node()
        vars(self).pop("_state_machine", None)

    def failed(self, transition: str, error: BaseException) -> None:
        """Say that a transition failed, and why."""
        self.get_logger().error(f"{transition} failed: {type(error).__name__}: {error}")
        self._reporter.failed(f"{transition} failed: {type(error).__name__}: {error}")

    @logged
    def on_configure(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Load and warm up the engine, and create the outputs."""
        settings, started = self.settings, time.monotonic()
        sinks = Sinks(self._publish, self._announce, self._tell, self._on_restart, self._on_overdue)
        made = configured(
            self, settings, self._make_engine, sinks, self._transforms, self._input_group, self._reporter.loading
        )
        try:
            info = made.engine.info
            self.get_logger().info(f"ready after {time.monotonic() - started:.1f} s: {info.describe()}")
            if not info.trained:
                self.get_logger().warning(f"{info.model} is not trained: its trajectories mean nothing")
            self._configured = made  # every later change is checked from here on
            check_limits(self.settings, info)  # they may have changed while it loaded
            result = super().on_configure(state)
        except BaseException:
            self._configured = None
            made.close()
            raise
        self._on_settings(self.settings)  # parameters that were set meanwhile
        return result

    @logged
    def on_activate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Publish and listen."""
        configured = self._require_configured()
        result = super().on_activate(state)
        try:
            configured.inputs.subscribe()
        except BaseException:
            configured.inputs.unsubscribe()
            super().on_deactivate(state)
            raise
        configured.drive.activate()
        return result

    @logged
    def on_deactivate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Stop listening and publishing; the engine stays warm."""
        self._deactivate(self._require_configured())
        return super().on_deactivate(state)

    @logged
    def on_cleanup(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Free the engine."""
        self._release()
        gc.collect()
        self._reporter.loading("not configured")
        return super().on_cleanup(state)

    @logged
    def on_shutdown(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Free everything, from whatever state."""
        if self._configured is not None and self._configured.drive.is_active:
            self._deactivate(self._configured)
        self._release()
        return super().on_shutdown(state)

    def _require_configured(self) -> Configured:
        if self._configured is None:
            raise RuntimeError("the node is not configured: cleanup failed before; shut it down and start it again")
        return self._configured

    def _deactivate(self, configured: Configured) -> None:
        configured.inputs.unsubscribe()
        configured.drive.deactivate()

    def _release(self) -> None:
        configured, self._configured = self._configured, None
        if configured is not None:
            configured.close()

    def now_ns(self) -> int:
        """The node's clock."""
        return int(self.get_clock().now().nanoseconds)

    def _publish(self, outcome: Outcome, frame_id: str) -> float:
        observation, configured = outcome.observation, self._configured
        if configured is None or outcome.prediction is None:
            return (self.now_ns() - observation.t0_ns) * 1e-9
        configured.outputs.publish(observation, outcome.prediction, self.settings.output, frame_id)
        age = (self.now_ns() - observation.t0_ns) * 1e-9
        configured.log.published(age)
        return age

    def _announce(self, skip: Skip, in_a_row: int) -> None:
        longest = self.settings.output.empty_after_skips
        if self._configured is not None:
            self._configured.recorder.on_skip(skip)
            self._configured.log.skipped(skip, has_run_dry=in_a_row >= longest)
        if in_a_row == longest:
            self._publish_nothing(skip.reason)

    def _on_overdue(self, skip: Skip) -> None:
        self.get_logger().error(f"the engine is at its tick for too long: {skip.describe()}")
        self._publish_nothing(skip.reason)
        self._status.publish(status_message(self._report()))

    def _publish_nothing(self, reason: SkipReason) -> None:
        if self._configured is not None:
            self._configured.outputs.publish_nothing(self.now_ns(), self._configured.drive.odometry_frame, reason.value)

    def _report(self) -> NodeReport:
        return self._reporter.report(self.settings, self.state, self._configured)

    def _tell(self, tick: TickReport) -> None:
        self._status.publish(status_message(replace(self._report(), tick=tick)))

    def _on_heartbeat(self) -> None:
        self._clock_watch.check()
        if self._configured is not None:
            self._configured.drive.heartbeat(self.now_ns(), self._clock_watch.stopped_for)
        self._reporter.look_at_topics(self._configured)
        report = self._report()
        self._status.publish(status_message(report))
        self._diagnostics.publish(diagnostics_message(report))

    def _on_poll(self) -> None:
        if self._configured is not None and self._configured.drive.is_active:
            self._configured.drive.poll()

    def _check_settings(self, settings: Settings) -> None:
        if self._configured is not None:
            check_limits(settings, self._configured.engine.info)

    def _on_settings(self, settings: Settings) -> None:
        if self._configured is not None:
            self._configured.drive.change_settings(settings)

    def _on_clock_began(self, now: float) -> None:
        self.get_logger().info(f"the clock began, at {now:.3f} s")
        if self._configured is not None:
            self._configured.drive.clock_began()

    def _on_time_jump(self, jump: float) -> None:
        self.get_logger().warning(f"the clock jumped by {jump:.3f} s: all inputs are forgotten")
        if self._configured is not None:
            self._configured.drive.clock_jumped()

    def _on_restart(self) -> None:
        if self._configured is not None:
            self._configured.outputs.clear_markers()


def main(argv: list[str] | None = None) -> int:
    """Run the node as a process; returns its exit code."""
    from alpamayo_ros.ros.process import run

    return run(argv)


if __name__ == "__main__":
    sys.exit(main())

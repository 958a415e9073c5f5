"""Gathers what the node knows about itself, in every lifecycle state."""

from __future__ import annotations

from dataclasses import replace

from rclpy.node import Node

from alpamayo_ros.core.settings import CameraSettings, Settings
from alpamayo_ros.core.types import Skip, SkipReason
from alpamayo_ros.engine.base import Engine, EngineHealth, SupervisedEngine
from alpamayo_ros.engine.device_memory import device_memory_bytes
from alpamayo_ros.ros.clock import ClockWatch
from alpamayo_ros.ros.configured import Configured
from alpamayo_ros.ros.intake import Intake
from alpamayo_ros.ros.memory_watch import MemoryWatch
from alpamayo_ros.ros.report import CameraReport, NodeReport, OdometryReport, TickReport
from alpamayo_ros.ros.topics import Publishers, look_at_publishers, subscriber_faults
from alpamayo_ros.ros.transforms import Transforms


class Reporter:
    """Makes NodeReports.

    Args:
        node: for the graph, the clock and the name.
        clock_watch: of the node's clock.
        transforms: of the odometry.
    """

    def __init__(self, node: Node, clock_watch: ClockWatch, transforms: Transforms) -> None:
        self.engine_state = "not configured"
        self.engine_failed = False
        self._node = node
        self._clock_watch = clock_watch
        self._memory_watch = MemoryWatch()
        self._transforms = transforms
        self._publishers: dict[str, Publishers] = {}  # by topic
        self._output_faults: tuple[str, ...] = ()

    def loading(self, what: str) -> None:
        """The engine isn't there yet: what it is doing."""
        self.engine_state, self.engine_failed = what, False

    def failed(self, why: str) -> None:
        """There is no engine, and why."""
        self.engine_state, self.engine_failed = why, True

    def look_at_topics(self, configured: Configured | None) -> None:
        """Look for wrong types and incompatible QoS; at 1 Hz, since it asks the whole graph."""
        if configured is None:
            self._publishers, self._output_faults = {}, ()
            return
        streams = (*configured.inputs.cameras.values(), configured.inputs.odometry)
        self._publishers = {each.endpoint.topic: look_at_publishers(self._node, each.endpoint) for each in streams}
        self._output_faults = subscriber_faults(self._node, configured.outputs.endpoints)

    def report(self, settings: Settings, lifecycle_state: str, configured: Configured | None) -> NodeReport:
        """The state of things now."""
        report = self._facts(settings, lifecycle_state, configured)
        return replace(report, memory_warning=self._memory_watch.check(report.gpu_memory_bytes))

    def _facts(self, settings: Settings, lifecycle_state: str, configured: Configured | None) -> NodeReport:
        now_ns = int(self._node.get_clock().now().nanoseconds)
        intake = configured.drive.intake() if configured else Intake()
        health = _health(configured.engine) if configured else EngineHealth(ready=False, state=self.engine_state)
        return NodeReport(
            name=self._node.get_fully_qualified_name(),
            now_ns=now_ns,
            lifecycle_state=lifecycle_state,
            engine=configured.engine.info if configured else None,
            engine_ready=health.ready,
            engine_state=health.state,
            engine_failed=self.engine_failed,
            engine_restarts=health.restarts,
            engine_pid=health.pid,
            sim_time=self._clock_watch.sim_time,
            clock_stopped_for=self._clock_watch.stopped_for,
            clock_jumps=self._clock_watch.jumps,
            rate_hz=settings.timing.rate_hz,
            max_input_age=settings.timing.max_input_age,
            max_odometry_age=settings.timing.max_odometry_age,
            max_result_age=settings.timing.max_result_age,
            epoch=intake.epoch,
            enabled=configured is None or configured.drive.is_enabled,
            gpu_memory_bytes=health.device_memory_bytes,
            navigation=intake.navigation,
            navigation_age=intake.navigation_age,
            cameras=tuple(self._camera(camera, configured, intake) for camera in settings.cameras),
            odometry=self._odometry(settings, configured, intake),
            tick=configured.drive.tick_report() if configured else self._no_tick(),
            output_faults=self._output_faults,
        )

    def _no_tick(self) -> TickReport:
        numbers = {SkipReason.ENGINE_NOT_READY.value: {"engine": self.engine_state}}
        return TickReport(skip=Skip(SkipReason.ENGINE_NOT_READY, None, numbers))

    def _camera(self, camera: CameraSettings, configured: Configured | None, intake: Intake) -> CameraReport:
        if configured is None:
            return CameraReport(camera.name, camera.index, camera.topic, camera.required)
        stream, state = configured.inputs.cameras[camera.name], intake.cameras[camera.name]
        publishers = self._publishers.get(stream.endpoint.topic, Publishers())
        return CameraReport(
            name=camera.name,
            index=camera.index,
            topic=stream.endpoint.topic,
            required=camera.required,
            stamp_ns=state.stamp_ns,
            offset=state.offset,
            receive_lag=state.receive_lag,
            age=state.age,
            rate=stream.rate.hz,
            received=state.counts.received,
            used=state.counts.used,
            dropped=state.counts.dropped,
            faults=publishers.faults,
            warnings=publishers.warnings,
        )

    def _odometry(self, settings: Settings, configured: Configured | None, intake: Intake) -> OdometryReport:
        if configured is None:
            return OdometryReport(settings.odometry.pose_topic)
        stream = configured.inputs.odometry
        publishers = self._publishers.get(stream.endpoint.topic, Publishers())
        return OdometryReport(
            topic=stream.endpoint.topic,
            age=intake.odometry_age,
            rate=stream.rate.hz,
            received=intake.odometry_received,
            dropped=intake.odometry_dropped,
            faults=publishers.faults,
            warnings=(*publishers.warnings, *self._transforms.warnings, *intake.warnings),
        )


def _health(engine: Engine) -> EngineHealth:
    if isinstance(engine, SupervisedEngine):
        return engine.health
    return EngineHealth(ready=True, state="ready", device_memory_bytes=device_memory_bytes(engine.info.device))

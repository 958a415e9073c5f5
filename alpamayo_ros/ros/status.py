"""The status message."""

from __future__ import annotations

import json

from alpamayo_ros.msg import CameraStatus, InferenceStatus
from alpamayo_ros.ros.convert import header_message, time_message
from alpamayo_ros.ros.report import CameraReport, NodeReport


def status_message(report: NodeReport) -> InferenceStatus:
    """A report as InferenceStatus."""
    tick, engine = report.tick, report.engine if report.engine_ready else None
    return InferenceStatus(
        header=header_message(tick.t0_ns or report.now_ns, ""),
        ok=tick.ok,
        skip_reason="" if tick.skip is None else tick.skip.reason.value,
        detail="" if tick.skip is None else json.dumps(dict(tick.skip.numbers), default=str),
        lifecycle_state=report.lifecycle_state,
        engine=report.engine_state if engine is None else f"{engine.engine} on {engine.device}: {engine.model}",
        trained=report.engine is not None and report.engine.trained,
        stages=list(tick.stages_ms),
        stage_ms=[float(ms) for ms in tick.stages_ms.values()],
        age_at_publication=tick.age_at_publication,
        effective_rate=tick.rate,
        navigation=report.navigation,
        navigation_age=report.navigation_age,
        cameras=[_camera(camera) for camera in report.cameras],
        odometry_received=report.odometry.received,
        odometry_dropped=sum(report.odometry.dropped.values()),
        odometry_age=report.odometry.age,
        ticks_published=tick.published,
        ticks_skipped=tick.skipped,
        ticks_dropped=tick.replaced,
        skip_reasons=list(tick.skip_counts),
        skip_counts=list(tick.skip_counts.values()),
        gpu_memory_bytes=report.gpu_memory_bytes,
        epoch=report.epoch,
    )


def _camera(camera: CameraReport) -> CameraStatus:
    return CameraStatus(
        name=camera.name,
        index=camera.index,
        stamp=time_message(camera.stamp_ns),
        offset=camera.offset,
        receive_lag=camera.receive_lag,
        rate=camera.rate,
        received=camera.received,
        used=camera.used,
        dropped=sum(camera.dropped.values()),
    )

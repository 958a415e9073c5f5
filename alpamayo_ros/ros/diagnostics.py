"""The node's state for /diagnostics: engine, each camera, odometry, clock, timing, outputs.

Ages are by the node's clock, so that they hold in simulated time too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus, KeyValue

from alpamayo_ros.core.types import SkipReason
from alpamayo_ros.ros.convert import header_message
from alpamayo_ros.ros.report import CameraReport, NodeReport
from alpamayo_ros.ros.tick_log import hint_of_age

OK, WARN, ERROR, STALE = (
    DiagnosticStatus.OK,
    DiagnosticStatus.WARN,
    DiagnosticStatus.ERROR,
    DiagnosticStatus.STALE,
)

NEARLY = 0.95  # of the rate that is asked for; the rest is what a window of some seconds leaves open


def diagnostics_message(report: NodeReport) -> DiagnosticArray:
    """A report as one DiagnosticArray."""
    statuses = [
        _engine(report),
        *(_camera(report, camera) for camera in report.cameras),
        _odometry(report),
        _clock(report),
        _timing(report),
        _outputs(report),
    ]
    for status in statuses:
        status.name = f"{report.name.lstrip('/')}: {status.name}"
        status.hardware_id = report.name
    return DiagnosticArray(header=header_message(report.now_ns, ""), status=statuses)


def _status(name: str, level: bytes, message: str, values: Mapping[str, object]) -> DiagnosticStatus:
    pairs = [KeyValue(key=key, value=_text(value)) for key, value in values.items()]
    return DiagnosticStatus(name=name, level=level, message=message, values=pairs)


def _text(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _old(age: float) -> str:
    hint = hint_of_age(age)
    return f"{age:.2f} s old; {hint}" if hint else f"{age:.2f} s old"


def _engine(report: NodeReport) -> DiagnosticStatus:
    info = report.engine
    values: dict[str, object] = {"lifecycle_state": report.lifecycle_state}
    if info is None:
        return _status("engine", ERROR if report.engine_failed else WARN, report.engine_state, values)
    values |= {
        "engine": info.engine,
        "model": info.model,
        "device": info.device,
        "dtype": info.dtype,
        "quantization": info.quantization,
        "parameters": info.parameters,
        "trained": info.trained,
        "checkpoint_hash": info.checkpoint_hash,
        "gpu_memory_bytes": report.gpu_memory_bytes,
        "busy_for_s": report.tick.busy_for,
        "restarts": report.engine_restarts,
        "process_id": report.engine_pid,
    }
    if not report.engine_ready:
        return _status("engine", ERROR, report.engine_state, values)
    skip = report.tick.skip
    if skip is not None and skip.reason in (
        SkipReason.ENGINE_ERROR,
        SkipReason.BAD_OUTPUT,
        SkipReason.DEADLINE_MISSED,
        SkipReason.RESULT_TOO_OLD,
    ):
        return _status("engine", ERROR, skip.describe(), values)
    if report.tick.busy_for > report.max_result_age:
        return _status("engine", ERROR, f"at one tick or question for {report.tick.busy_for:.1f} s", values)
    if report.memory_warning:
        return _status("engine", WARN, report.memory_warning, values)
    if not info.trained:
        return _status("engine", WARN, "ready, but untrained: its trajectories mean nothing", values)
    return _status("engine", OK, report.engine_state, values)


def _camera(report: NodeReport, camera: CameraReport) -> DiagnosticStatus:
    values: dict[str, object] = {
        "topic": camera.topic,
        "index": camera.index,
        "required": camera.required,
        "rate_hz": camera.rate,
        "age_s": camera.age,
        "receive_lag_s": camera.receive_lag,
        "offset_to_anchor_s": camera.offset,
        "received": camera.received,
        "used": camera.used,
        **{f"dropped_{reason}": count for reason, count in camera.dropped.items()},
    }
    name, bad = f"camera {camera.name}", ERROR if camera.required else WARN
    if camera.faults:
        return _status(name, bad, "; ".join(camera.faults), values)
    if report.lifecycle_state != "active":
        return _status(name, OK, "not listening: the node is not active", values)
    if not camera.received:
        return _status(name, bad, f"{SkipReason.WAITING_FOR_CAMERA}: nothing on {camera.topic} yet", values)
    if camera.age > report.max_input_age:
        return _status(name, bad, f"{SkipReason.CAMERA_STALE}: newest frame is {_old(camera.age)}", values)
    if camera.warnings:
        return _status(name, WARN, "; ".join(camera.warnings), values)
    return _status(name, OK, "ok", values)


def _odometry(report: NodeReport) -> DiagnosticStatus:
    odometry, warnings = report.odometry, report.odometry.warnings
    values: dict[str, object] = {
        "topic": odometry.topic,
        "rate_hz": odometry.rate,
        "age_s": odometry.age,
        "received": odometry.received,
        **{f"dropped_{reason}": count for reason, count in odometry.dropped.items()},
    }
    if odometry.faults:
        return _status("odometry", ERROR, "; ".join(odometry.faults), values)
    if report.lifecycle_state != "active":
        return _status("odometry", OK, "not listening: the node is not active", values)
    if math.isnan(odometry.age):
        what = f"nothing on {odometry.topic} yet" if not odometry.received else "no message could be used"
        return _status("odometry", ERROR, "; ".join((f"{SkipReason.WAITING_FOR_ODOMETRY}: {what}", *warnings)), values)
    if odometry.age > report.max_odometry_age:
        text = f"{SkipReason.ODOMETRY_STALE}: newest pose is {_old(odometry.age)}"
        return _status("odometry", ERROR, "; ".join((text, *warnings)), values)
    if warnings:
        return _status("odometry", WARN, "; ".join(warnings), values)
    return _status("odometry", OK, "ok", values)


def _clock(report: NodeReport) -> DiagnosticStatus:
    values: dict[str, object] = {
        "sim_time": report.sim_time,
        "now_s": f"{report.now_ns * 1e-9:.3f}",
        "jumps": report.clock_jumps,
    }
    if report.clock_stopped_for:
        text = f"{SkipReason.CLOCK_STOPPED}: use_sim_time is true, and /clock has not moved for "
        return _status("clock", ERROR, f"{text}{report.clock_stopped_for:.1f} s", values)
    return _status("clock", OK, "simulated time" if report.sim_time else "system time", values)


def _timing(report: NodeReport) -> DiagnosticStatus:
    tick = report.tick
    values: dict[str, object] = {
        "effective_rate_hz": tick.rate,
        "age_at_publication_s": tick.age_at_publication,
        **{f"{stage}_ms": ms for stage, ms in tick.stages_ms.items()},
        "published": tick.published,
        "skipped": tick.skipped,
        "replaced": tick.replaced,
        "replaced_during_questions": tick.lost_to_questions,
        **{f"skipped_{reason}": count for reason, count in tick.skip_counts.items()},
    }
    if tick.skip is not None:
        return _status("timing", WARN, tick.skip.describe(), values)
    if tick.engine_ms > 1e3 / report.rate_hz and tick.rate < NEARLY * report.rate_hz:
        text = f"{tick.rate:.1f} of {report.rate_hz:g} ticks a second: the engine takes {tick.engine_ms:.0f} ms for one"
        return _status("timing", WARN, f"{text}, and the others are dropped", values)
    return _status("timing", OK, "ok" if tick.ok else "no tick yet", values)


def _outputs(report: NodeReport) -> DiagnosticStatus:
    if report.output_faults:
        return _status("outputs", WARN, "; ".join(report.output_faults), {})
    return _status("outputs", OK, "ok", {})

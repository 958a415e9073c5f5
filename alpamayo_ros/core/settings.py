"""Everything that can be configured, parsed from ROS's flat dotted names.

The node and the offline tools read the same parameter files through `parse_settings`; nothing here knows ROS or YAML.
Durations are in seconds.
"""

from __future__ import annotations

import difflib
import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from alpamayo_ros.core.builder_config import BuilderConfig, CameraConfig
from alpamayo_ros.core.mounting import Mounting
from alpamayo_ros.core.navigation import text_fault
from alpamayo_ros.core.parameter import Parameter, declare, declared, flatten
from alpamayo_ros.core.parameter_groups import (
    CAMERA_INDICES,
    AskSettings,
    CameraSettings,
    EngineSettings,
    OdometrySettings,
    OutputSettings,
    OverlaySettings,
    RecorderSettings,
    SamplingSettings,
    TimingSettings,
)
from alpamayo_ros.core.types import ConfigurationError, Observation, SamplingOptions

__all__ = [
    "AskSettings",
    "CameraSettings",
    "EngineSettings",
    "OdometrySettings",
    "OutputSettings",
    "OverlaySettings",
    "RecorderSettings",
    "SamplingSettings",
    "Settings",
    "TimingSettings",
    "flatten",
    "parameters",
    "parse_settings",
    "tick_seed",
]

# Parameters that every ROS node has; they are none of ours and never refused.
ROS_PARAMETERS = ("use_sim_time", "start_type_description_service", "qos_overrides")
MAX_CAMERAS = 7
CAMERA_NAME = re.compile("[A-Za-z][A-Za-z0-9_]*")


@dataclass(frozen=True)
class Settings:
    """All of it."""

    cameras: tuple[CameraSettings, ...]  # ordered by index
    anchor: str = declare("", "The camera whose stamps lead; front_wide, or else the required one of lowest index.")
    autostart: bool = declare(True, "Configure and activate at start; false under a lifecycle manager.")
    odometry: OdometrySettings = field(default_factory=OdometrySettings)
    timing: TimingSettings = field(default_factory=TimingSettings)
    sampling: SamplingSettings = field(default_factory=SamplingSettings)
    engine: EngineSettings = field(default_factory=EngineSettings)
    ask: AskSettings = field(default_factory=AskSettings)
    output: OutputSettings = field(default_factory=OutputSettings)
    overlay: OverlaySettings = field(default_factory=OverlaySettings)
    recorder: RecorderSettings = field(default_factory=RecorderSettings)

    def camera(self, name: str) -> CameraSettings:
        """The camera of that name; KeyError when there is none."""
        return {camera.name: camera for camera in self.cameras}[name]

    def flat(self) -> dict[str, Any]:
        """Every parameter by its ROS name; `parse_settings` gives the same settings back."""
        values = {name: getattr(self, field) for name, (field, _) in declared(Settings, "").items()}
        for camera in self.cameras:
            prefix = f"cameras.{camera.name}"
            values |= {name: getattr(camera, field) for name, (field, _) in declared(CameraSettings, prefix).items()}
        for group, (_, prefix) in GROUPS.items():
            held = getattr(self, group)
            values |= {name: getattr(held, field) for name, (field, _) in declared(type(held), prefix).items()}
        return values

    def with_values(self, changes: Mapping[str, Any]) -> Settings:
        """These settings with some parameters changed. Raises ConfigurationError as `parse_settings` does."""
        return parse_settings({**self.flat(), **changes})

    @property
    def mounting(self) -> Mounting:
        """Where the vehicle's frame is in the odometry's child frame, by `odometry.child_to_base`."""
        return Mounting.from_xyz_rpy(self.odometry.child_to_base)

    def builder_config(self) -> BuilderConfig:
        """What the observation builder needs of these settings."""
        timing = self.timing
        return BuilderConfig(
            cameras=tuple(
                CameraConfig(name=c.name, index=c.index, required=c.required, time_offset=c.time_offset)
                for c in self.cameras
            ),
            anchor=self.anchor,
            rate_hz=timing.rate_hz,
            sync_tolerance=timing.sync_tolerance,
            wait_timeout=timing.wait_timeout,
            future_tolerance=timing.future_tolerance,
            max_input_age=timing.max_input_age,
            max_odometry_age=timing.max_odometry_age,
            max_odometry_gap=timing.max_odometry_gap,
            max_odometry_jump=timing.max_odometry_jump,
            odometry_time_offset=self.odometry.time_offset,
            standstill_padding=timing.standstill_padding,
            navigation_timeout=timing.navigation_timeout,
        )

    def sampling_options(self, seed: int) -> SamplingOptions:
        """The engine's options for a tick; `seed` as `tick_seed(settings.sampling.seed, t0_ns)` gives it."""
        sampling = self.sampling
        return SamplingOptions(
            num_samples=sampling.num_samples,
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            seed=seed,
            max_reasoning_tokens=sampling.max_reasoning_tokens,
            deadline_ms=sampling.deadline_ms or None,
            reasoning=sampling.reasoning,
            given_reasoning=sampling.given_reasoning,
            flow_steps=sampling.flow_steps or None,
            noise_temperature=sampling.noise_temperature,
            guidance_weight=None if sampling.guidance_weight == 1.0 else sampling.guidance_weight,
        )

    def tick_options(self, observation: Observation) -> SamplingOptions:
        """The engine's options for this observation: with its seed, and without guidance where there is no text."""
        options = self.sampling_options(tick_seed(self.sampling.seed, observation.t0_ns))
        return options if observation.navigation is not None else replace(options, guidance_weight=None)


GROUPS: Mapping[str, tuple[type, str]] = {
    "odometry": (OdometrySettings, "odometry"),
    "timing": (TimingSettings, ""),
    "sampling": (SamplingSettings, "sampling"),
    "engine": (EngineSettings, "engine"),
    "ask": (AskSettings, "ask"),
    "output": (OutputSettings, "output"),
    "overlay": (OverlaySettings, "overlay"),
    "recorder": (RecorderSettings, "recorder"),
}


def tick_seed(base_seed: int, t0_ns: int) -> int:
    """The seed of the tick at t0, in 0 .. 2^63-1: the same live and offline, and unrelated from tick to tick."""
    digest = hashlib.blake2b(f"{base_seed}:{t0_ns}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


def parameters(camera_names: Iterable[str]) -> dict[str, Parameter]:
    """Every parameter of a rig with these cameras, by its ROS name."""
    found = {name: parameter for name, (_, parameter) in declared(Settings, "").items()}
    for camera in camera_names:
        found |= {name: p for name, (_, p) in declared(CameraSettings, f"cameras.{camera}").items()}
    for group, prefix in GROUPS.values():
        found |= {name: parameter for name, (_, parameter) in declared(group, prefix).items()}
    return found


def parse_settings(flat: Mapping[str, Any]) -> Settings:
    """Settings from flat dotted names, as ROS parameters have them.

    Integers are taken where numbers are wanted.

    Raises:
        ConfigurationError: with every problem found, one a line: the parameter, its value, and what is allowed.
    """
    given = {name: value for name, value in flat.items() if name.split(".")[0] not in ROS_PARAMETERS}
    names = sorted({name.split(".")[1] for name in given if name.startswith("cameras.") and name.count(".") == 2})
    known = parameters(names)
    problems = [_unknown(name, known) for name in given if name not in known]
    values: dict[str, Any] = {}
    for name, parameter in known.items():
        try:
            if name in given:
                values[name] = parameter.check(given[name])
            elif parameter.needed and not parameter.default:
                problems.append(f"{name} is missing: {parameter.description}")
        except ValueError as error:
            problems.append(f"{name} is {given[name]!r}: it {error}")
    settings = Settings(cameras=_cameras(names, values), **_fields(Settings, "", values), **_groups(values))
    if not settings.anchor:
        settings = replace(settings, anchor=_default_anchor(settings.cameras))
    problems += _contradictions(settings)
    if problems:
        raise ConfigurationError("\n".join(problems))
    return settings


def _fields(group: type, prefix: str, values: Mapping[str, Any]) -> dict[str, Any]:
    return {field: values[name] for name, (field, _) in declared(group, prefix).items() if name in values}


def _groups(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: group(**_fields(group, prefix, values)) for name, (group, prefix) in GROUPS.items()}


def _cameras(names: Iterable[str], values: Mapping[str, Any]) -> tuple[CameraSettings, ...]:
    cameras = []
    for name in names:
        given = _fields(CameraSettings, f"cameras.{name}", values)
        cameras.append(CameraSettings(name=name, **{"index": CAMERA_INDICES.get(name, -1), **given}))
    return tuple(sorted(cameras, key=lambda camera: (camera.index, camera.name)))


def _default_anchor(cameras: tuple[CameraSettings, ...]) -> str:
    required = [camera.name for camera in cameras if camera.required]
    return "front_wide" if "front_wide" in required else next(iter(required), "")


def _unknown(name: str, known: Mapping[str, Parameter]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    if name.startswith("cameras.") and name.count(".") > 2:
        return f"{name} is no parameter of this node: expected cameras.<name>.<parameter>, without dots in the name"
    return f"{name} is no parameter of this node" + (f"; did you mean {close[0]}?" if close else "")


def _contradictions(settings: Settings) -> list[str]:
    """What is wrong between parameters that are right one by one."""
    cameras, problems = settings.cameras, []
    if not cameras:
        problems.append("cameras is empty: give at least cameras.<name>.topic; config/ holds a file for several rigs")
    if len(cameras) > MAX_CAMERAS:
        problems.append(f"cameras has {len(cameras)} entries: the model takes at most {MAX_CAMERAS}")
    for attribute, what in (("index", "index of the model"), ("topic", "topic")):
        seen: dict[Any, str] = {}
        for camera in cameras:
            value = getattr(camera, attribute)
            if value in seen and value not in (-1, ""):
                problems.append(
                    f"cameras.{camera.name}.{attribute} is {value!r}: cameras.{seen[value]} has the same {what}; "
                    "each needs its own"
                )
            seen[value] = camera.name
    for camera in cameras:
        if not CAMERA_NAME.fullmatch(camera.name):
            problems.append(
                f"cameras.{camera.name} is called {camera.name!r}: a name has letters, digits and underscores, "
                "and begins with a letter"
            )
        if camera.index == -1:
            problems.append(
                f"cameras.{camera.name}.index is missing: 0 to 6, or call the camera one of {', '.join(CAMERA_INDICES)}"
            )
    required = [camera.name for camera in cameras if camera.required]
    if cameras and settings.anchor not in required:
        problems.append(
            f"anchor is {settings.anchor!r}: it must be a required camera, one of {', '.join(required) or 'none'}"
        )
    if settings.odometry.source == "tf" and settings.output.publish_tf:
        problems.append("publish_tf is True: with odometry.source tf somebody else publishes that transform")
    if settings.odometry.source == "tf" and any(settings.odometry.child_to_base):
        problems.append(
            f"odometry.child_to_base is {list(settings.odometry.child_to_base)}: with odometry.source tf the "
            "transforms lead to odometry.base_frame itself; leave it all 0"
        )
    fault = text_fault(settings.sampling.given_reasoning)
    if fault is not None:
        problems.append(f"sampling.given_reasoning can't be used: {fault}")
    if settings.sampling.reasoning == "given" and not settings.sampling.given_reasoning:
        problems.append("sampling.given_reasoning is '': sampling.reasoning given needs a text")
    if settings.engine.process == "in_process" and settings.engine.python:
        problems.append(
            f"engine.python is {settings.engine.python!r}: engine.process in_process has no interpreter of its own; "
            "let it be auto or subprocess"
        )
    return problems

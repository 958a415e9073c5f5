"""Everything that can be configured, as one frozen dataclass per group, parsed from ROS's flat dotted names.

The node and the offline tools read the same parameter files through `parse_settings`; nothing here knows ROS or YAML.
Durations are in seconds.
"""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from alpamayo_ros.core.builder_config import BuilderConfig, CameraConfig
from alpamayo_ros.core.mounting import Mounting
from alpamayo_ros.core.parameter import Parameter, declare, declared, flatten
from alpamayo_ros.core.types import ConfigurationError, SamplingOptions

__all__ = ["Settings", "flatten", "parse_settings", "tick_seed"]

# The model's cameras: a camera called by one of these names needs no index.
CAMERA_INDICES: Mapping[str, int] = {
    "cross_left": 0,
    "front_wide": 1,
    "cross_right": 2,
    "rear_left": 3,
    "rear_tele": 4,
    "rear_right": 5,
    "front_tele": 6,
}
# Parameters that every ROS node has; they are none of ours and never refused.
ROS_PARAMETERS = ("use_sim_time", "start_type_description_service", "qos_overrides")
RELIABILITY = ("best_effort", "reliable")
MAX_CAMERAS = 7


@dataclass(frozen=True)
class CameraSettings:
    """One camera: `cameras.<name>.*`."""

    name: str
    topic: str = declare("", "Topic of its images; relative names resolve in the node's namespace.", needed=True)
    transport: str = declare(
        "compressed",
        "raw: sensor_msgs/Image; compressed: sensor_msgs/CompressedImage.",
        choices=("raw", "compressed"),
    )
    index: int = declare(
        -1,
        "The model's camera index: 0 cross_left, 1 front_wide, 2 cross_right, 3 rear_left, 4 rear_tele, 5 rear_right, "
        "6 front_tele. Known from the name if that is one of these.",
        low=0,
        high=6,
    )
    required: bool = declare(True, "false: left out of a tick when it is missing.")
    time_offset: float = declare(0.0, "Added to its stamps, s.", low=-10, high=10)
    reliability: str = declare("best_effort", "QoS of its subscription.", choices=RELIABILITY)
    depth: int = declare(10, "QoS history depth of its subscription.", low=1, high=1000)


@dataclass(frozen=True)
class OdometrySettings:
    """`odometry.*`."""

    topic: str = declare("~/input/odometry", "Topic of nav_msgs/Odometry, 10 Hz or more.", needed=True)
    base_frame: str = declare("base_link", "The vehicle's frame: rear axle, on the ground.", needed=True)
    child_to_base: tuple[float, ...] = declare(
        (0.0, 0.0, 0.0, 0.0, 0.0, 0.0),
        "Pose of base_frame in the odometry's child frame: x, y, z in m, roll, pitch, yaw in rad.",
        length=6,
    )
    time_offset: float = declare(0.0, "Added to its stamps, s.", low=-10, high=10)
    reliability: str = declare("best_effort", "QoS of its subscription.", choices=RELIABILITY)
    depth: int = declare(200, "QoS history depth of its subscription.", low=1, high=10000)


@dataclass(frozen=True)
class TimingSettings:
    """When a tick runs and which inputs it takes. These parameters have no prefix."""

    rate_hz: float = declare(10.0, "At most this many ticks a second.", low=0.1, high=10, dynamic=True)
    sync_tolerance: float = declare(0.05, "How far a camera's frame may be from the anchor's, s.", low=0.001, high=0.1)
    wait_timeout: float = declare(0.15, "A tick still incomplete after this is skipped, s.", low=0.01, high=2)
    future_tolerance: float = declare(0.1, "Frames further ahead of the clock are refused, s.", low=0, high=10)
    max_input_age: float = declare(0.5, "Frames older than this when a tick starts are stale, s.", low=0.05, high=60)
    max_odometry_age: float = declare(0.4, "The same for odometry, s.", low=0.05, high=60)
    max_odometry_gap: float = declare(0.3, "Poses further apart are not interpolated, s.", low=0.02, high=1.5)
    max_odometry_jump: float = declare(
        1.0, "A pose further from what the speed explains is a jump: older ones are forgotten, m.", low=0.01, high=1000
    )
    standstill_padding: bool = declare(True, "At standstill the first pose stands for missing older ones.")
    navigation_timeout: float = declare(
        30.0, "A navigation text is forgotten after this, s; 0: never.", low=0, high=86400
    )
    max_result_age: float = declare(
        1.0, "A result older than this when it is ready is not published, s.", low=0.05, high=60, dynamic=True
    )


@dataclass(frozen=True)
class SamplingSettings:
    """`sampling.*`: how a prediction is drawn. All can change while running."""

    num_samples: int = declare(6, "Trajectories per tick (K).", low=1, high=64, dynamic=True)
    temperature: float = declare(0.6, "Of the reasoning; 0 is greedy.", low=0, high=5, dynamic=True)
    top_p: float = declare(0.98, "Nucleus of the reasoning.", low=0.01, high=1, dynamic=True)
    seed: int = declare(0, "With t0 it gives each tick's seed.", low=0, high=2**31 - 1, dynamic=True)
    max_reasoning_tokens: int = declare(
        64, "At this many tokens the reasoning is cut, and the path follows.", low=0, high=4096, dynamic=True
    )
    deadline_ms: float = declare(
        0.0,
        "After this time the reasoning is cut, and the path follows, ms; 0: no limit.",
        low=0,
        high=60000,
        dynamic=True,
    )
    reasoning: str = declare(
        "shared",
        "shared: one text for all samples; independent: one each; off: none; given: given_reasoning.",
        choices=("shared", "independent", "off", "given"),
        dynamic=True,
    )
    given_reasoning: str = declare("", "The text, with reasoning given.", dynamic=True)
    flow_steps: int = declare(0, "Euler steps of the expert; 0: the checkpoint's own.", low=0, high=200, dynamic=True)
    noise_temperature: float = declare(1.0, "Scale of the expert's start noise.", low=0, high=5, dynamic=True)
    guidance_weight: float = declare(1.0, "Navigation guidance; 1: none.", low=0, high=20, dynamic=True)


@dataclass(frozen=True)
class EngineSettings:
    """`engine.*`."""

    kind: str = declare(
        "transformers",
        "transformers: the reference, any device; vllm: production; null: a straight path without a model, for tests.",
        choices=("transformers", "vllm", "null"),
    )
    checkpoint: str = declare("", "Folder of the checkpoint.")
    base_model: str = declare("", "Folder of the backbone's tokenizer, where the checkpoint names only its origin.")
    device: str = declare("auto", "auto, cpu, cuda or cuda:N.", needed=True)
    dtype: str = declare("auto", "Of the weights.", choices=("auto", "float32", "bfloat16", "float16"))
    deadline: float = declare(
        0.0, "A tick that takes longer is dropped as deadline_missed, s; 0: no limit.", low=0, high=600, dynamic=True
    )


@dataclass(frozen=True)
class OutputSettings:
    """What is published, and how."""

    selection: str = declare(
        "medoid",
        "The published sample: medoid: smallest mean distance to the others; first; mean: of the actions, integrated.",
        choices=("medoid", "first", "mean"),
        dynamic=True,
        name="selection",
    )
    frame: str = declare(
        "odom",
        "odom: in the odometry's frame, by the pose at t0; base_link: in the vehicle's frame at t0.",
        choices=("odom", "base_link"),
        name="output_frame",
    )
    publish_tf: bool = declare(False, "Publish odom -> base_link from the odometry.", name="publish_tf")
    empty_after_skips: int = declare(
        5, "After this many skips in a row one empty Trajectory with the reason is sent.", low=1, high=1000
    )
    valid_for: float = declare(2.0, "A trajectory's valid_until is t0 plus this, s.", low=0.1, high=6.4)


@dataclass(frozen=True)
class Settings:
    """All of it."""

    cameras: tuple[CameraSettings, ...]  # ordered by index
    anchor: str = declare("", "The camera whose stamps lead; front_wide, or else the required one of lowest index.")
    autostart: bool = declare(True, "Configure and activate at start; false under a lifecycle manager.")
    odometry: OdometrySettings = OdometrySettings()
    timing: TimingSettings = TimingSettings()
    sampling: SamplingSettings = SamplingSettings()
    engine: EngineSettings = EngineSettings()
    output: OutputSettings = OutputSettings()

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


GROUPS: Mapping[str, tuple[type, str]] = {
    "odometry": (OdometrySettings, "odometry"),
    "timing": (TimingSettings, ""),
    "sampling": (SamplingSettings, "sampling"),
    "engine": (EngineSettings, "engine"),
    "output": (OutputSettings, "output"),
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
    return f"{name} is no parameter of this node" + (f"; did you mean {close[0]}?" if close else "")


def _contradictions(settings: Settings) -> list[str]:
    """What is wrong between parameters that are right one by one."""
    cameras, problems = settings.cameras, []
    if not cameras:
        problems.append("cameras is empty: give at least cameras.<name>.topic; config/ holds a file for several rigs")
    if len(cameras) > MAX_CAMERAS:
        problems.append(f"cameras has {len(cameras)} entries: the model takes at most {MAX_CAMERAS}")
    for field, what in (("index", "the model's index"), ("topic", "topic")):
        seen: dict[Any, str] = {}
        for camera in cameras:
            value = getattr(camera, field)
            if value in seen and value not in (-1, ""):
                problems.append(
                    f"cameras.{camera.name}.{field} is {value!r}: cameras.{seen[value]} has the same {what}; "
                    "each needs its own"
                )
            seen[value] = camera.name
    for camera in cameras:
        if camera.index == -1:
            problems.append(
                f"cameras.{camera.name}.index is missing: 0 to 6, or call the camera one of {', '.join(CAMERA_INDICES)}"
            )
    required = [camera.name for camera in cameras if camera.required]
    if cameras and settings.anchor not in required:
        problems.append(
            f"anchor is {settings.anchor!r}: it must be a required camera, one of {', '.join(required) or 'none'}"
        )
    if settings.sampling.reasoning == "given" and not settings.sampling.given_reasoning:
        problems.append("sampling.given_reasoning is '': sampling.reasoning given needs a text")
    return problems

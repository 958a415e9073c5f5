"""The parameters, one frozen dataclass per group. Durations are in seconds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from alpamayo_ros.core.parameter import declare

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
RELIABILITY = ("best_effort", "reliable")
TF_TOPIC = "/tf"


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

    source: str = declare(
        "topic",
        "Where the poses come from: topic: odometry.topic; tf: /tf, for vehicles without odometry.",
        choices=("topic", "tf"),
    )
    topic: str = declare("~/input/odometry", "Topic of nav_msgs/Odometry, 10 Hz or more.", needed=True)
    tf_parent: str = declare("odom", "With source tf: the frame that base_frame's poses are in.", needed=True)
    base_frame: str = declare("base_link", "The vehicle's frame: rear axle, on the ground.", needed=True)
    child_to_base: tuple[float, ...] = declare(
        (0.0, 0.0, 0.0, 0.0, 0.0, 0.0),
        "Pose of base_frame in the odometry's child frame: x, y, z in m, roll, pitch, yaw in rad.",
        length=6,
        low=-1000,
        high=1000,
    )
    time_offset: float = declare(0.0, "Added to its stamps, s.", low=-10, high=10)
    reliability: str = declare("best_effort", "QoS of its subscription.", choices=RELIABILITY)
    depth: int = declare(200, "QoS history depth of its subscription.", low=1, high=10000)

    @property
    def pose_topic(self) -> str:
        """Whose messages give poses."""
        return TF_TOPIC if self.source == "tf" else self.topic


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
        1.0,
        "A pose further than this from where its speed leads is a jump: older ones are forgotten, m.",
        low=0.01,
        high=1000,
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
        "So long after its first token the reasoning is cut, and the path follows, ms; 0: no limit.",
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
        "transformers: the reference, any device; native: the fastest on one GPU; vllm: on several; null: no model.",
        choices=("transformers", "native", "vllm", "null"),
    )
    checkpoint: str = declare("", "Folder of the checkpoint; mini: the one that comes along.")
    base_model: str = declare("", "Folder of the backbone's tokenizer, where the checkpoint names only its origin.")
    device: str = declare("auto", "auto, cpu, cuda or cuda:N.", needed=True)
    dtype: str = declare("auto", "Of the weights.", choices=("auto", "float32", "bfloat16", "float16"))
    quantization: str = declare(
        "none",
        "fp8: the backbone's layers in FP8: faster, less memory, and approximate; fp8_expert: the expert's too; native "
        "alone.",
        choices=("none", "fp8", "fp8_expert"),
    )
    deadline: float = declare(
        0.0, "A tick that takes longer is dropped as deadline_missed, s; 0: no limit.", low=0, high=600, dynamic=True
    )
    kv_cache_memory: float = declare(
        0.0, "GiB of the KV cache (native, vllm) on each device; 0: what is enough for the rig.", low=0, high=1024
    )
    jpeg_decoder: str = declare(
        "opencv",
        "opencv: on the CPU, the same everywhere; nvjpeg: on the GPU, with other roundings.",
        choices=("opencv", "nvjpeg"),
    )
    tensor_parallel_size: int = declare(1, "Devices that share the model; vllm alone.", low=1, high=8)
    process: str = declare(
        "auto",
        "in_process: in the node's process; subprocess: in one of its own; auto: in its own for vllm, or with python.",
        choices=("auto", "in_process", "subprocess"),
    )
    python: str = declare("", "Interpreter of the engine's own process; empty: the node's.")
    hang_timeout: float = declare(
        60.0,
        "An engine process that takes longer for a tick is ended and started anew, s; 0: never.",
        low=0,
        high=3600,
    )


@dataclass(frozen=True)
class AskSettings:
    """`ask.*`: questions to the model."""

    while_moving: bool = declare(
        False, "true: ~/ask is answered while the vehicle moves too, at the cost of ticks.", dynamic=True
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
    autoware_trajectory: bool = declare(
        False, "Publish autoware_planning_msgs/Trajectory too, where that package is installed."
    )
    valid_for: float = declare(2.0, "A trajectory's valid_until is t0 plus this, s.", low=0.1, high=6.4)


@dataclass(frozen=True)
class OverlaySettings:
    """`overlay.*`: the anchor camera's picture with the paths drawn on it, and the calibration that this needs."""

    publish: bool = declare(False, "Publish ~/output/overlay/compressed while somebody listens.")
    width: int = declare(960, "Of its pictures, pixels; smaller ones are not enlarged.", low=160, high=3840)
    camera_info: str = declare(
        "", "Topic of the anchor camera's CameraInfo; empty: camera_info beside its image topic."
    )
    rectified: bool = declare(False, "The images are rectified: CameraInfo's P counts, and no distortion.")
    camera_pose: tuple[float, ...] = declare(
        (0.0, 0.0, 0.0, 0.0, 0.0, 0.0),
        "Pose of the camera (x ahead, y left, z up) in base_frame: x, y, z in m, roll, pitch, yaw in rad; zeros: from "
        "/tf_static, by the frame_id of its CameraInfo.",
        length=6,
    )
    intrinsics: tuple[float, ...] = declare(
        (0.0, 0.0, 0.0, 0.0, 0.0, 0.0),
        "Width, height, fx, fy, cx, cy in pixels; zeros: from CameraInfo.",
        length=6,
    )
    distortion_model: str = declare(
        "plumb_bob", "With intrinsics.", choices=("plumb_bob", "rational_polynomial", "equidistant")
    )
    distortion: tuple[float, ...] = declare(
        (0.0,) * 8, "With intrinsics: the coefficients in CameraInfo's order, then zeros.", length=8
    )


@dataclass(frozen=True)
class RecorderSettings:
    """`recorder.*`: the last ticks, kept to be written to a file when one fails, or when asked for."""

    ticks: int = declare(0, "Keep so many ticks with their images; 0: none.", low=0, high=1000)
    memory_mb: float = declare(256.0, "Keep fewer when their images need more memory than this, MB.", low=1, high=65536)
    folder: str = declare("~/.ros/alpamayo_ticks", "Where files of ticks go.", needed=True)
    max_files: int = declare(
        20, "While the folder holds so many of them, only ~/save_ticks writes another.", low=0, high=100000
    )

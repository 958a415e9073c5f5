"""All that a rig sends: its cameras and its odometry, and the books of both."""

from __future__ import annotations

from collections.abc import Mapping

from alpamayo_ros.core.accounting import StreamCounts
from alpamayo_ros.core.builder_config import BuilderConfig
from alpamayo_ros.core.camera import CameraInput, CameraState
from alpamayo_ros.core.ego import EgoHistory
from alpamayo_ros.core.odometry import OdometryInput
from alpamayo_ros.core.types import STEP_NS, ConfigurationError, Frame


class RigInputs:
    """Times in ns of the node's clock."""

    def __init__(self, config: BuilderConfig) -> None:
        self.cameras = {camera.name: CameraInput(camera, config) for camera in config.cameras}
        self.anchor = self.cameras[config.anchor]
        self.odometry = OdometryInput(config)

    def camera(self, name: str) -> CameraInput:
        """The camera of that name.

        Raises:
            ConfigurationError: there is none.
        """
        try:
            return self.cameras[name]
        except KeyError:
            known = ", ".join(self.cameras)
            raise ConfigurationError(f"camera {name!r} is not configured: it must be one of {known}") from None

    def use(self, frames: Mapping[int, tuple[Frame, ...]], history: EgoHistory, t0_ns: int) -> None:
        """These frames, by camera index, and this history are the observation at t0."""
        for camera in self.cameras.values():
            camera.use(frames.get(camera.config.index, ()), t0_ns)
        self.odometry.use(history)

    def flush(self, reason: str) -> None:
        """Forget all; what was never used counts as dropped for this reason."""
        for camera in self.cameras.values():
            camera.flush(reason)
        self.odometry.flush(reason)

    def forget_frames_before(self, oldest_ns: int) -> None:
        """The lattice begins there."""
        for camera in self.cameras.values():
            camera.buffer.forget_before(oldest_ns)

    def forget_choices(self, stamp_ns: int) -> None:
        """The lattice has changed from about this stamp on."""
        for camera in self.cameras.values():
            camera.buffer.forget_choices(stamp_ns - 2 * STEP_NS)

    @property
    def prepared_unused(self) -> int:
        """How many frames that were prepared left without having been in an observation."""
        return sum(camera.prepared_unused for camera in self.cameras.values())

    def counts(self) -> dict[str, StreamCounts]:
        """Per camera and for "odometry": received = used + waiting + dropped by reason, always."""
        counts = {name: camera.stream.ledger.counts() for name, camera in self.cameras.items()}
        return counts | {"odometry": self.odometry.stream.ledger.counts()}

    def camera_states(self, now_ns: int) -> list[CameraState]:
        """Every camera, in the order of the index."""
        lag = self.anchor.stream.receive_lag
        return [camera.state(now_ns, lag) for camera in self.cameras.values()]

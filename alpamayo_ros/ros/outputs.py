"""The node's output topics. Everything of one tick carries its t0."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from nav_msgs.msg import Path
from rclpy.lifecycle import LifecycleNodeMixin
from std_msgs.msg import String
from visualization_msgs.msg import MarkerArray

from alpamayo_ros.core.incoming import SECOND_NS
from alpamayo_ros.core.select import select
from alpamayo_ros.core.settings import OutputSettings, Settings
from alpamayo_ros.core.trajectory_points import TrajectoryPoints, trajectory_points
from alpamayo_ros.core.types import Array, EgoPose, Observation, Prediction
from alpamayo_ros.msg import Reasoning, Trajectory, TrajectoryCandidates
from alpamayo_ros.ros import autoware, convert, markers, serialized
from alpamayo_ros.ros.overlay import Overlay
from alpamayo_ros.ros.topics import Endpoint, topic_qos, type_name

OUTPUT_QOS = topic_qos(depth=1)
TOPICS: dict[str, type] = {
    "path": Path,
    "trajectory": Trajectory,
    "candidates": TrajectoryCandidates,
    "reasoning": String,
    "reasoning_stamped": Reasoning,
    "markers": MarkerArray,
}


class Outputs:
    """Lifecycle publishers, created while configuring (those created later stay mute), and what goes through them.

    Args:
        node: the lifecycle node.
        settings: which outputs there are, and the vehicle's frame, for output_frame base_link.
        overlay: draws the ticks too; None without one. It isn't closed here.
    """

    def __init__(self, node: LifecycleNodeMixin, settings: Settings, overlay: Overlay | None = None) -> None:
        self._node = node
        self._overlay = overlay
        self._base_frame = settings.odometry.base_frame
        self._place: tuple[Array | None, str] = (None, self._base_frame)  # the vehicle's last one, and in which frame
        wanted = settings.output.autoware_trajectory
        self._topics = TOPICS | ({"autoware_trajectory": autoware.Trajectory} if wanted else {})
        self._publishers: dict[str, Any] = {}
        with ExitStack() as undo:
            undo.callback(self.close)
            for name, kind in self._topics.items():
                self._publishers[name] = node.create_lifecycle_publisher(kind, f"~/output/{name}", OUTPUT_QOS)
            undo.pop_all()

    @property
    def endpoints(self) -> list[Endpoint]:
        """Every output topic."""
        drawn = [] if self._overlay is None else [self._overlay.endpoint]
        return [
            *(
                Endpoint(self._publishers[name].topic_name, type_name(kind), OUTPUT_QOS)
                for name, kind in self._topics.items()
            ),
            *drawn,
        ]

    def publish(
        self, observation: Observation, prediction: Prediction, settings: OutputSettings, odometry_frame: str
    ) -> None:
        """Publish one tick; the path first, since it is what others wait for."""
        t0_ns, pose, frame_id = observation.t0_ns, observation.pose, odometry_frame
        self._place = (pose.position, odometry_frame)
        if settings.frame == "base_link":
            pose, frame_id = None, self._base_frame  # type: ignore[assignment]
        chosen = select(prediction, settings.selection)
        points = trajectory_points(chosen.xyz, chosen.rotation, chosen.actions, chosen.speed, pose)
        self._send("path", serialized.path_bytes(points, t0_ns, frame_id))
        valid_ns = round(settings.valid_for * SECOND_NS)
        self._send("trajectory", serialized.trajectory_bytes(points, t0_ns, frame_id, valid_ns))
        if "autoware_trajectory" in self._publishers:
            self._send("autoware_trajectory", autoware.autoware_message(points, t0_ns, frame_id))
        of_text = max(chosen.index, 0)  # the mean of all has no text of its own: sample 0's, as it is with shared ones
        text = prediction.reasoning[of_text]
        self._send("reasoning", String(data=text))
        self._send(
            "reasoning_stamped",
            convert.reasoning_message(
                text, prediction.reasoning_token_ids[of_text], prediction.finish_reasons[of_text], t0_ns, frame_id
            ),
        )
        self._publish_samples(prediction, chosen.index, points, pose, t0_ns, frame_id, valid_ns)
        if self._overlay is not None:
            self._overlay.submit(observation, prediction, chosen)

    def _publish_samples(
        self,
        prediction: Prediction,
        chosen: int,
        points: TrajectoryPoints,
        pose: EgoPose | None,
        t0_ns: int,
        frame_id: str,
        valid_ns: int,
    ) -> None:
        wanted = [name for name in ("candidates", "markers") if self._publishers[name].get_subscription_count()]
        if not wanted:
            return
        samples = [
            trajectory_points(*arrays, pose)
            for arrays in zip(prediction.xyz, prediction.rotation, prediction.actions, prediction.speed, strict=True)
        ]
        if "candidates" in wanted:
            candidates = [convert.trajectory_message(each, t0_ns, frame_id, valid_ns) for each in samples]
            self._send(
                "candidates", convert.candidates_message(candidates, prediction.reasoning, chosen, t0_ns, frame_id)
            )
        if "markers" in wanted:
            text = prediction.reasoning[max(chosen, 0)]
            self._send("markers", markers.marker_array(points, samples, text, pose, t0_ns, frame_id))

    def publish_nothing(self, now_ns: int, frame_id: str, reason: str) -> None:
        """Tell consumers that there is no trajectory, and why."""
        self._send("trajectory", convert.empty_trajectory_message(now_ns, frame_id, reason))
        if "autoware_trajectory" in self._publishers:
            self._send("autoware_trajectory", autoware.autoware_message(None, now_ns, frame_id))
        place, frame = self._place
        self._send("markers", markers.skip_marker(reason, place, now_ns, frame))

    def clear_markers(self) -> None:
        """Remove what RViz still shows; where the vehicle was is forgotten."""
        self._place = (None, self._base_frame)
        self._send("markers", markers.delete_all())

    def close(self) -> None:
        """Destroy the publishers."""
        for publisher in self._publishers.values():
            self._node.destroy_lifecycle_publisher(publisher)
        self._publishers.clear()

    def _send(self, name: str, message: Any) -> None:
        publisher = self._publishers.get(name)
        if publisher is not None:
            publisher.publish(message)

"""A bag's messages as the node's inputs: which topics, and what the builder is given of each message."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from alpamayo_ros.core.incoming import SECOND_NS, image_arguments
from alpamayo_ros.core.observe import ObservationBuilder
from alpamayo_ros.core.settings import Settings
from alpamayo_ros.core.types import ConfigurationError, EgoPose, Frame
from alpamayo_ros.evaluation.bag import BagMessage, BagReader
from alpamayo_ros.evaluation.pose_source import TF_STATIC_TOPIC, TRANSFORMS, PoseSource
from alpamayo_ros.evaluation.rig import NODE, resolve_topic
from alpamayo_ros.evaluation.transform_poses import poses_by_settings

TRANSPORTS = {"raw": "sensor_msgs/msg/Image", "compressed": "sensor_msgs/msg/CompressedImage"}
TEXT = "std_msgs/msg/String"
NAVIGATION_TOPIC = f"/{NODE}/input/navigation"
SEARCHED_NS = 10 * SECOND_NS  # around a tick's time, for its frame: no camera is that late


class BagInputs:
    """The inputs that a rig takes from a bag.

    Args:
        bag: the recording.
        settings: of the rig.
        poses: where the vehicle's poses come from; None: as the rig's settings say.

    Raises:
        ConfigurationError: a needed topic is missing, or has another type; lists what the bag has.
    """

    def __init__(self, bag: BagReader, settings: Settings, poses: PoseSource | None = None) -> None:
        self._bag = bag
        self._settings = settings
        self._cameras = {resolve_topic(camera.topic): camera.name for camera in settings.cameras}
        self._poses: PoseSource = poses_by_settings(settings.odometry) if poses is None else poses
        self.odometry_frame = "odom"  # frame_id of the newest pose that was fed
        self.missing = [  # optional cameras that the bag doesn't have
            camera.name
            for camera in settings.cameras
            if not camera.required and resolve_topic(camera.topic) not in bag.topics
        ]
        self._check(settings)

    @property
    def warnings(self) -> list[str]:
        """What was noticed."""
        absent = [f"the bag has no topic for the optional camera {name}" for name in self.missing]
        return absent + ([self._poses.warning] if self._poses.warning else [])

    @property
    def pose_source(self) -> str:
        """Where the vehicle's poses come from, in words."""
        return self._poses.description

    @property
    def topics(self) -> list[str]:
        """What is read."""
        optional = {TF_STATIC_TOPIC: TRANSFORMS, NAVIGATION_TOPIC: TEXT}
        given = [topic for topic, kind in optional.items() if self._bag.topics.get(topic) == kind]
        return [*(topic for topic in self._cameras if topic in self._bag.topics), self._poses.topic, *given]

    def messages(self) -> Iterator[BagMessage]:
        """The messages of all inputs, in order of arrival."""
        return self._bag.messages(self.topics)

    def is_image(self, message: BagMessage) -> bool:
        """Whether it is of one of the cameras."""
        return message.topic in self._cameras

    def feed(self, builder: ObservationBuilder, message: BagMessage, now_ns: int) -> None:
        """Give the builder a message, as the node does."""
        content = message.message
        if self.is_image(message):
            builder.add_frame(self._cameras[message.topic], now_ns=now_ns, **image_arguments(content))
        elif message.topic == self._poses.topic:
            for each in self._poses.poses(message):
                self.odometry_frame = each.frame_id
                builder.add_pose(each.pose, frame_id=each.frame_id, child_frame_id=each.child_frame_id, now_ns=now_ns)
        elif message.topic == NAVIGATION_TOPIC:
            builder.set_navigation(content.data, now_ns)
        else:
            self._poses.add_static(content)

    def recorded_poses(self) -> list[EgoPose]:
        """Every pose of base_link in the bag, with its own stamp."""
        source = self._poses.fresh()
        poses = []
        for message in self._bag.messages([topic for topic in (TF_STATIC_TOPIC, source.topic) if topic in self.topics]):
            if message.topic == source.topic:
                poses += [each.pose for each in source.poses(message)]
            else:
                source.add_static(message.message)
        return poses

    def frames(self, camera: str, decided_ns: Mapping[int, int]) -> dict[int, Frame]:
        """A camera's frames again, by their stamps (with the camera's time_offset), in one pass over the bag.

        Args:
            camera: its name.
            decided_ns: stamp of each wanted frame -> when its tick was decided; it was received not long before.

        Returns:
            Those that were found.
        """
        if not decided_ns:
            return {}
        settings = self._settings.camera(camera)
        offset_ns = round(settings.time_offset * 1e9)
        first, last = min(decided_ns.values()) - SEARCHED_NS, max(decided_ns.values()) + SEARCHED_NS
        found: dict[int, Frame] = {}
        for raw in self._bag.raw_messages([resolve_topic(settings.topic)]):
            if raw.receive_ns > last or len(found) == len(decided_ns):
                break
            if raw.receive_ns < first:
                continue
            try:
                message = self._bag.types.deserialize_cdr(raw.data, raw.type)
            except Exception:  # damaged, and told so when it was first read
                continue
            arguments = image_arguments(message)
            stamp_ns = arguments.pop("stamp_ns") + offset_ns
            near = abs(decided_ns.get(stamp_ns, -SEARCHED_NS) - raw.receive_ns) <= SEARCHED_NS
            if near and stamp_ns not in found:
                found[stamp_ns] = Frame(serial=0, camera=settings.index, stamp_ns=stamp_ns, **arguments)
        return found

    def _check(self, settings: Settings) -> None:
        wanted = {
            resolve_topic(camera.topic): (TRANSPORTS[camera.transport], f"parameter cameras.{camera.name}.topic")
            for camera in settings.cameras
            if camera.name not in self.missing
        }
        problems = [
            f"{topic} is the topic of {' and of '.join(users)}: each needs its own"
            for topic, users in _users(settings).items()
            if len(users) > 1
        ]
        wanted[self._poses.topic] = (self._poses.kind, self._poses.chosen_by)
        for topic, (kind, chosen_by) in wanted.items():
            found = self._bag.topics.get(topic)
            if found is None:
                problems.append(f"{topic} ({kind}, {chosen_by}) is missing")
            elif found != kind:
                problems.append(f"{topic} has type {found}, expected {kind} ({chosen_by})")
        if not problems:
            problems += self._poses.prepare(self._bag)
        if problems:
            raise ConfigurationError(
                f"the bag {self._bag.path} doesn't have what the rig needs:\n"
                + "".join(f"  {problem}\n" for problem in problems)
                + f"it has (type, messages): {self._bag.describe_topics()}"
            )


def _users(settings: Settings) -> dict[str, list[str]]:
    """The inputs by their full topics."""
    users: dict[str, list[str]] = {}
    for name, topic in [(c.name, c.topic) for c in settings.cameras] + [("the odometry", settings.odometry.pose_topic)]:
        users.setdefault(resolve_topic(topic), []).append(name)
    return users

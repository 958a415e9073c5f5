"""A journey as ROS messages: images and their calibration, odometry and transforms, and the navigation's words."""

from __future__ import annotations

import cv2
import numpy as np

from alpamayo_ros.core.rotation import rotations_about_z
from alpamayo_ros.core.types import ConfigurationError
from alpamayo_ros.evaluation.drive_bag import DriveBag, MessageSink
from alpamayo_ros.sim.imperfections import PER_METER, Imperfections, ImperfectSink
from alpamayo_ros.sim.journey import STEP_S, Journey
from alpamayo_ros.sim.renderer import Image, Renderer

SECOND = 1_000_000_000
STEP_NS = round(STEP_S * SECOND)
JPEG_QUALITY = 90
FORMATS = ("jpeg", "png")
CAMERA_HZ = (5, 10, 25, 50)  # whole numbers of steps


class DriveMessages:
    """Writes the messages of each moment of a journey to a sink.

    Args:
        journey: as it goes on.
        renderer: of its world, with its cameras.
        sink: where messages go; late ones when `pass_on` is called.
        start_ns: the journey's beginning; stamps count from there.
        camera_hz: images a second.
        form: of the images, jpeg or png; PNG loses nothing.
        imperfections: of the sensors.

    Raises:
        ConfigurationError: a rate or format that can't be.
    """

    def __init__(
        self,
        journey: Journey,
        renderer: Renderer,
        sink: MessageSink,
        *,
        start_ns: int,
        camera_hz: int = 10,
        form: str = "jpeg",
        imperfections: Imperfections | None = None,
    ) -> None:
        if camera_hz not in CAMERA_HZ:
            raise ConfigurationError(f"{camera_hz} images a second, expected {', '.join(map(str, CAMERA_HZ))}")
        if form not in FORMATS:
            raise ConfigurationError(f"images as {form!r}, expected {' or '.join(FORMATS)}")
        self._journey, self._renderer, self._form = journey, renderer, form
        self._imperfections = imperfections or Imperfections()
        self._sink = ImperfectSink(sink, self._imperfections, journey.world.seed)
        self._bag = DriveBag(self._sink)
        self._rng = np.random.default_rng([journey.world.seed, 1_000_117])
        self._start_ns = start_ns
        self._every = round(1 / STEP_S / camera_hz)
        self._navigation: str | None = ""
        self._images = 0
        self._bag.mountings(
            start_ns, {name: (model.position, model.rotation) for name, model in renderer.cameras.items()}
        )

    @property
    def now_ns(self) -> int:
        """The stamp of this moment."""
        return self._start_ns + round(self._journey.time_s / STEP_S) * STEP_NS

    @property
    def is_image_due(self) -> bool:
        """Whether this moment has images."""
        return round(self._journey.time_s / STEP_S) % self._every == 0

    def write(self) -> None:
        """This moment's messages; to be called once every step of the journey."""
        navigation = self._journey.navigation
        if navigation != self._navigation:
            self._navigation = navigation
            self._bag.navigation(self.now_ns, navigation or "")
        self._write_pose()
        if self.is_image_due:
            for camera, picture in self._renderer.draw(self._journey, self._images).items():
                self._write_image(camera, picture)
            self._images += 1
        self.pass_on()

    def pass_on(self, later_s: float = 0.0) -> None:
        """Send what has been held back and is due, now or so much later."""
        self._sink.pass_on(self.now_ns + round(later_s * SECOND))

    def _write_pose(self) -> None:
        vehicle = self._journey.vehicle
        noise = self._rng.normal(0, 1, 3) * self._imperfections.noise_m
        position = np.array([vehicle.x + noise[0], vehicle.y + noise[1], 0.0])
        rotation = rotations_about_z(np.array(vehicle.yaw + PER_METER * noise[2]))
        linear, angular = np.array([vehicle.speed, 0.0, 0.0]), np.array([0.0, 0.0, vehicle.yaw_rate])
        self._bag.pose(self.now_ns, position, rotation, linear, angular)

    def _write_image(self, camera: str, picture: Image) -> None:
        options = [cv2.IMWRITE_JPEG_QUALITY, JPEG_QUALITY] if self._form == "jpeg" else []
        extension = ".jpg" if self._form == "jpeg" else ".png"
        data = cv2.imencode(extension, cv2.cvtColor(picture, cv2.COLOR_RGB2BGR), options)[1].tobytes()
        self._bag.image(camera, self.now_ns, data, f"rgb8; {self._form} compressed bgr8")
        self._bag.camera_info(camera, self.now_ns, self._renderer.cameras[camera])

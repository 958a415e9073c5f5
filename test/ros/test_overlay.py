"""The node sends a picture with the path on it, once it knows the camera."""

import cv2
import numpy as np
from live import JPEG, wait_until
from rclpy.qos import QoSProfile, ReliabilityPolicy
from sensor_msgs.msg import CameraInfo, CompressedImage

from alpamayo_ros.core.incoming import stamp_ns
from alpamayo_ros.sensors.overlay import CHOSEN

TOPIC = "/alpamayo/output/overlay/compressed"
WIDE = cv2.imencode(".jpg", np.full((270, 480, 3), 90, np.uint8))[1].tobytes()
POSE = [1.5, 0.0, 1.5, 0.0, 0.0, 0.0]


def listen(driver):
    pictures = []
    qos = QoSProfile(depth=10, reliability=ReliabilityPolicy.BEST_EFFORT)
    driver.create_subscription(CompressedImage, TOPIC, pictures.append, qos)
    wait_until(lambda: driver.count_publishers(TOPIC), "the overlay's publisher")
    return pictures


def decoded(message):
    return cv2.cvtColor(cv2.imdecode(np.frombuffer(message.data, np.uint8), cv2.IMREAD_COLOR), cv2.COLOR_BGR2RGB)


def play_until_drawn(driver, pictures, condition=lambda message: True):
    """Several drives, since best effort may lose a picture, and the subscription may be new."""
    for _ in range(8):
        driver.play(data=WIDE)
        try:
            return wait_until(lambda: next(filter(condition, pictures), None), "a picture", timeout=2.0)
        except AssertionError:
            continue
    raise AssertionError(f"no picture; {len(pictures)} came")


def test_with_parameters_alone_the_path_is_on_the_road_and_the_reasoning_below(live):
    live.node(
        **{"overlay.publish": True, "overlay.camera_pose": POSE, "selection": "first"},
        **{"overlay.intrinsics": [480.0, 270.0, 300.0, 300.0, 240.0, 135.0]},
    )
    driver = live.driver(speed=10.0)
    message = play_until_drawn(driver, listen(driver))
    assert message.format == "jpeg"
    assert stamp_ns(message.header.stamp) in {stamp_ns(path.header.stamp) for path in driver.received["path"]}
    picture = decoded(message)
    assert picture.shape[1] == 480
    assert picture.shape[0] > 270  # the text
    blue = (np.abs(picture[:270].astype(int) - CHOSEN).max(axis=-1) < 40).nonzero()
    assert len(blue[0]) > 50
    assert abs(blue[1].mean() - 240) < 5  # straight on
    assert blue[0].min() > 135  # below the horizon


def test_camera_info_completes_it(live):
    live.node(**{"overlay.publish": True, "overlay.camera_pose": POSE, "overlay.camera_info": "/front_info"})
    driver = live.driver(speed=10.0)
    publisher = driver.create_publisher(CameraInfo, "/front_info", 1)
    pictures = listen(driver)
    wait_until(publisher.get_subscription_count, "the node to ask for CameraInfo")
    driver.play(data=WIDE)
    driver.wait_for("path")
    assert not pictures
    info = CameraInfo(width=480, height=270, distortion_model="plumb_bob", d=[0.0] * 5)
    info.k = [300.0, 0.0, 240.0, 0.0, 300.0, 135.0, 0.0, 0.0, 1.0]
    publisher.publish(info)
    play_until_drawn(driver, pictures)


def test_a_picture_of_another_shape_costs_no_path(live):
    live.node(
        **{"overlay.publish": True, "overlay.camera_pose": POSE},
        **{"overlay.intrinsics": [480.0, 270.0, 300.0, 300.0, 240.0, 135.0]},
    )
    driver = live.driver(speed=10.0)
    pictures = listen(driver)
    t0 = driver.play(data=JPEG)  # 32x24
    driver.wait_for("path", lambda path: stamp_ns(path.header.stamp) == t0)
    assert not pictures


def test_there_is_none_unless_it_is_asked_for(live):
    live.node()
    driver = live.driver()
    assert driver.count_publishers(TOPIC) == 0

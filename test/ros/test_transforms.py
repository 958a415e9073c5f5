"""Where the odometry's child frame is, by parameter and by /tf_static; and the transform that the node sends."""

import numpy as np
import pytest
from geometry_msgs.msg import TransformStamped
from rclpy.qos import DurabilityPolicy, QoSProfile

from alpamayo_ros.core.child_frame import ChildFrame
from alpamayo_ros.core.incoming import stamp_ns
from alpamayo_ros.core.settings import OdometrySettings

tf2 = pytest.importorskip("tf2_msgs.msg", reason="needs tf2_msgs: make setup builds it")


def static(parent, child, x):
    transform = TransformStamped(child_frame_id=child)
    transform.header.frame_id = parent
    transform.transform.translation.x = x
    transform.transform.rotation.w = 1.0
    return transform


def test_the_base_frame_itself_needs_no_transform_and_gives_no_warning():
    frame = ChildFrame(OdometrySettings())
    assert frame.mounting("base_link").is_identity
    assert frame.warning == ""


@pytest.mark.parametrize(("parent", "child", "x"), [("gps", "base_link", -2.0), ("base_link", "gps", 2.0)])
def test_a_static_transform_is_used_in_either_direction(parent, child, x):
    frame = ChildFrame(OdometrySettings())
    frame.add_static(tf2.TFMessage(transforms=[static(parent, child, x)]))
    assert frame.mounting("gps").position.tolist() == [-2.0, 0, 0]
    assert frame.warning == ""


def test_the_parameter_goes_before_a_static_transform():
    frame = ChildFrame(OdometrySettings(child_to_base=(-3.0, 0, 0, 0, 0, 0)))
    frame.add_static(tf2.TFMessage(transforms=[static("gps", "base_link", -2.0)]))
    assert frame.mounting("gps").position.tolist() == [-3.0, 0, 0]


def test_another_child_frame_without_a_transform_is_taken_for_base_link_with_a_warning():
    frame = ChildFrame(OdometrySettings())
    frame.add_static(tf2.TFMessage(transforms=[static("gps", "camera", 1.0)]))
    assert frame.mounting("gps").is_identity
    assert "'gps'" in frame.warning
    assert "odometry.child_to_base" in frame.warning
    frame.mounting("base_link")
    assert frame.warning == ""


def test_a_static_transform_moves_the_path_to_the_axle(live):
    live.node()
    driver = live.driver(speed=0.0)
    driver.play(x=50.0, child_frame_id="gps")
    driver.wait_for_diagnostic("odometry", "the odometry's child frame is 'gps'")
    latched = QoSProfile(depth=1, durability=DurabilityPolicy.TRANSIENT_LOCAL)
    publisher = driver.create_publisher(tf2.TFMessage, "/tf_static", latched)
    publisher.publish(tf2.TFMessage(transforms=[static("gps", "base_link", -2.0)]))

    def at_the_axle():
        t0 = driver.play(x=50.0, child_frame_id="gps")
        path = driver.wait_for("path", lambda path: stamp_ns(path.header.stamp) == t0)
        return path.poses[0].pose.position.x == pytest.approx(48.0)

    assert at_the_axle() or at_the_axle()  # the first may have come before the transform


def test_with_publish_tf_each_pose_is_sent_as_a_transform(live):
    live.node(publish_tf=True)
    driver = live.driver(speed=0.0)
    seen = []
    driver.create_subscription(tf2.TFMessage, "/tf", lambda message: seen.extend(message.transforms), 100)
    t0 = driver.play(x=7.0)
    driver.wait_for("path", lambda path: stamp_ns(path.header.stamp) == t0)
    transform = seen[-1]
    assert (transform.header.frame_id, transform.child_frame_id) == ("odom", "base_link")
    assert transform.transform.translation.x == 7.0
    assert stamp_ns(transform.header.stamp) <= t0


def test_a_twist_in_the_world_frame_is_warned_of_and_still_driven(live):
    live.node()
    driver = live.driver(speed=10.0)
    t0 = driver.play(z=np.sqrt(0.5), w=np.sqrt(0.5))  # it faces +y of the world, moves along +x, and says so
    driver.wait_for("path", lambda path: stamp_ns(path.header.stamp) == t0)
    driver.wait_for_diagnostic("odometry", "differently from the twist")

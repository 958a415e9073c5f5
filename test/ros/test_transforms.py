"""Where the odometry's child frame is, by parameter and by /tf_static; and the transform that the node sends."""

import json
import logging

import numpy as np
import pytest
from geometry_msgs.msg import TransformStamped
from live import wait_until
from rclpy.qos import DurabilityPolicy, QoSProfile

from alpamayo_ros.core.child_frame import ChildFrame
from alpamayo_ros.core.incoming import stamp_ns
from alpamayo_ros.core.settings import OdometrySettings
from alpamayo_ros.core.types import ConfigurationError, EgoPose
from alpamayo_ros.ros.convert import time_message
from alpamayo_ros.ros.node import AlpamayoNode

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


def test_static_transforms_are_put_together_in_whatever_order_they_come():
    frame = ChildFrame(OdometrySettings())
    for each in (static("roof", "gps", 0.5), static("base_link", "chassis", 0.2), static("chassis", "roof", 1.0)):
        frame.add_static(tf2.TFMessage(transforms=[each]))
    assert frame.mounting("gps").position == pytest.approx([-1.7, 0, 0])
    assert frame.warning == ""
    frame.add_static(tf2.TFMessage(transforms=[static("roof", "gps", 0.6)]))  # calibrated anew
    assert frame.mounting("gps").position == pytest.approx([-1.8, 0, 0])


@pytest.mark.parametrize("wrong", [np.nan, np.inf, 1e300])
def test_a_static_transform_that_is_none_is_ignored(wrong):
    frame = ChildFrame(OdometrySettings())
    frame.add_static(tf2.TFMessage(transforms=[static("gps", "base_link", wrong)]))
    assert frame.mounting("gps").is_identity
    assert "'gps'" in frame.warning


def pose(k, y=0.0):
    velocity = np.array([10.0, 0, 0])
    return EgoPose(10**11 + k * 20_000_000, np.array([0.2 * k, y, 0]), np.array([0, 0, 0, 1.0]), velocity, np.zeros(3))


def test_a_static_transform_that_comes_or_changes_while_driving_makes_another_frame_of_the_child():
    """Or else the poses before and after it would be one history, with a step to the side."""
    frame, labels = ChildFrame(OdometrySettings()), []
    for k, offset in enumerate((None, None, 0.3, 0.3, 0.4)):
        if offset is not None:
            frame.add_static(tf2.TFMessage(transforms=[static("gps", "base_link", offset)]))
        frame.base_pose(pose(k), "gps")
        labels.append(frame.label("gps"))
    assert labels == ["gps", "gps", "gps (way 2)", "gps (way 2)", "gps (way 3)"]


def test_the_node_forgets_its_inputs_then_and_says_so(live):
    live.node()
    driver = live.driver(speed=10.0)
    t0 = driver.play(child_frame_id="gps")
    driver.wait_for("path", lambda path: stamp_ns(path.header.stamp) == t0)
    latched = QoSProfile(depth=1, durability=DurabilityPolicy.TRANSIENT_LOCAL)
    publisher = driver.create_publisher(tf2.TFMessage, "/tf_static", latched)
    publisher.publish(tf2.TFMessage(transforms=[static("gps", "base_link", -0.3)]))
    wait_until(publisher.get_subscription_count, "the node to hear it")
    driver.play(seconds=0.5, child_frame_id="gps")
    found = driver.wait_for("status", lambda status: status.epoch >= 1 and "gps (way 2)" in status.detail)
    assert '"frames_before": ["odom", "gps"]' in found.detail
    t0 = driver.play(child_frame_id="gps")
    path = driver.wait_for("path", lambda path: stamp_ns(path.header.stamp) == t0)
    assert path.poses[0].pose.position.x == pytest.approx(driver.x(t0) + 1.0 - 0.3, abs=0.02)


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


def moving(ns, x, parent="odom", child="base_footprint", w=1.0):
    transform = static(parent, child, x)
    transform.header.stamp = time_message(ns)
    transform.transform.rotation.w = w
    return transform


class TestPosesFromTf:
    """A vehicle whose pose comes as transforms alone: odom -> base_footprint moves, base_link stands on it."""

    @pytest.fixture
    def driver(self, live):
        driver = live.driver(connect=False, speed=10.0)
        latched = QoSProfile(depth=1, durability=DurabilityPolicy.TRANSIENT_LOCAL)
        driver.statics = driver.create_publisher(tf2.TFMessage, "/tf_static", latched)
        driver.statics.publish(tf2.TFMessage(transforms=[static("base_footprint", "base_link", 1.0)]))
        driver.tf = driver.create_publisher(tf2.TFMessage, "/tf", 100)
        driver.send_odometry = lambda ns, w=1.0: driver.tf.publish(
            tf2.TFMessage(transforms=[moving(ns, 0.3, "base_link", "wheel"), moving(ns, driver.x(ns), w=w)])
        )
        return driver

    def start(self, live, driver):
        node = live.node(**{"odometry.source": "tf"})
        publishers = [driver.tf, driver.statics, *driver.cameras.values()]
        wait_until(lambda: all(each.get_subscription_count() for each in publishers), "the node to subscribe")
        live._wait_for_readers()
        return node

    def test_they_become_a_path_in_their_frame(self, live, driver):
        node = self.start(live, driver)
        t0 = driver.play()
        path = driver.wait_for("path", lambda path: stamp_ns(path.header.stamp) == t0)
        assert path.header.frame_id == "odom"
        x = np.array([pose.pose.position.x for pose in path.poses])
        np.testing.assert_allclose(x - driver.x(t0) - 1.0, np.arange(1, 65) * 1.0, atol=0.02)  # 10 m/s
        received = node._configured.drive.counts()["odometry"].received
        assert received == 23  # one for each message: the wheel's are none
        assert "/tf" in driver.wait_for_diagnostic("odometry", "").values[0].value

    def test_a_live_evaluation_scores_by_them(self, live, driver, evaluating_live):
        self.start(live, driver)
        with evaluating_live(driver, [driver.tf, driver.statics], "--no-pictures", source="tf") as out:
            driver.play(seconds=9.0)
            driver.wait_for("path")
        report = json.loads((out / "report.json").read_text())
        assert report["metrics"]["chosen"]["ade"]["1.0"]["n"] > 3
        assert report["metrics"]["chosen"]["ade"]["1.0"]["mean"] < 0.02  # straight on, as the null engine predicts

    def test_a_frame_that_is_not_there_is_named_with_those_that_are(self, live, driver):
        live.node(**{"odometry.source": "tf", "odometry.tf_parent": "odm"})
        wait_until(driver.tf.get_subscription_count, "the node to subscribe")
        driver.play(seconds=0.5)
        fault = driver.wait_for_diagnostic("odometry", "no moving transforms lead from 'odm' (odometry.tf_parent)")
        assert "odom -> base_footprint" in fault.message
        assert fault.level == b"\x02"

    def test_one_that_is_no_pose_is_refused_by_name_and_the_node_recovers(self, live, driver):
        self.start(live, driver)
        t0 = driver.play()
        driver.wait_for("path", lambda path: stamp_ns(path.header.stamp) == t0)
        driver.play(seconds=0.5, w=0.0)
        assert "zero quaternion" in driver.wait_for("status", lambda s: "bad_odometry" in s.detail).detail
        t0 = driver.play()
        driver.wait_for("path", lambda path: stamp_ns(path.header.stamp) == t0)


def test_the_node_does_not_publish_the_transform_that_it_takes_poses_from(live):
    with pytest.raises(ConfigurationError, match=r"publish_tf is True: with odometry\.source tf somebody else"):
        live.node(publish_tf=True, **{"odometry.source": "tf"})


def test_poses_from_tf_need_its_message_and_a_node_that_can_not_be_leaves_nothing_behind(live, monkeypatch):
    handlers, destroyed = list(logging.getLogger("alpamayo_ros").handlers), []
    destroy = AlpamayoNode.destroy_node
    monkeypatch.setattr(AlpamayoNode, "destroy_node", lambda node: destroyed.append(destroy(node)))
    monkeypatch.setattr("alpamayo_ros.ros.transforms.TFMessage", None)
    with pytest.raises(ConfigurationError, match=r"odometry\.source is 'tf': that needs tf2_msgs"):
        live.node(**{"odometry.source": "tf"})
    assert len(destroyed) == 1
    assert logging.getLogger("alpamayo_ros").handlers == handlers

"""Topics that stay silent without an error: wrong types and incompatible QoS, named in the diagnostics."""

from nav_msgs.msg import Path
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy


def test_a_publisher_of_another_type_is_named_with_its_topic_and_the_remedy(live, other_process):
    other_process("sensor_msgs.msg", "Image", "/front")
    live.node()
    driver = live.driver(connect=False, topics={"elsewhere": "/elsewhere"})
    diagnostic = driver.wait_for_diagnostic("camera front_wide", "sensor_msgs/msg/Image on /front")
    assert "expected sensor_msgs/msg/CompressedImage" in diagnostic.message
    assert "cameras.front_wide.transport" in diagnostic.message
    assert diagnostic.level == b"\x02"


def test_a_best_effort_publisher_for_a_reliable_subscription_is_named(live):
    live.node()
    driver = live.driver(connect=False, reliability=ReliabilityPolicy.BEST_EFFORT)
    diagnostic = driver.wait_for_diagnostic("camera front_wide", "incompatible QoS")
    assert "/driver publishes /front" in diagnostic.message


def test_two_publishers_of_one_input_are_named(live, other_process):
    """A camera and a bag, say: their pictures mix as if they were of one."""
    live.node(max_input_age=60.0, max_odometry_age=60.0)
    driver = live.driver()
    driver.play()
    driver.wait_for("path")
    assert driver.wait_for_diagnostic("camera front_wide", "ok").level == b"\x00"
    other_process("sensor_msgs.msg", "CompressedImage", "/front")
    other_process("nav_msgs.msg", "Odometry", "/odometry")
    for name, topic in (("camera front_wide", "/front"), ("odometry", "/odometry")):
        diagnostic = driver.wait_for_diagnostic(name, f"2 publishers on {topic}, expected 1: /driver, /stranger")
        assert diagnostic.level == b"\x01"
    driver.received["path"].clear()
    driver.play()
    driver.wait_for("path")


def test_by_default_best_effort_and_reliable_cameras_are_heard(live):
    live.node(**{"cameras.front_wide.reliability": "best_effort", "odometry.reliability": "best_effort"})
    for reliability in (ReliabilityPolicy.BEST_EFFORT, ReliabilityPolicy.RELIABLE):
        driver = live.driver(reliability=reliability)
        driver.play()
        driver.wait_for("status", lambda status: status.cameras[0].received > 0)
        assert "QoS" not in driver.wait_for_diagnostic("camera front_wide", "").message


def test_a_subscriber_that_wants_a_latched_path_is_named(live):
    live.node()
    driver = live.driver()
    assert driver.wait_for_diagnostic("outputs", "ok").level == b"\x00"
    qos = QoSProfile(depth=1, durability=DurabilityPolicy.TRANSIENT_LOCAL)
    driver.create_subscription(Path, "/alpamayo/output/path", lambda _: None, qos)
    diagnostic = driver.wait_for_diagnostic("outputs", "incompatible QoS")
    assert "/driver subscribes /alpamayo/output/path" in diagnostic.message

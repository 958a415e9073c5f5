"""Topics that stay silent without an error: wrong types and incompatible QoS, named in the diagnostics."""

from nav_msgs.msg import Path
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy
from sensor_msgs.msg import CompressedImage


def test_a_publisher_of_another_type_is_named_with_its_topic_and_the_remedy(live, other_process):
    other_process("sensor_msgs.msg", "Image", "/front")
    live.node()
    driver = live.driver(connect=False, topics={"elsewhere": "/elsewhere"})
    diagnostic = driver.wait_for_diagnostic("camera front_wide", "sensor_msgs/msg/Image on /front")
    assert "expected sensor_msgs/msg/CompressedImage" in diagnostic.message
    assert "cameras.front_wide.transport" in diagnostic.message
    assert diagnostic.level == b"\x02"


def test_a_best_effort_publisher_for_a_reliable_subscription_is_named(live):
    live.node(**{"cameras.front_wide.reliability": "reliable"})
    driver = live.driver(connect=False)
    diagnostic = driver.wait_for_diagnostic("camera front_wide", "incompatible QoS")
    assert "/driver publishes /front" in diagnostic.message


def test_a_reliable_publisher_suits_a_best_effort_subscription(live):
    live.node()
    driver = live.driver(connect=False, topics={"elsewhere": "/elsewhere"})
    driver.create_publisher(CompressedImage, "/front", QoSProfile(depth=1, reliability=ReliabilityPolicy.RELIABLE))
    driver.wait_for_diagnostic("camera front_wide", "nothing on /front yet")


def test_a_subscriber_that_wants_a_latched_path_is_named(live):
    live.node()
    driver = live.driver()
    assert driver.wait_for_diagnostic("outputs", "ok").level == b"\x00"
    qos = QoSProfile(depth=1, durability=DurabilityPolicy.TRANSIENT_LOCAL)
    driver.create_subscription(Path, "/alpamayo/output/path", lambda _: None, qos)
    diagnostic = driver.wait_for_diagnostic("outputs", "incompatible QoS")
    assert "/driver subscribes /alpamayo/output/path" in diagnostic.message

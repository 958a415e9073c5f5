"""Publish what a vehicle's sensors would: JPEG cameras and odometry, at steady rates, from a process of its own.

The vehicle drives straight on at 10 m/s, and the pictures stand still: with `sampling.temperature` 0 a tick's reasoning
is the last one's, and confirmed as its draft. They are noise over a gradient, of about the size that a camera driver's
JPEGs have. Used by `alpamayo_ros.tools.bench`, and useful on its own to load a node by hand.
"""

from __future__ import annotations

import argparse
import array
import time

import cv2
import numpy as np

SPEED = 10.0  # m/s


def jpeg(height: int, width: int, seed: int) -> bytes:
    """A JPEG of `height` x `width` with the detail of a street scene: about 0.2 byte per pixel."""
    rng = np.random.default_rng(seed)
    gradient = np.linspace(40, 200, height, dtype=np.float32)[:, None, None]
    coarse = cv2.resize(rng.normal(0, 40, (height // 8, width // 8, 3)).astype(np.float32), (width, height))
    fine = rng.normal(0, 4, (height, width, 3)).astype(np.float32)
    image = np.clip(gradient + coarse + fine, 0, 255).astype(np.uint8)
    return bytes(cv2.imencode(".jpg", image, [cv2.IMWRITE_JPEG_QUALITY, 85])[1])


def main(arguments: list[str] | None = None) -> None:
    """Publish for a while."""
    import rclpy
    from nav_msgs.msg import Odometry
    from rclpy.qos import QoSProfile, ReliabilityPolicy, qos_profile_sensor_data
    from sensor_msgs.msg import CompressedImage

    parser = argparse.ArgumentParser(
        prog="python -m alpamayo_ros.tools.bench_load",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--camera", action="append", required=True, metavar="TOPIC", help="once for every camera")
    parser.add_argument("--odometry", default="/odometry", metavar="TOPIC")
    parser.add_argument("--camera-rate", type=float, default=30.0, help="Hz")
    parser.add_argument("--odometry-rate", type=float, default=100.0, help="Hz")
    parser.add_argument("--size", type=int, nargs=2, default=(1080, 1920), metavar=("HEIGHT", "WIDTH"))
    parser.add_argument("--seconds", type=float, default=30.0)
    options = parser.parse_args(arguments)

    rclpy.init()
    node = rclpy.create_node("sensor_load")
    cameras = []
    for number, topic in enumerate(options.camera):  # a DDS participant each, as drivers have: they share no buffer
        context = rclpy.Context()
        rclpy.init(context=context)
        camera = rclpy.create_node(f"camera_{number}", context=context)
        cameras.append(camera.create_publisher(CompressedImage, topic, qos_profile_sensor_data))
    reliable = QoSProfile(depth=100, reliability=ReliabilityPolicy.RELIABLE)
    odometry = node.create_publisher(Odometry, options.odometry, reliable)

    height, width = options.size
    pictures = [array.array("B", jpeg(height, width, seed)) for seed in range(len(cameras))]
    image = CompressedImage(format="jpeg")
    pose = Odometry()
    pose.header.frame_id, pose.child_frame_id = "odom", "base_link"
    pose.pose.pose.orientation.w = 1.0
    pose.twist.twist.linear.x = SPEED

    started, first_stamp = time.monotonic(), node.get_clock().now()
    due_frame = due_pose = started
    while (now := time.monotonic()) < started + options.seconds:
        if now >= due_pose:
            due_pose += 1 / options.odometry_rate
            stamp = node.get_clock().now()
            pose.header.stamp = stamp.to_msg()
            pose.pose.pose.position.x = (
                SPEED * (stamp - first_stamp).nanoseconds * 1e-9
            )  # the same history at each tick
            odometry.publish(pose)
        if now >= due_frame:
            due_frame += 1 / options.camera_rate
            image.header.stamp = node.get_clock().now().to_msg()
            for publisher, picture in zip(cameras, pictures, strict=True):
                image.data = picture
                publisher.publish(image)
        time.sleep(max(0.0, min(due_frame, due_pose) - time.monotonic()))
    node.destroy_node()
    rclpy.shutdown()


if __name__ == "__main__":
    main()

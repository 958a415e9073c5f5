"""The optional output for Autoware."""

import math

import numpy as np
import pytest
from live import wait_until

from alpamayo_ros.core.incoming import stamp_ns
from alpamayo_ros.core.trajectory_points import trajectory_points
from alpamayo_ros.core.types import ConfigurationError
from alpamayo_ros.ros import autoware


def test_without_autoware_it_is_an_error_that_says_what_to_install(live, monkeypatch):
    monkeypatch.setattr(autoware, "Trajectory", None)
    live.node(start=False)  # by default nothing is missing
    with pytest.raises(ConfigurationError, match=r"output\.autoware_trajectory is True: .*autoware_planning_msgs"):
        live.node(start=False, **{"output.autoware_trajectory": True})


@pytest.mark.skipif(autoware.Trajectory is None, reason="needs autoware_planning_msgs: make setup builds it")
class TestWithAutoware:
    def test_speed_acceleration_and_heading_rate_are_of_the_point(self):
        times = np.arange(1, 65) * 0.1
        xyz = np.stack([5 * times, 0 * times, 0 * times], axis=-1)
        actions = np.stack([np.full(64, 0.5), np.full(64, 0.02)], axis=-1)
        points = trajectory_points(xyz, np.tile(np.eye(3), (64, 1, 1)), actions, np.full(65, 5.0), None)
        message = autoware.autoware_message(points, 1_700_000_000_000_000_000, "odom")
        third = message.points[2]
        assert (message.header.stamp.sec, message.header.frame_id, len(message.points)) == (1_700_000_000, "odom", 64)
        assert (third.time_from_start.sec, third.time_from_start.nanosec) == (0, 300_000_000)
        assert third.pose.position.x == pytest.approx(1.5)
        assert (third.longitudinal_velocity_mps, third.acceleration_mps2) == (5.0, 0.5)
        assert third.heading_rate_rps == pytest.approx(0.1)

    def test_it_is_published_beside_the_others_and_empty_when_there_is_none(self, live):
        live.node(**{"output.autoware_trajectory": True, "output.empty_after_skips": 2})
        driver = live.driver()
        heard = []
        driver.create_subscription(autoware.Trajectory, "/alpamayo/output/autoware_trajectory", heard.append, 100)
        wait_until(lambda: driver.count_publishers("/alpamayo/output/autoware_trajectory"), "its publisher")
        t0 = driver.play()
        wait_until(lambda: any(stamp_ns(each.header.stamp) == t0 for each in heard), lambda: f"t0; heard {heard[-1:]}")
        driver.play(seconds=0.5, w=math.nan)
        wait_until(lambda: any(not each.points for each in heard), lambda: f"an empty one; heard {heard[-1:]}")

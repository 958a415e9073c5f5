"""What RViz shows of a tick, and of a tick that could not be."""

import numpy as np
import pytest
from scenes import observation
from visualization_msgs.msg import Marker

from alpamayo_ros.core.tick_shapes import speed_colors
from alpamayo_ros.core.trajectory_points import trajectory_points
from alpamayo_ros.core.types import SamplingOptions
from alpamayo_ros.engine.null_engine import NullEngine
from alpamayo_ros.ros.markers import marker_array, skip_marker

SCENE = observation(speed=10.0)  # in odom at (100, 50), looking along y


def markers(samples=5, pose=SCENE.pose, reasoning="Keep the speed."):
    made = NullEngine().predict(SCENE, SamplingOptions(num_samples=samples))
    all_points = [
        trajectory_points(made.xyz[k], made.rotation[k], made.actions[k], made.speed[k], pose) for k in range(samples)
    ]
    array = marker_array(all_points[0], all_points, reasoning, pose, 5, "odom" if pose else "base_link")
    return [marker for marker in array.markers if marker.action == Marker.ADD], all_points


def named(found, name):
    return [marker for marker in found if marker.ns == name]


def test_the_path_is_a_line_with_a_colour_for_each_speed():
    found, points = markers()
    (path,) = named(found, "path")
    assert len(path.points) == len(path.colors) == 64
    assert path.points[0].y == pytest.approx(51.0)
    assert path.points[-1].y == pytest.approx(points[0].position[-1, 1])


def test_colours_go_from_red_at_standstill_to_blue_when_fast():
    stands, walks, drives, races = speed_colors(np.array([0.0, 2.0, 15.0, 30.0]), 0.5).tolist()
    red, green, blue, alpha = range(4)
    assert stands[red] > 0.8 > stands[green] + stands[blue]
    assert walks[green] > stands[green]
    assert drives[green] > drives[blue]
    assert races[blue] > races[red]
    assert races[alpha] == 0.5
    assert speed_colors(np.array([-3.0]), 1.0)[0, red] == speed_colors(np.array([0.0]), 1.0)[0, red]


def test_the_ribbon_is_as_wide_as_the_vehicle_and_has_two_triangles_a_step():
    (ribbon,) = named(markers()[0], "ribbon")
    assert ribbon.type == Marker.TRIANGLE_LIST
    assert len(ribbon.points) == len(ribbon.colors) == 6 * 63
    left, right = ribbon.points[0], ribbon.points[1]
    assert (left.x, right.x) == pytest.approx((99.1, 100.9))  # looking along y, left is towards -x
    assert left.y == pytest.approx(right.y)


def test_samples_fade_with_their_distance_from_the_chosen_one():
    fan = named(markers()[0], "candidates")
    alpha = [marker.color.a for marker in fan]
    assert [marker.id for marker in fan] == [0, 1, 2, 3, 4]
    assert alpha[0] == pytest.approx(0.7)
    assert alpha[0] > alpha[1] > alpha[3] >= 0.25  # 1 and 2 curve by 0.005 1/m, 3 and 4 by 0.01
    assert alpha[1] == pytest.approx(alpha[2], rel=1e-3)


def test_reasoning_stands_above_the_vehicle_in_lines_that_can_be_read():
    said = "Nudge to the left to increase clearance from the parked vehicles on the right, then keep the lane."
    (text,) = named(markers(reasoning=said)[0], "reasoning")
    assert (text.pose.position.x, text.pose.position.y, text.pose.position.z) == (100.0, 50.0, 3.0)
    assert text.text.split() == said.split()
    assert max(map(len, text.text.split("\n"))) <= 60
    assert named(markers(reasoning="")[0], "reasoning") == []


def test_a_skip_is_told_in_red_until_the_next_path():
    (skip,) = skip_marker("camera_stale", np.array([1.0, 2.0, 0.5]), 7, "odom").markers
    assert skip.text == "no path: camera_stale"
    assert skip.color.r > 0.9 > skip.color.g + skip.color.b
    assert (skip.lifetime.sec, skip.lifetime.nanosec) == (0, 0)
    assert skip.pose.position.z == 3.5
    assert not skip.frame_locked
    (unplaced,) = skip_marker("waiting_for_camera", None, 7, "base_link").markers
    assert unplaced.frame_locked

"""The node in operation: what a vehicle sends comes back as paths, or as the reason why there is none."""

import sys
import threading
import time
from concurrent.futures import Future

import numpy as np
import pytest
from alpamayo_ros.srv import Ask
from drives import decode_all
from live import LATCHED, STEP_NS, VOLATILE, wait_until
from rclpy.parameter import Parameter
from std_msgs.msg import String
from std_srvs.srv import SetBool, Trigger

from alpamayo_ros.core.incoming import stamp_ns
from alpamayo_ros.core.types import BadImageError, Skip, SkipReason
from alpamayo_ros.engine.null_engine import NullEngine
from alpamayo_ros.ros import serialized, services


def test_frames_and_odometry_become_a_path_stamped_with_the_newest_frame(live):
    live.node()
    driver = live.driver(speed=10.0)
    t0 = driver.play()
    path = driver.wait_for("path", lambda path: stamp_ns(path.header.stamp) == t0)
    assert path.header.frame_id == "odom"
    assert [stamp_ns(pose.header.stamp) for pose in path.poses] == [t0 + (i + 1) * STEP_NS for i in range(64)]
    x = np.array([pose.pose.position.x for pose in path.poses])
    np.testing.assert_allclose(x - driver.x(t0), np.arange(1, 65) * 1.0, atol=0.02)  # 10 m/s


def test_everything_of_one_tick_carries_its_t0(live):
    live.node(**{"sampling.num_samples": 3, "selection": "first"})
    driver = live.driver()
    t0 = driver.play()
    at_t0 = lambda message: stamp_ns(message.header.stamp) == t0  # noqa: E731
    trajectory = driver.wait_for("trajectory", at_t0)
    assert len(trajectory.points) == 64
    assert trajectory.initial_speed == pytest.approx(10, abs=0.1)
    candidates = driver.wait_for("candidates", at_t0)
    assert (len(candidates.candidates), candidates.chosen) == (3, 0)
    assert all(at_t0(candidate) for candidate in candidates.candidates)
    assert list(candidates.reasoning) == ["Keep the speed."] * 3
    assert driver.wait_for("reasoning_stamped", at_t0).text == driver.wait_for("reasoning").data == "Keep the speed."
    markers = driver.wait_for("markers", lambda array: any(at_t0(marker) for marker in array.markers)).markers
    drawn = [marker for marker in markers if marker.action == marker.ADD]
    assert {marker.ns for marker in drawn} == {"path", "ribbon", "candidates", "reasoning"}
    assert all(marker.lifetime.sec > 0 and not marker.frame_locked for marker in drawn)
    assert [marker.ns for marker in markers if marker.action == marker.DELETE] == ["skip"]
    status = driver.wait_for("status", lambda status: status.ok and at_t0(status))
    assert status.cameras[0].name == "front_wide"
    assert status.cameras[0].used >= 4
    assert list(status.stages) == ["wait", "assemble", "predict", "publish"]
    assert abs(status.age_at_publication) < 5


def test_what_a_path_in_another_frame_needs_is_made_when_the_first_pose_comes_and_not_in_its_first_tick(live):
    made = serialized._path_template, serialized._trajectory_template
    node = live.node()
    driver = live.driver()
    driver.send_odometry(node.now_ns(), frame_id="garage")
    wait_until(lambda: node._configured.drive.counts()["odometry"].received, "the pose")
    before = [each.cache_info().misses for each in made]
    t0 = driver.play(frame_id="garage")
    path = driver.wait_for("path", lambda path: stamp_ns(path.header.stamp) == t0)
    assert path.header.frame_id == "garage"
    assert [each.cache_info().misses for each in made] == before


def test_in_base_link_the_path_begins_at_the_vehicle_and_markers_move_with_it(live):
    live.node(output_frame="base_link")
    driver = live.driver(speed=10.0)
    t0 = driver.play()
    path = driver.wait_for("path", lambda path: stamp_ns(path.header.stamp) == t0)
    assert path.header.frame_id == "base_link"
    assert path.poses[0].pose.position.x == pytest.approx(1.0, abs=0.02)
    markers = driver.wait_for("markers", lambda array: any(stamp_ns(m.header.stamp) == t0 for m in array.markers))
    assert all(marker.frame_locked for marker in markers.markers if marker.action == marker.ADD)


def test_a_child_frame_ahead_of_the_axle_is_moved_there(live):
    live.node(**{"odometry.child_to_base": [-2.0, 0.0, 0.0, 0.0, 0.0, 0.0], "output_frame": "odom"})
    driver = live.driver(speed=0.0)
    t0 = driver.play(x=50.0, child_frame_id="gps")
    path = driver.wait_for("path", lambda path: stamp_ns(path.header.stamp) == t0)
    assert path.poses[0].pose.position.x == pytest.approx(48.0)


def test_each_thing_that_is_missing_is_named(live):
    live.node(max_input_age=0.5, **{"output.empty_after_skips": 2})
    driver = live.driver()
    driver.wait_for_skip("waiting_for_camera")
    driver.wait_for_diagnostic("camera front_wide", "waiting_for_camera: nothing on /front yet")
    for step in range(6):
        driver.send_frame(driver.get_clock().now().nanoseconds - (5 - step) * STEP_NS)
        time.sleep(0.01)
    driver.wait_for_skip("waiting_for_odometry")
    empty = driver.wait_for("trajectory", lambda message: not message.points)
    # that of the second skip, whichever that is: a tick may be decided before all of these frames are there
    second = driver.wait_for("status", lambda status: status.ticks_skipped == 2)
    assert second.skip_reason == empty.reason
    (said,) = driver.wait_for("markers", lambda array: array.markers[0].ns == "skip").markers
    assert said.text == f"no path: {empty.reason}"
    driver.wait_for_skip("camera_stale")


def test_an_empty_trajectory_comes_once_with_the_skip_that_is_one_too_many(live, monkeypatch):
    node = live.node(start=False, **{"output.empty_after_skips": 2})
    said = []
    monkeypatch.setattr(node, "_publish_nothing", said.append)
    counts = []
    for in_a_row in (1, 2, 3, 4):
        node._announce(Skip(SkipReason.WAITING_FOR_ODOMETRY), in_a_row)
        counts.append(len(said))
    assert counts == [0, 1, 1, 1]


@pytest.mark.parametrize(
    ("pose", "problem"), [({"x": float("nan")}, "finite"), ({"w": 0.0}, "zero quaternion")], ids=["nan", "zero"]
)
def test_odometry_that_is_no_pose_is_refused_by_name_and_the_node_recovers(live, pose, problem):
    live.node()
    driver = live.driver()
    driver.play(seconds=0.5, **pose)
    status = driver.wait_for("status", lambda status: "bad_odometry" in status.detail)
    assert problem in status.detail
    assert status.odometry_dropped > 0
    assert not driver.received["path"]
    t0 = driver.play()
    driver.wait_for("path", lambda path: stamp_ns(path.header.stamp) == t0)


def test_a_picture_that_can_not_be_decoded_is_never_chosen_again(live):
    failures = []

    def decode_and_note(observation):
        try:
            decode_all(observation)
        except BadImageError:
            failures.append(observation.t0_ns)
            raise

    live.node(make_engine=lambda _: NullEngine(before=decode_and_note))
    driver = live.driver()
    driver.play()
    bad_ns = driver.play(seconds=0.0, data=b"no picture")
    assert "expected a JPEG" in driver.wait_for_skip("bad_image").detail
    t0 = driver.play(seconds=0.5)
    driver.wait_for("path", lambda path: stamp_ns(path.header.stamp) == t0)
    assert failures == [bad_ns]


def test_an_engine_that_raises_is_an_error_with_its_words_and_the_next_tick_works(live):
    faults = ["CUDA out of memory"]

    def fail(observation):
        if faults:
            raise RuntimeError(faults[0])

    live.node(make_engine=lambda _: NullEngine(before=fail))
    driver = live.driver()
    driver.play()
    assert "CUDA out of memory" in driver.wait_for_skip("engine_error").detail
    diagnostic = driver.wait_for_diagnostic("engine", "CUDA out of memory")
    assert diagnostic.level == b"\x02"
    faults.clear()
    t0 = driver.play()
    driver.wait_for("path", lambda path: stamp_ns(path.header.stamp) == t0)


def test_a_slow_engine_takes_the_newest_tick_and_counts_the_replaced_ones(live):
    live.node(make_engine=lambda _: NullEngine(delay=0.25))
    driver = live.driver()
    driver.play()
    driver.play(seconds=1.2)
    status = driver.wait_for("status", lambda status: status.ticks_dropped > 0)
    assert "engine_busy" in status.skip_reasons
    driver.wait_for("path")


def test_disabled_stops_paths_says_so_once_and_enabled_resumes_at_once(live):
    live.node()
    driver = live.driver()
    response = live.call(SetBool, "/alpamayo/set_enabled", SetBool.Request(data=False))
    assert response.success
    driver.wait_for("trajectory", lambda message: message.reason == "disabled" and not message.points)
    driver.play()
    driver.wait_for_skip("disabled")
    assert not driver.received["path"]
    assert live.call(SetBool, "/alpamayo/set_enabled", SetBool.Request(data=True)).success
    t0 = driver.play(seconds=0.4)
    driver.wait_for("path", lambda path: stamp_ns(path.header.stamp) == t0)


def test_reset_forgets_all_inputs_clears_the_markers_and_raises_the_epoch(live):
    live.node()
    driver = live.driver()
    driver.play()
    driver.wait_for("path")
    driver.received["markers"].clear()
    assert live.call(Trigger, "/alpamayo/reset", Trigger.Request()).success
    driver.wait_for("markers", lambda array: any(marker.action == marker.DELETEALL for marker in array.markers))
    driver.wait_for("status", lambda status: status.epoch == 1)
    t0 = driver.play()
    driver.wait_for("path", lambda path: stamp_ns(path.header.stamp) == t0)


def test_a_stream_that_starts_over_resumes_within_one_history(live):
    live.node(max_input_age=60.0, max_result_age=60.0)
    driver = live.driver()
    first = driver.play(seconds=4.0)
    driver.wait_for("path", lambda path: stamp_ns(path.header.stamp) == first)
    again = driver.play(
        seconds=3.0, start_ns=first - 4_000_000_000
    )  # the beginning once more, as a looped bag gives it
    driver.wait_for("path", lambda path: stamp_ns(path.header.stamp) == again)


def test_another_odometry_frame_is_a_reset(live):
    live.node()
    driver = live.driver()
    driver.play()
    driver.wait_for("path")
    t0 = driver.play(frame_id="map")
    path = driver.wait_for("path", lambda path: stamp_ns(path.header.stamp) == t0)
    assert path.header.frame_id == "map"
    assert driver.wait_for("status", lambda status: status.epoch >= 1)


def test_a_question_is_answered_about_the_newest_tick_at_standstill(live):
    live.node()
    driver = live.driver(speed=0.0)
    refused = live.call(Ask, "/alpamayo/ask", Ask.Request(question="What is ahead?"))
    assert (refused.success, "no scene yet" in refused.message) == (False, True)
    t0 = driver.play()
    driver.wait_for("path", lambda path: stamp_ns(path.header.stamp) == t0)
    response = live.call(Ask, "/alpamayo/ask", Ask.Request(question="What is ahead?"))
    assert (response.success, stamp_ns(response.stamp)) == (True, t0)
    assert "no model" in response.answer
    for question, why in ((" ", "it is empty"), ("x" * 10**6, "it has 1000000 characters, expected at most 2000")):
        refused = live.call(Ask, "/alpamayo/ask", Ask.Request(question=question))
        assert (refused.success, refused.message) == (False, f"the question can't be asked: {why}")


def test_the_node_is_disabled_at_once_while_a_question_takes_its_time(live):
    asked, let_go = threading.Event(), threading.Event()

    class Slow(NullEngine):
        def ask(self, *_):
            asked.set()
            assert let_go.wait(20)
            return "A crossing."

    live.node(make_engine=lambda _: Slow())
    driver = live.driver(speed=0.0)
    t0 = driver.play()
    driver.wait_for("path", lambda path: stamp_ns(path.header.stamp) == t0)
    client = driver.create_client(Ask, "/alpamayo/ask")
    assert client.wait_for_service(5)
    answer = client.call_async(Ask.Request(question="What is ahead?"))
    assert asked.wait(5)
    assert live.call(SetBool, "/alpamayo/set_enabled", SetBool.Request(data=False)).success
    assert live.call(Trigger, "/alpamayo/save_ticks", Trigger.Request()).message
    assert not answer.done()
    let_go.set()
    wait_until(answer.done, "the answer")
    assert answer.result().answer == "A crossing."


def test_an_answer_that_does_not_come_in_time_is_said_by_either_service(live, monkeypatch):
    let_go = threading.Event()

    class Slow(NullEngine):
        def ask(self, *_):
            assert let_go.wait(20)
            return "A crossing."

    monkeypatch.setattr(services, "ASK_TIMEOUT", 0.1)
    monkeypatch.setattr(services, "SAVE_TIMEOUT", 0.2)
    node = live.node(make_engine=lambda _: Slow())
    monkeypatch.setattr(node._configured.recorder, "save", Future)  # never done
    driver = live.driver(speed=0.0)
    t0 = driver.play()
    driver.wait_for("path", lambda path: stamp_ns(path.header.stamp) == t0)
    answer = live.call(Ask, "/alpamayo/ask", Ask.Request(question="What is ahead?"))
    assert (answer.success, answer.message, answer.answer) == (False, "no answer within 0.1 s", "")
    saved = live.call(Trigger, "/alpamayo/save_ticks", Trigger.Request())
    assert (saved.success, saved.message) == (False, "not written within 0.2 s")
    let_go.set()


def test_services_go_on_after_a_callback_that_exits(live, monkeypatch):
    node = live.node()
    driver = live.driver()
    called = threading.Event()

    def leave(_):
        called.set()
        sys.exit(1)

    client = driver.create_client(Trigger, "/alpamayo/reset")
    assert client.wait_for_service(5)
    with monkeypatch.context() as broken:
        broken.setattr(node._configured.drive, "reset", leave)
        client.call_async(Trigger.Request())
        assert called.wait(5)
    assert live.call(Trigger, "/alpamayo/reset", Trigger.Request()).success
    t0 = driver.play()
    driver.wait_for("path", lambda path: stamp_ns(path.header.stamp) == t0)


def test_a_question_while_moving_is_refused_until_the_parameter_allows_it(live):
    node = live.node()
    driver = live.driver(speed=10.0)
    t0 = driver.play()
    driver.wait_for("path", lambda path: stamp_ns(path.header.stamp) == t0)
    refused = live.call(Ask, "/alpamayo/ask", Ask.Request(question="What is ahead?"))
    assert not refused.success
    assert "moves at 10.0 m/s" in refused.message
    assert "ask.while_moving" in refused.message
    assert node.set_parameters([Parameter("ask.while_moving", value=True)])[0].successful
    assert live.call(Ask, "/alpamayo/ask", Ask.Request(question="What is ahead?")).success


def test_an_engine_beyond_its_deadline_is_said_while_it_still_runs(live):
    gate = threading.Event()
    live.node(make_engine=lambda _: NullEngine(before=lambda _: gate.wait(20)), **{"engine.deadline": 0.2})
    driver = live.driver()
    try:
        driver.play()
        status = driver.wait_for_skip("deadline_missed")
        assert "still running" in status.detail
        assert not status.ok
        driver.wait_for("trajectory", lambda message: message.reason == "deadline_missed" and not message.points)
        assert driver.wait_for_diagnostic("engine", "deadline_missed").level == b"\x02"
    finally:
        gate.set()
    t0 = driver.play()
    driver.wait_for("path", lambda path: stamp_ns(path.header.stamp) == t0)


def test_a_latched_navigation_text_and_a_volatile_one_both_arrive_once(live):
    node = live.node()
    driver = live.driver()
    heard = []
    drive = node._configured.drive
    keep, drive.set_navigation = drive.set_navigation, lambda text: (heard.append(text), keep(text))
    latched = driver.create_publisher(String, "/alpamayo/input/navigation", LATCHED)
    latched.publish(String(data="Turn left"))  # before anybody is matched
    wait_until(lambda: heard == ["Turn left"], lambda: f"the latched text, heard {heard}")
    volatile = driver.create_publisher(String, "/alpamayo/input/navigation", VOLATILE)

    def go_straight():
        volatile.publish(String(data="Go straight"))  # until they have met, a volatile publisher speaks to nobody
        time.sleep(0.05)
        return "Go straight" in heard

    wait_until(go_straight, lambda: f"the volatile text, heard {heard}")
    latched.publish(String(data="Turn right"))
    wait_until(lambda: "Turn right" in heard, lambda: f"the latched text again, heard {heard}")
    time.sleep(0.2)
    assert (heard.count("Turn left"), heard.count("Turn right")) == (1, 1)
    status = driver.wait_for("status", lambda status: status.navigation == "Turn right")
    assert status.navigation_age < 5


def test_status_and_diagnostics_say_that_it_is_loading_while_it_loads(live):
    gate = threading.Event()

    class SlowToLoad(NullEngine):
        def warm_up(self):
            assert gate.wait(20)

    node = live.node(make_engine=lambda _: SlowToLoad(), start=False)
    driver = live.driver(connect=False)
    driver.wait_for("status", lambda status: status.lifecycle_state == "unconfigured")
    start = threading.Thread(target=node.autostart)
    start.start()
    status = driver.wait_for("status", lambda status: status.lifecycle_state == "configuring")
    assert status.skip_reason == "engine_not_ready"
    driver.wait_for_diagnostic("engine", "warming up null on cpu")
    gate.set()
    start.join(10)
    driver.wait_for("status", lambda status: status.lifecycle_state == "active")

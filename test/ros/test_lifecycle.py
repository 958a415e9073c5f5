"""Transitions, in order and out of order, with engines that fail to load."""

import gc
import threading
import weakref

import psutil
import pytest
from lifecycle_msgs.msg import Transition
from lifecycle_msgs.srv import ChangeState, GetState
from live import Live, wait_until
from rclpy.lifecycle import TransitionCallbackReturn

from alpamayo_ros.core.incoming import stamp_ns
from alpamayo_ros.core.types import EngineError
from alpamayo_ros.engine.null_engine import NullEngine
from alpamayo_ros.ros import outputs

SUCCESS, FAILURE = TransitionCallbackReturn.SUCCESS, TransitionCallbackReturn.FAILURE


def test_a_lifecycle_manager_takes_the_node_through_all_states(live):
    node = live.node(start=False, autostart=False)
    driver = live.driver(connect=False)
    change = lambda label: live.call(  # noqa: E731
        ChangeState, "/alpamayo/change_state", ChangeState.Request(transition=Transition(label=label))
    )
    for label, state in (
        ("configure", "inactive"),
        ("activate", "active"),
        ("deactivate", "inactive"),
        ("cleanup", "unconfigured"),
        ("shutdown", "finalized"),
    ):
        assert change(label).success, label
        assert live.call(GetState, "/alpamayo/get_state", GetState.Request()).current_state.label == state
        driver.wait_for("status", lambda status, state=state: status.lifecycle_state == state)
    node.autostart()  # autostart is false: nothing happens
    assert node.state == "finalized"


def test_it_drives_again_after_deactivate_and_after_cleanup(live):
    node = live.node()
    driver = live.driver()
    for again in ("deactivate", "cleanup"):
        t0 = driver.play()
        driver.wait_for("path", lambda path, t0=t0: stamp_ns(path.header.stamp) == t0)
        assert node.trigger_deactivate() == SUCCESS
        driver.wait_for("markers", lambda array: any(marker.action == marker.DELETEALL for marker in array.markers))
        driver.received["path"].clear()
        driver.play(seconds=0.5)
        assert not driver.received["path"]
        if again == "cleanup":
            assert node.trigger_cleanup() == SUCCESS
            assert node.trigger_configure() == SUCCESS
        assert node.trigger_activate() == SUCCESS
        driver.connect()
    t0 = driver.play()
    driver.wait_for("path", lambda path: stamp_ns(path.header.stamp) == t0)


def test_cleanup_closes_the_engine(live):
    closed = []

    class Closing(NullEngine):
        def close(self):
            closed.append(True)

    node = live.node(make_engine=lambda _: Closing())
    node.trigger_deactivate()
    assert not closed
    node.trigger_cleanup()
    assert closed == [True]


@pytest.mark.parametrize("stage", ["load", "warm up"])
@pytest.mark.parametrize("kind", [EngineError, MemoryError, SystemExit])
def test_an_engine_that_fails_to_load_leaves_the_node_unconfigured_with_the_reason_and_may_be_tried_again(
    live, stage, kind
):
    faults = [kind("model.safetensors has no tensor expert.norm.weight")]

    class Failing(NullEngine):
        def warm_up(self):
            if stage == "warm up" and faults:
                raise faults.pop()

    def make_engine(settings):
        if stage == "load" and faults:
            raise faults.pop()
        return Failing()

    node = live.node(make_engine=make_engine, start=False)
    driver = live.driver(connect=False)
    assert node.trigger_configure() == FAILURE
    assert node.state == "unconfigured"
    diagnostic = driver.wait_for_diagnostic("engine", "has no tensor expert.norm.weight")
    assert diagnostic.level == b"\x02"
    status = driver.wait_for_skip("engine_not_ready")
    assert "expert.norm.weight" in status.engine
    node.autostart()
    assert node.state == "active"


@pytest.mark.parametrize(
    "where",
    [
        "serialized.warm_up",
        "overlay.Overlay._subscribe",
        "configured.Outputs",
        "outputs.TOPICS",
        "configured.TickRecorder",
        "configured.Drive",
        "configured.Inputs",
        "configured.TickLog",
        "configured.gc.freeze",
        "node.LifecycleNodeMixin.on_configure",
    ],
)
def test_what_configuring_has_begun_ends_when_a_later_step_fails(live, monkeypatch, where):
    """A second engine beside the first may find no memory, its process and threads would stay, and topics twice."""
    engines = []

    class Counted(NullEngine):
        def __init__(self):
            super().__init__()
            engines.append(self)

        def close(self):
            engines.remove(self)

    def fail(*_, **__):
        raise ValueError("this ROS middleware doesn't write messages as CDR")

    def begun():
        threads = {
            thread for thread in threading.enumerate() if thread.name in ("overlay", "engine", "prepare", "news")
        }
        entities = {*node.publishers, *node.subscriptions, *node._managed_entities}
        return threads, entities, len(engines), gc.get_freeze_count()

    parameters = {"overlay.publish": True, "recorder.ticks": 2}
    node = live.node(make_engine=lambda _: Counted(), start=False, **parameters)
    before = begun()
    with monkeypatch.context() as broken:
        if where == "outputs.TOPICS":
            broken.setitem(outputs.TOPICS, "of_no_type", int)  # the last one, when all others are there
        else:
            broken.setattr(f"alpamayo_ros.ros.{where}", fail)
        assert node.trigger_configure() == FAILURE
    assert begun() == before
    node.autostart()
    assert node.state == "active"
    assert len(engines) == 1


@pytest.mark.parametrize("kind", [RuntimeError, SystemExit])
def test_what_activating_has_begun_ends_when_a_later_step_fails(live, monkeypatch, kind):
    node = live.node(start=False)
    assert node.trigger_configure() == SUCCESS
    before = set(node.subscriptions)

    def fail(*_):
        raise kind("no more of these")

    with monkeypatch.context() as broken:
        broken.setattr("alpamayo_ros.ros.inputs.Inputs._on_frame", fail)
        assert node.trigger_activate() == FAILURE
    assert node.state == "inactive"
    assert set(node.subscriptions) == before
    assert not any(publisher.is_activated for publisher in node._managed_entities)
    assert node.trigger_activate() == SUCCESS


def test_fifty_starts_and_stops_while_messages_arrive(live):
    node = live.node()
    driver = live.driver()
    for _ in range(50):
        driver.send_frame(driver.get_clock().now().nanoseconds)
        driver.send_odometry(driver.get_clock().now().nanoseconds)
        assert node.trigger_deactivate() == SUCCESS
        assert node.trigger_activate() == SUCCESS
    driver.connect()
    t0 = driver.play()
    driver.wait_for("path", lambda path: stamp_ns(path.header.stamp) == t0)


def test_what_an_engine_held_is_free_after_cleanup_also_where_it_referred_to_itself(live):
    class Cyclic(NullEngine):
        def __init__(self):
            super().__init__()
            self.itself = self

    engines = []

    def make_engine(settings):
        engine = Cyclic()
        engines.append(weakref.ref(engine))
        return engine

    node = live.node(make_engine=make_engine)
    assert node.trigger_deactivate() == SUCCESS
    assert node.trigger_cleanup() == SUCCESS
    # a heartbeat under way may have looked at it when the node collected
    wait_until(lambda: gc.collect() >= 0 and engines[0]() is None, "the engine to be free")


def test_nodes_that_have_ended_leave_no_dds_participant_and_nothing_frozen_behind(ros_domain):
    """With 32 participants in a process, those of LOCALHOST discovery find each other no more."""

    def threads_after_a_node():
        live = Live(ros_domain)
        live.node()
        live.close()
        return psutil.Process().num_threads()

    first = threads_after_a_node()  # with what a process loads once
    gc.disable()  # it must not depend on a collection
    try:
        assert [threads_after_a_node() for _ in range(3)] == [first] * 3
    finally:
        gc.enable()
    assert gc.get_freeze_count() == 0

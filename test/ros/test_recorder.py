"""The recorder in a running node: files appear when a tick fails, and when the service is called."""

import time

import pytest
from live import JPEG
from std_srvs.srv import Trigger

from alpamayo_ros.core.incoming import stamp_ns
from alpamayo_ros.core.types import EngineError
from alpamayo_ros.engine.null_engine import NullEngine
from alpamayo_ros.engine.tick_file import read_ticks


def recording(folder):
    return {"recorder.ticks": 4, "recorder.folder": str(folder)}


def save(live):
    return live.call(Trigger, "/alpamayo/save_ticks", Trigger.Request())


def test_the_service_writes_the_last_ticks_with_their_images(live, tmp_path):
    live.node(parameters=recording(tmp_path))
    driver = live.driver()
    t0 = driver.play()
    driver.wait_for("path", lambda path: stamp_ns(path.header.stamp) == t0)
    response = save(live)
    assert response.success, response.message
    got = read_ticks(tmp_path / response.message.rpartition("/")[2])
    assert 1 <= len(got.ticks) <= 4
    newest = got.ticks[-1]
    assert newest.observation.t0_ns == t0
    assert [bytes(frame.data) for frame in newest.observation.frames[1]] == [JPEG] * 4
    assert newest.prediction is not None
    assert newest.options.num_samples == 2
    assert got.settings["cameras.front_wide.topic"] == "/front"


@pytest.mark.parametrize("folder_is_there", [True, False])
def test_an_engine_error_writes_a_file_and_one_that_cannot_be_written_is_no_reason_to_stop(
    live, tmp_path, folder_is_there
):
    faults = [EngineError("out of memory")]

    def fail_once(_):
        if faults:
            raise faults.pop()

    folder = tmp_path / "ticks"
    if not folder_is_there:
        folder.write_text("a file is in the way")
    node = live.node(make_engine=lambda _: NullEngine(before=fail_once), parameters=recording(folder))
    driver = live.driver()
    driver.play()
    driver.wait_for_skip("engine_error")
    if folder_is_there:
        deadline = time.monotonic() + 8
        while not (found := list(folder.glob("*.ticks.zip"))):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        (failed,) = [tick for tick in read_ticks(found[0]).ticks if tick.error]
        assert failed.error == "EngineError: out of memory"
    t0 = driver.play()
    driver.wait_for("path", lambda path: stamp_ns(path.header.stamp) == t0)
    assert node.state == "active"


def test_the_service_says_why_it_cannot(live):
    node = live.node(start=False)
    live.driver(connect=False)
    assert save(live).message == "no ticks to save: the node is unconfigured"
    node.autostart()
    response = save(live)
    assert not response.success
    assert "recorder.ticks is 0" in response.message

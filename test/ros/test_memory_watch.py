import time

import pytest

from alpamayo_ros.ros.memory_watch import MemoryWatch

GB = 1 << 30


@pytest.fixture
def clock(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


def test_what_the_first_minute_takes_is_not_growth(clock):
    watch = MemoryWatch()
    for used in (20 * GB, 22 * GB, 24 * GB):
        clock[0] += 20
        assert watch.check(used) == ""
    clock[0] += 60
    assert watch.check(24 * GB) == ""
    assert watch.check(25 * GB) == "", "a few per cent"


def test_growth_afterwards_is_named_with_its_size(clock):
    watch = MemoryWatch()
    watch.check(20 * GB)
    clock[0] += 61
    assert "grown by 2048 MB to 22528 MB" in watch.check(22 * GB)


def test_an_engine_that_is_loaded_anew_begins_anew(clock):
    watch = MemoryWatch()
    watch.check(20 * GB)
    watch.check(0)
    clock[0] += 100
    assert watch.check(30 * GB) == ""


def test_without_a_device_nothing_is_said(clock):
    watch = MemoryWatch()
    for _ in range(5):
        clock[0] += 60
        assert watch.check(0) == ""

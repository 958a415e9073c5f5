import gc
import subprocess
import sys
import threading
import weakref
from contextlib import suppress

import pytest
import torch

from alpamayo_ros.engine.device import device_index
from alpamayo_ros.engine.native.own_thread import OwnThread


def test_all_work_is_done_in_one_thread_that_began_as_told() -> None:
    began: list[int] = []
    thread = OwnThread("its", lambda: began.append(threading.get_ident()))
    there = {thread.run(threading.get_ident) for _ in range(3)}
    assert there == set(began)
    assert threading.get_ident() not in there
    assert thread.run(divmod, 7, 2) == (3, 1)
    thread.close()
    assert "its" not in {each.name for each in threading.enumerate()}


def test_what_fails_is_raised_where_it_was_asked_for_and_the_next_is_done() -> None:
    thread = OwnThread("its", lambda: None)
    with pytest.raises(ZeroDivisionError):
        thread.run(divmod, 1, 0)
    assert thread.run(divmod, 1, 1) == (1, 0)
    thread.close()


def test_a_thread_that_could_not_begin_is_nobodys() -> None:
    """Who asked it for something would wait for ever."""
    with pytest.raises(KeyError, match="device"):
        OwnThread("its", lambda: {}["device"])
    assert "its" not in {each.name for each in threading.enumerate()}


@pytest.mark.parametrize(("device", "index"), [("cpu", None), ("cuda", 1), ("cuda:0", 0), ("cuda:3", 3)])
def test_a_thread_is_told_its_device_by_number(monkeypatch: pytest.MonkeyPatch, device: str, index: int | None) -> None:
    """`torch.cuda.set_device` takes no device without one."""
    monkeypatch.setattr("torch.cuda.current_device", lambda: 1)
    assert device_index(torch.device(device)) == index


def test_nothing_is_held_that_was_done() -> None:
    class Thing:
        pass

    thread, thing = OwnThread("its", lambda: None), Thing()
    gone = weakref.ref(thing)
    thread.run(id, thing)
    del thing
    assert thread.run(gone) is None
    thread.close()


def test_nothing_is_held_of_what_failed() -> None:
    """At once: what a prompt took that didn't fit into memory is wanted for the next one."""

    class Thing:
        pass

    held: list[weakref.ref[Thing]] = []

    def fail() -> None:
        thing = Thing()
        held.append(weakref.ref(thing))
        raise MemoryError("no room")

    thread = OwnThread("its", lambda: None)
    gc.disable()
    try:
        with suppress(MemoryError):
            thread.run(fail)
        thread.run(len, ())  # the thread is past what it did before
        assert held[0]() is None
    finally:
        gc.enable()
        thread.close()


def test_a_closed_thread_refuses_what_it_is_asked() -> None:
    thread = OwnThread("its", lambda: None)
    thread.close()
    with pytest.raises(RuntimeError, match="the thread 'its' is closed"):
        thread.run(divmod, 7, 2)


def test_work_that_never_ends_does_not_hold_up_the_process() -> None:
    program = """
import threading
from alpamayo_ros.engine.native.own_thread import OwnThread
thread, begun = OwnThread("its", lambda: None), threading.Event()
def hang():
    begun.set()
    threading.Event().wait()
threading.Thread(target=thread.run, args=(hang,), daemon=True).start()
begun.wait()
"""
    assert subprocess.run([sys.executable, "-c", program], timeout=60).returncode == 0

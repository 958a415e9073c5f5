import subprocess
import sys
import threading
import weakref

import pytest

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


def test_a_thread_that_could_not_begin_says_so_to_who_asks() -> None:
    thread = OwnThread("its", lambda: {}["device"])
    for _ in range(2):
        with pytest.raises(KeyError, match="device"):
            thread.run(divmod, 1, 1)
    thread.close()


def test_nothing_is_held_that_was_done() -> None:
    class Thing:
        pass

    thread, thing = OwnThread("its", lambda: None), Thing()
    gone = weakref.ref(thing)
    thread.run(id, thing)
    del thing
    assert thread.run(gone) is None
    thread.close()


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

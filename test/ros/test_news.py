"""News of ticks is told in its order by a thread of its own, and holds up no tick."""

import threading

from ride import Ride
from scenarios import frames, odometry

from alpamayo_ros.ros.news import News
from alpamayo_ros.ros.report import TickReport


def test_all_is_told_in_its_order_before_the_thread_ends():
    told = []
    news = News(told.append)
    ticks = [TickReport(t0_ns=number) for number in range(100)]
    for tick in ticks:
        news.add(tick)
    assert news.stop(timeout=5)
    assert told == ticks
    assert news.stop(timeout=5), "again"


def test_what_can_not_be_told_is_logged_and_the_next_goes_out(caplog):
    told = []

    def tell(tick):
        if tick.t0_ns == 1:
            raise RuntimeError("planted")
        told.append(tick.t0_ns)

    news = News(tell)
    for number in (1, 2):
        news.add(TickReport(t0_ns=number))
    assert news.stop(timeout=5)
    assert told == [2]
    assert "planted" in caplog.text


def test_news_that_takes_long_is_said_to_be_under_way():
    going_on = threading.Event()
    news = News(lambda tick: going_on.wait(5))
    news.add(TickReport())
    assert not news.stop(timeout=0.05)
    going_on.set()
    assert news.stop(timeout=5)


def test_ticks_go_on_while_the_last_one_is_being_told():
    ride, going_on, told = Ride("wide"), threading.Event(), []
    ride.tell = lambda tick: (going_on.wait(5), told.append(tick))
    ride.play(frames("wide", 10, 3.5) + odometry(seconds=3.5))
    published = ride.t0s()
    assert len(published) > 10
    assert told == []
    going_on.set()
    ride.close()
    t0s = [round(tick.t0_ns * 1e-9, 6) for tick in told if tick.ok]
    assert t0s == published, "each as it was, not as things are when it is told"

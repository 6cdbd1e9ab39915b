"""A direct source that is stopped lands what its receiver has taken from outside, which nobody has any more."""

import threading

import pytest

from headrace.base.errors import HeadraceError
from headrace.connect.messages.direct import WhenFull, run_direct


class Topic:
    """A landing that always has room."""

    def has_room(self):
        return True

    def report(self, **counts):
        pass


def test_what_is_in_the_receivers_hands_when_the_source_stops_is_landed():
    stop, taken, landed = threading.Event(), threading.Event(), []

    def receive(waiting, ending):
        taken.set()  # a message was taken from the socket …
        assert ending.wait(10)
        waiting.put("in its hands")  # … and is put into the buffer when the source is stopping

    stopper = threading.Thread(target=lambda: taken.wait(10) and stop.set())
    stopper.start()
    run_direct(Topic(), stop, WhenFull("block", 1_000), receive=receive, land=landed.extend)
    stopper.join()
    assert landed == ["in its hands"]


def test_a_receiver_that_waits_for_room_when_the_source_stops_loses_nothing():
    stop, landed = threading.Event(), []

    class Full(Topic):
        """Has no room until the source stops."""

        def has_room(self):
            return stop.is_set()

    def receive(waiting, ending):
        waiting.put("first")
        stop.set()
        waiting.put("second")  # the buffer is full
        waiting.put("third")
        assert ending.wait(10)

    run_direct(Full(), stop, WhenFull("block", 1), receive=receive, land=landed.extend)
    assert landed == ["first", "second", "third"]


def test_a_landing_that_fails_while_the_source_stops_ends_the_receiver():
    stop, ended = threading.Event(), threading.Event()

    def receive(waiting, ending):  # noqa: ARG001 -- it looks at nothing
        waiting.put("first")
        stop.set()
        while waiting.put("more"):  # as long as somebody takes it
            pass
        ended.set()

    def land(received):  # noqa: ARG001 -- nothing is landed
        raise HeadraceError("the disk is full")

    with pytest.raises(HeadraceError, match="the disk is full"):
        run_direct(Topic(), stop, WhenFull("block", 1), receive=receive, land=land)
    assert ended.is_set()

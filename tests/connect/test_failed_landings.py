"""A direct source whose landing fails: what it had received, and nobody has any more, is counted as dropped."""

import errno
import socket
import threading

import pytest

from broker_cases import Filled, bodies, ids_of, until
from headrace.base.errors import HeadraceError
from headrace.connect import udp
from headrace.connect.messages.direct import WhenFull, run_direct
from headrace.log.appending import writer


class Topic:
    """A landing that always has room, and keeps what is counted."""

    def __init__(self):
        self.counted = {}

    def has_room(self):
        return True

    def report(self, **counts):
        self.counted = counts


@pytest.mark.parametrize("on_full", ["block", "drop_oldest", "drop_newest", "spill"])
def test_what_was_taken_what_waits_and_what_the_receiver_still_has_are_counted(on_full):
    """Three entries of ten records: one is being landed, one waits, one is put in when the landing has failed."""
    topic, waits, fails = Topic(), threading.Event(), threading.Event()

    def receive(waiting, ending):
        waiting.put("taken", weight=1, records=10)
        assert fails.wait(10)
        waiting.put("waits", weight=1, records=10)
        waits.set()
        assert ending.wait(10)
        waiting.put("in its hands", weight=1, records=10)

    def land(received):
        assert received == ["taken"]
        fails.set()
        assert waits.wait(10)
        raise HeadraceError("the disk is full")

    with pytest.raises(HeadraceError, match="the disk is full"):
        run_direct(topic, threading.Event(), WhenFull(on_full, 1), receive=receive, land=land)
    assert topic.counted == {"dropped": 30}


def test_what_is_landed_last_and_fails_is_counted():
    """The landing fails while the source stops, after one that did not."""
    topic, stop, landed = Topic(), threading.Event(), []

    def receive(waiting, ending):
        waiting.put("first", records=3)
        assert ending.wait(10)
        waiting.put("last", records=4)

    def land(received):
        if landed:
            raise HeadraceError("the disk is full")
        landed.extend(received)
        stop.set()

    with pytest.raises(HeadraceError, match="the disk is full"):
        run_direct(topic, stop, WhenFull("block", 1_000), receive=receive, land=land)
    assert landed == ["first"]
    assert topic.counted == {"dropped": 4}


def test_a_full_disk_drops_datagrams_that_status_counts_when_the_feed_runs_again(tmp_path, monkeypatch):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    written, refusing = writer.write_at, threading.Event()

    def full(*given, **how):
        if refusing.is_set():
            raise OSError(errno.ENOSPC, "No space left on device")
        written(*given, **how)

    monkeypatch.setattr(writer, "write_at", full)

    def send(*ids):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            for body in bodies(ids):
                sender.sendto(body, ("127.0.0.1", port))

    with Filled(tmp_path / "log").by(udp.datagrams(f"udp://127.0.0.1:{port}")) as run:
        for at in (0, 10):  # the first append of a run is noted before it is made, and landed later where it fails
            until(lambda: run.status()["state"] == "running")
            send(at)
            until(lambda at=at: at in ids_of(run.log))
            refusing.set()
            send(at + 1)
            until(lambda: run.status()["state"] == "retrying")
            refusing.clear()
        until(lambda: run.status()["state"] == "running")
        send(20)
        run.has([0, 10, 20])
        assert run.status()["dropped"] == 2, "each run adds what it has dropped"

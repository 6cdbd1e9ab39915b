"""How often the outside is asked, what the pace counts, and what a crash of a landing leaves."""

from __future__ import annotations

import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest

import headrace as hr
from headrace.base.errors import InvalidRows
from headrace.connect.embedded import EmbeddedTopics
from headrace.connect.embedded.source import EmbeddedReader
from headrace.connect.feed import DeadRecord
from headrace.connect.topics import TopicSpec
from headrace.engine.operation.status import describe
from headrace.testing import Driver
from headrace.testing.connectors import COLUMNS

ROWS = "k string, at timestamp"


def counting_app(sink=None):
    app = hr.App("asks", storage="unused", shards=1)
    rows = app.stream("t", ROWS, event_time="at")
    rows.group_by("k").agg(n="count(*)").named("counts").to_view("counts")
    if sink is not None:
        rows.to(sink)
    return app


def asked(driver):
    """Count the calls of `bounds`."""
    reader = driver._engine.inputs.reader("t")
    plain, calls = reader.bounds, []

    def bounds():
        calls.append(1)
        return plain()

    reader.bounds = bounds
    return reader, calls


def test_bounds_are_asked_once_a_planning():
    with Driver(counting_app()) as driver:
        _, calls = asked(driver)
        for n in range(1, 5):
            driver.send("t", {"k": "a", "at": n})
            driver.step()
            assert len(calls) == n, "planning, watermarks, loss and commit of an epoch have one answer"


def test_a_source_that_is_far_away_is_asked_again_only_after_a_while():
    with Driver(counting_app()) as driver:
        reader, calls = asked(driver)
        reader.poll_seconds = 0.5
        for _ in range(20):
            assert driver._engine.caught_up
        assert len(calls) == 1
        driver.send("t", {"k": "a", "at": 1})
        assert driver._engine.caught_up, "the answer still serves"
        driver.advance(0.5)
        assert not driver._engine.caught_up
        assert len(calls) == 2


def test_a_table_is_asked_after_its_stream_also_where_another_thread_asked_for_the_stream():
    """Else a record of the stream is looked up in a table without the record that was stored before it."""
    app = hr.App("lookup", storage="unused", shards=1)
    app.stream("l", "k int, l string").join(app.table("r", "k int, r string", key="k"), on="k").to_topic("out")
    with Driver(app) as driver, ThreadPoolExecutor(1) as other:
        engine, asked, planned = driver._engine, threading.Event(), threading.Event()
        stream, table = engine.inputs.reader("l"), engine.inputs.reader("r")
        stream.poll_seconds = table.poll_seconds = 0.5
        assert engine.caught_up
        plain = table.settled_bounds

        def settled_bounds():
            if threading.current_thread() is not threading.main_thread():
                asked.set()
                planned.wait(0.5)
            return plain()

        table.settled_bounds = settled_bounds
        driver.send("r", {"k": 1, "r": "a"})
        driver.send("l", {"k": 1, "l": "A"})
        waiting = other.submit(engine.has_caught_up, again=True)
        assert asked.wait(10)
        driver.step()
        planned.set()
        assert waiting.result() in (True, False)
        driver.run()
        assert [(row["l"], row["r"]) for row in driver.read("out")] == [("A", "a")]


def test_readers_are_asked_by_one_thread_at_a_time(monkeypatch):
    """So a reader may have one connection: `status` and `await_caught_up` ask in the threads of who calls them."""
    inside, overlaps = [], []

    def watched(method):
        def call(self, *given, **named):
            inside.append(self)
            time.sleep(0.001)
            overlaps.append(len(set(map(id, inside))) < len(inside))
            try:
                return method(self, *given, **named)
            finally:
                inside.remove(self)

        return call

    for name in ("bounds", "starts", "align", "max_event_time", "lost", "committed"):
        monkeypatch.setattr(EmbeddedReader, name, watched(getattr(EmbeddedReader, name)))
    with Driver(counting_app()) as driver, ThreadPoolExecutor(2) as others:
        engine = driver._engine
        for n in range(10):
            driver.send("t", {"k": "a", "at": n})
            calls = [others.submit(describe, engine.plan, engine.last, engine.inputs) for _ in range(4)]
            calls += [others.submit(engine.has_caught_up, again=True) for _ in range(4)]
            driver.step()
            assert all(each.result() is not None for each in calls)
    assert overlaps
    assert not any(overlaps)


class Slow:
    """Takes ten seconds for an epoch, by the clock."""

    clock = None

    def write(self, epoch, rows):  # noqa: ARG002 -- what a sink is given
        self.clock.sleep(10)


def test_the_pace_counts_publishing():
    sink = Slow()
    with Driver(counting_app(sink)) as driver:
        sink.clock = driver.clock
        first = driver._engine.last.limit
        for n in range(4):
            driver.send("t", *({"k": "a", "at": n} for _ in range(5_000)))
            driver.step()
        assert driver._engine.last.limit < first / 4, "epochs have fewer rows, so that each is published in time"


# ---- landings ----


class Died(BaseException):
    """The process died."""


@pytest.mark.parametrize("point", ["before_landing", "during_landing", "after_landing"])
@pytest.mark.parametrize("again", [2, 5], ids=["cut as before", "cut otherwise"])
def test_a_landing_that_dies_lands_each_record_once(tmp_path, point, again):
    """The feed goes on from the position, and may cut its records otherwise than before the crash."""
    records = [{"id": i, "text": f"t{i}"} for i in range(12)]
    armed = []

    def fault(here):
        if here in armed:
            armed.clear()
            raise Died

    def open_landing(log):
        topics = EmbeddedTopics(log, partitions=3, fault=fault)
        spec = TopicSpec(name="t", schema=COLUMNS, key=("id",))
        return topics.landing(spec, feed="f", limit=1 << 60, read=lambda: 0)

    def feed(landing, size):
        at = int(landing.position() or b"0")
        while at < len(records):
            part = records[at : at + size]
            dead = [DeadRecord(str(row["id"]), "bad") for row in part if row["id"] == 7]
            good = [row for row in part if row["id"] != 7]
            landing.append(good, position=str(at + size).encode(), dead=dead)
            at += size

    for crash_at in (1, 3):
        with hr.Log(tmp_path / str(crash_at), fsync=False) as log:
            landing = open_landing(log)
            feed_part = records[: 2 * crash_at]
            landing.append(feed_part, position=str(len(feed_part)).encode())
            armed.append(point)
            with pytest.raises(Died):
                feed(landing, 2)
            landing.close()
            landing = open_landing(log)
            feed(landing, again)
            landing.close()
            counts = Counter(
                i
                for p, n in log.topic("t").end_offsets().items()
                for i in log.topic("t").read(p, 0, n)["id"].to_pylist()
            )
            assert counts == Counter(i for i in range(12) if i != 7)
            assert log.topic("t.dead").read(0, 0, 10)["record"].to_pylist() == ["7"]


def test_a_row_that_does_not_fit_leaves_position_and_topic_as_they_were(tmp_path):
    """Also where the process dies before the feed hears of it."""
    for armed in ((), ("during_landing",)):

        def fault(here, armed=armed):
            if here in armed:
                raise Died

        with hr.Log(tmp_path / str(len(armed)), fsync=False) as log:
            spec = TopicSpec(name="t", schema=COLUMNS, key=("id",))
            topics = EmbeddedTopics(log, partitions=1, fault=print)
            landing = topics.landing(spec, feed="f", limit=1 << 60, read=lambda: 0)
            landing.append([{"id": 1, "text": "t1"}], position=b"1")
            landing.fault = fault
            wrong = pa.table({"id": ["x"], "text": ["t2"]})
            with pytest.raises((InvalidRows, Died)):
                landing.append(wrong, position=b"2")
            landing.close()
            landing = topics.landing(spec, feed="f", limit=1 << 60, read=lambda: 0)
            assert landing.position() == b"1"
            landing.append([{"id": 2, "text": "t2"}], position=b"2")
            landing.close()
            assert log.topic("t").read(0, 0, 10)["id"].to_pylist() == [1, 2]

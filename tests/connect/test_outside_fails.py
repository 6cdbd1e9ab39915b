"""What is outside fails for a while, or for good; and what was to be read is gone."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest

import headrace as hr
from headrace.base.errors import FunctionError, InvalidPlan, RecordsGone
from headrace.base.outside import FeedFailed, SinkFailed, Unavailable
from headrace.connect import files
from headrace.connect.feed import Feed
from headrace.engine.publish import GIVE_UP_SECONDS
from headrace.testing import Driver

ROWS = "k string, at timestamp"


class Shaky:
    """An object that fails so many times before it takes rows."""

    def __init__(self, failures, error):
        self.failures, self.error = failures, error
        self.calls, self.taken = 0, []

    def write(self, epoch, rows):
        self.calls += 1
        if self.failures > 0:
            self.failures -= 1
            raise self.error
        self.taken += [(epoch, row["k"]) for row in rows.to_pylist()]


def app_into(sink, **more):
    app = hr.App("outside", storage="unused", shards=1)
    rows = app.stream("t", ROWS, event_time="at", **more)
    rows.to(sink)
    rows.group_by("k").agg(n="count(*)").named("counts").to_view("counts")
    return app


@pytest.mark.parametrize("error", [ConnectionResetError("gone"), Unavailable("no answer"), TimeoutError("slow")])
def test_a_sink_that_fails_for_a_while_is_called_again_by_the_clock(error):
    sink = Shaky(5, error)
    with Driver(app_into(sink)) as driver:
        driver.send("t", {"k": "a", "at": 1})
        before = driver.clock.monotonic()
        driver.run()
        waited = driver.clock.monotonic() - before
        assert sink.taken == [(0, "a")]
        assert sink.calls == 6
        assert waited == pytest.approx(0.1 + 0.2 + 0.4 + 0.8 + 1.6)
        assert driver.view("counts") == [{"k": "a", "n": 1}]


def test_a_sink_that_fails_for_good_stops_the_app_with_nothing_lost(tmp_path):
    sink = Shaky(1_000, ConnectionRefusedError("nobody there"))
    with Driver(app_into(sink), storage=tmp_path) as driver:
        driver.send("t", {"k": "a", "at": 1})
        before = driver.clock.monotonic()
        with pytest.raises(SinkFailed) as error:
            driver.run()
        assert driver.clock.monotonic() - before >= GIVE_UP_SECONDS
        said = str(error.value)
        assert "call:Shaky has not taken epoch 0" in said
        assert "ConnectionRefusedError: nobody there" in said
        assert "publishes the epoch first" in said
    sink.failures = 0
    with Driver(app_into(sink), storage=tmp_path) as driver:
        assert sink.taken == [(0, "a")], "the start publishes what was staged"
        driver.run()
        assert driver.view("counts") == [{"k": "a", "n": 1}]


def test_a_sink_that_is_wrong_is_not_called_again():
    sink = Shaky(1, ValueError("what is this?"))
    with Driver(app_into(sink)) as driver:
        driver.send("t", {"k": "a", "at": 1})
        with pytest.raises(FunctionError, match="raised ValueError: what is this"):
            driver.run()
        assert sink.calls == 1


@pytest.mark.on_spark
@pytest.mark.parametrize("carrier", ["in process", pytest.param("spark", marks=pytest.mark.spark)])
@pytest.mark.parametrize("on_error", ["dead_letter", "fail"])
def test_records_that_retention_took_before_they_were_read(request, tmp_path, carrier, on_error):
    """Counted as lost, or the app stops: the same on both carriers."""
    if carrier == "spark":
        request.getfixturevalue("spark")
    sink = Shaky(0, None)
    with Driver(app_into(sink, on_error=on_error), storage=tmp_path, carrier=carrier) as driver:
        driver.send("t", {"k": "a", "at": 1})
        driver.run()
        driver.send("t", {"k": "b", "at": 2}, {"k": "c", "at": 3})
        _expire(driver)
        driver.send("t", {"k": "d", "at": 4})
        if on_error == "fail":
            with pytest.raises(RecordsGone, match="the records 1 to 2"):
                driver.step()
            return
        driver.run()
        assert sorted(row["k"] for row in driver.view("counts")) == ["a", "d"]
        assert driver.status()["sources"]["t"]["lost"] == 2


def _expire(driver):
    topic = hr.Log(driver.storage / "log", clock=driver.clock).topic("t")
    topic.alter(retention="1 hour")
    driver.advance(7200)
    topic.clean()
    assert topic.start_offsets()[0] > 1


@pytest.mark.parametrize("on_error", ["dead_letter", "fail"])
def test_records_that_retention_took_after_their_epoch_was_planned(tmp_path, on_error):
    """A range is planned, then overtaken, then read: what is left of it is read, and the rest is counted."""
    sink = Shaky(0, None)
    app = app_into(sink, on_error=on_error)
    with Driver(app, storage=tmp_path) as driver:
        driver.send("t", {"k": "a", "at": 1}, {"k": "b", "at": 2})
        engine, carrier = driver._engine, driver._carrier
        work = engine.begin()
        _expire(driver)
        driver.send("t", {"k": "c", "at": 3})
        work = replace(work, ranges=tuple(replace(each, end=3) for each in work.ranges))
        if on_error == "fail":
            with pytest.raises(RecordsGone, match="the records 0 to 1"):
                carrier._levels(work, engine.program)
            return
        commit = engine.commit(work, carrier._levels(work, engine.program), carrier="test")
        engine.publish(commit)
        assert commit.totals["t"]["lost"] == 2
        assert [row["k"] for row in driver.view("counts")] == ["c"]


def test_ranges_stand_in_the_commit(tmp_path):
    with Driver(app_into(Shaky(0, None)), storage=tmp_path) as driver:
        driver.send("t", {"k": "a", "at": 1}, {"k": "b", "at": 2})
        driver.step()
        driver.send("t", {"k": "a", "at": 3})
        driver.step()
        assert driver._engine.last.ranges == [["t", "0", 2, 3]]


# ---- feeds of an app that runs ----


class Broken(Feed):
    """Lands a row, then fails."""

    identity = "broken"

    def __init__(self, error, times):
        self.error, self.times = error, times

    def run(self, landing, stop):
        landing.append([{"k": f"k{self.times}", "at": 1}], position=b"x")
        self.times -= 1
        if self.times > 0:
            raise self.error
        stop.wait(60)


def counts(app):
    return sorted(row["k"] for row in app.view("counts").to_pylist())


def test_a_feed_that_fails_for_a_while_goes_on_and_status_says_so(spark, tmp_path):
    app = hr.App("fed", storage=tmp_path, shards=2)
    feed = Broken(ConnectionError("away"), 3)
    app.stream("t", ROWS, event_time="at", source=feed).group_by("k").agg(n="count(*)").to_view("counts")
    waiting = threading.Event()
    with app.start(spark) as running:
        for _ in range(600):
            running.await_caught_up(300)
            if counts(app) == ["k1", "k2", "k3"]:
                break
            waiting.wait(0.05)
        assert counts(app) == ["k1", "k2", "k3"]
        state = running.status()["feeds"]["t"]
    assert state == {"identity": "broken", "state": "running", "rows": 3, "dead": 0, "error": None}


@pytest.mark.parametrize("follow", [False, True])
def test_an_app_has_caught_up_when_its_feeds_have(spark, tmp_path, follow):
    """Whether they end, or go on looking."""
    (tmp_path / "lines").write_text("".join(f'{{"k": "k{n}", "at": {n}}}\n' for n in range(3)))
    app = hr.App("fed", storage=tmp_path / "app", shards=2)
    lines = files.lines(tmp_path / "lines", follow=follow)
    app.stream("t", ROWS, event_time="at", source=lines).group_by("k").agg(n="count(*)").to_view("counts")
    with app.start(spark) as running:
        running.await_caught_up(300)
        assert counts(app) == ["k0", "k1", "k2"]
        assert running.status()["feeds"]["t"]["state"] == ("running" if follow else "ended")


class Glance(threading.Event):
    """Idle, when looked at; the one who looks comes back when an epoch has been committed and is being published."""

    def __init__(self, looked, committed):
        super().__init__()
        self.looked, self.committed = looked, committed
        self.set()

    def is_set(self):
        seen = super().is_set()
        self.looked.set()
        self.committed.wait(60)
        return seen


def test_what_is_committed_and_not_yet_published_is_not_caught_up(tmp_path):
    looked, committed, published = threading.Event(), threading.Event(), threading.Event()

    class Slow:
        def write(self, epoch, rows):  # noqa: ARG002 -- what a sink is given
            committed.set()
            threading.Event().wait(0.3)
            published.set()

    app = hr.App("race", storage=tmp_path, shards=1)
    app.stream("t", "k string").to(Slow())
    with app.start(carrier="in-process") as running:
        carrier = running._carrier
        carrier.idle = Glance(looked, committed)
        step = carrier._step

        def step_when_looked_at():
            looked.wait(0.5)
            step()

        carrier._step = step_when_looked_at
        running._engine.outside.log.topic("t").append([{"k": "a"}])
        running.await_caught_up(timeout=300)
        assert published.is_set()


class Slow(Feed):
    """Decodes its first records for two seconds, then looks for more."""

    identity = "slow"

    def run(self, landing, stop):
        waiting = threading.Event()
        while not stop.is_set():
            if landing.position() is None:
                waiting.wait(2)
                landing.append([{"k": "k0", "at": 0}], position=b"1")
            stop.wait(0.1)


def test_a_feed_that_is_busy_with_what_it_read_has_not_landed_all(tmp_path):
    app = hr.App("busy", storage=tmp_path / "app", shards=1)
    app.stream("t", ROWS, event_time="at", source=Slow()).group_by("k").agg(n="count(*)").to_view("counts")
    with app.start(carrier="in-process") as running:
        running.await_caught_up(300)
        assert counts(app) == ["k0"]


def test_a_feed_that_cannot_go_on_stops_the_app(spark, tmp_path):
    app = hr.App("fed", storage=tmp_path, shards=2)
    feed = Broken(ZeroDivisionError("a bug"), 2)
    app.stream("t", ROWS, event_time="at", source=feed).to_view("rows")
    with app.start(spark) as running, pytest.raises(FeedFailed) as error:
        running.wait(threading.Event())
    assert 'the feed of "t" (broken) has failed: ZeroDivisionError: a bug' in str(error.value)


# ---- records with a format ----


@pytest.mark.parametrize("key", [None, "k"])
def test_json_records_of_a_topic_are_decoded_and_bad_ones_are_dead_letters(key):
    app = hr.App("json", storage="unused", shards=1)
    rows = app.stream("t", "k string, n int, at timestamp", key=key, event_time="at", format="json")
    rows.group_by("k").agg(total="sum(n)").named("totals").to_view("totals")
    keyed = {} if key is None else {"k": "a"}
    own = "" if key is not None else '"k": "a", '
    with Driver(app) as driver:
        for value in ('"n": 1, "at": 1000', '"n": 2, "at": "2026-01-01"', '"n": "x", "at": 1', '"n": 4'):
            driver.send("t", {**keyed, "value": f"{{{own}{value}}}"})
        driver.send("t", {**keyed, "value": "no json"})
        driver.run()
        assert driver.view("totals") == [{"k": "a", "total": 3}]
        dead = driver.read("t.dead")
        assert sorted(row["offset"] for row in dead) == [2, 3, 4]
        reasons = {row["offset"]: row["reason"] for row in dead}
        assert reasons[3] == 'the event time "at" is null'
        assert reasons[4] == "it is no JSON object"


def test_json_upserts_and_tombstones_are_a_table():
    app = hr.App("json", storage="unused", shards=1)
    app.table("t", "id int, city string", key="id", format="json").to_view("rows")
    with Driver(app) as driver:
        driver.send("t", {"id": 1, "value": '{"city": "Bern"}'}, {"id": 2, "value": '{"city": "Rom"}'})
        driver.run()
        driver.delete("t", id=1)
        driver.send("t", {"id": 2, "value": '{"city": "Oslo"}'})
        driver.run()
        assert driver.view("rows") == [{"id": 2, "city": "Oslo"}]


def test_two_streams_of_one_feed_run_it_once_and_two_feeds_of_one_topic_are_refused(tmp_path):
    from headrace.base.time import SystemClock
    from headrace.engine.outside import Outside

    def feeds(*identities):
        app = hr.App("twice", storage=tmp_path)
        for number, identity in enumerate(identities):
            feed = Broken(None, 1)
            feed.identity = identity
            app.stream("t", ROWS, event_time="at", source=feed).where(f"k <> '{number}'").to_view(f"v{number}")
        outside = Outside(app.plan(), tmp_path, None, clock=SystemClock())
        try:
            return [(step, feed.identity) for step, feed, _ in outside.feeds()]
        finally:
            outside.close()

    assert feeds("a", "a") == [("t", "a")]
    with pytest.raises(InvalidPlan, match='two feeds fill the topic "t": a and b'):
        feeds("a", "b")

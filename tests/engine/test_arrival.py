"""What arrives first: records are read, and rows look tables up, in the order in which they were appended."""

from __future__ import annotations

import pyarrow as pa
import pytest

import headrace as hr
from headrace.base.time import STAMPS, ManualClock, Stamps, SystemClock
from headrace.log import Log
from headrace.testing import Driver

LEFT, RIGHT = "k int, l string, at timestamp", "k int, r string, since timestamp"


def app_of():
    """A stream `l` that looks a table `r` up."""
    app = hr.App("lookup", shards=2)
    stream = app.stream("l", LEFT, event_time="at", out_of_order="1 hour")
    table = app.table("r", RIGHT, key="k", event_time="since", out_of_order="1 hour")
    stream.join(table.drop("since"), on="k", how="left").named("met").to_topic("out")
    return app


def left(driver, text, second, key=1):
    driver.send("l", {"k": key, "l": text, "at": second * 1000})


def right(driver, text, second, key=1):
    driver.send("r", {"k": key, "r": text, "since": second * 1000})


def met(driver):
    return [(row["l"], row["r"]) for row in driver.read("out")]


def test_of_records_stored_at_one_instant_those_of_the_table_come_first(monkeypatch):
    """Appends of one process never share an instant; those of two may."""
    monkeypatch.setattr(STAMPS, "next", lambda clock: clock.now())
    with Driver(app_of()) as driver:
        left(driver, "A", 5)
        right(driver, "new", 5)
        driver.advance(1)
        left(driver, "B", 4)
        driver.step(limit=1)
        assert met(driver) == [("A", "new")]
        driver.run()
        assert met(driver) == [("B", "new")]


def test_a_table_that_was_filled_before_a_stream_is_met_by_all_of_it():
    """Records of long ago, and a table without event times: today its rows are stored now, and those were then."""
    app = hr.App("filled", shards=2)
    stream = app.stream("l", LEFT, event_time="at")
    table = app.table("r", "k int, r string", key="k")
    stream.join(table, on="k", how="left").named("met").to_topic("out")
    with Driver(app) as driver:
        driver.send("r", {"k": 1, "r": "there"})
        left(driver, "long ago", 5)
        driver.send("r", {"k": 1, "r": "changed"})
        driver.step()
        assert met(driver) == [("long ago", "there")]


def test_no_record_is_read_before_one_of_the_table_that_was_stored_earlier():
    """A small epoch takes what was stored first, not an equal share of every topic."""
    with Driver(app_of()) as driver:
        for number in range(50):
            right(driver, f"r{number}", 0, key=number)
        for number in range(50):
            left(driver, str(number), 0, key=number)
        for number in range(50):
            right(driver, "changed", 0, key=number)
        while not driver.caught_up:
            driver.step(limit=20)
        assert sorted(met(driver)) == sorted((str(number), f"r{number}") for number in range(50))


def test_no_two_stamps_of_a_clock_are_equal_and_clocks_of_tests_are_their_own():
    stamps, clock, other = Stamps(), ManualClock(), ManualClock()
    first = stamps.next(clock)
    assert [stamps.next(clock), stamps.next(clock), stamps.next(other)] == [first + 1, first + 2, other.now()]
    assert stamps.next(SystemClock()) < stamps.next(SystemClock())


def test_append_times_never_descend_in_a_partition_though_the_clock_is_set_back(tmp_path):
    """Another process appends, with a clock that is behind: the index says what the last time was."""
    ahead, behind = ManualClock(2_000_000), ManualClock(1_000_000)
    topic = Log(tmp_path, clock=ahead, fsync=False).create_topic("t", "n int", partitions=1)
    topic.append([{"n": 1}])
    Log(tmp_path, clock=behind, fsync=False).topic("t").append([{"n": 2}])
    topic.append([{"n": 3}])
    assert [topic.append_time(0, offset, 3) for offset in range(3)] == [2_000_000, 2_000_000, 2_000_001]
    assert topic.append_time(0, 3, 3) is None
    times = [time for batch in topic.batches(0, 0, 3, columns=["_time"]) for time in batch.column(0).to_pylist()]
    assert times == sorted(times)
    assert topic.max_time(0, 0, 3) == 2_000_001


@pytest.mark.parametrize("limit", [1, 3, 7])
def test_whole_epochs_of_another_app_and_the_order_of_arrival_hold_together(tmp_path, limit):
    """An app writes a table and a stream; another reads both, and a topic that neither wrote."""
    log = f"log:{tmp_path}"
    first = hr.App("first", topics=log, storage=tmp_path / "a")
    source = first.stream("in", "k int, v int")
    source.latest("k").to_topic("changes")
    source.to_topic("rows")
    second = hr.App("second", topics=log, storage=tmp_path / "b")
    table = second.table("changes", "k int, v int", key="k")
    rows = second.stream("rows", "k int, v int").union(second.stream("more", "k int, v int"))
    rows.join(table, on="k", how="left").to_topic("out")
    clock = ManualClock()
    with Driver(first, clock=clock) as one, Driver(second, clock=clock) as two:
        for number in range(6):
            one.send("in", *({"k": key, "v": number} for key in range(3)))
            one.step()
            two.send("more", *({"k": key, "v": -number} for key in range(3)))
        while not two.caught_up:
            two.step(limit=limit)
        out = two.read("out")
        assert len(out) == 36
        assert all(row["v_right"] == abs(row["v"]) for row in out if row["v"] < 0)


def doubled(rows: pa.Table) -> pa.Table:
    """Return each row twice, the copies behind the rows."""
    return pa.concat_tables([rows, rows])


def passed_on(app, stream):
    """Return a stream through every step that passes rows on one by one, by name."""
    app.function("same", lambda text: text, takes="string", returns="string")
    other = app.stream("other", LEFT, event_time="at")
    return {
        "select": stream.select("k", "at", l="same(l)"),
        "where": stream.where("same(l) <> 'x'"),
        "explode": stream.explode("array(l)", as_="e").drop("l").rename(l="e"),
        "union": stream.union(other),
        "dedupe": stream.dedupe("l", within="1 hour"),
        "batches": stream.map_batches(lambda rows: rows.drop_columns(["_time"]), LEFT),
        "twice": stream.map_batches(doubled, LEFT),
        "looked_up": stream.join(app.table("more", "k int, more string", key="k"), on="k", how="left").named("first"),
    }


@pytest.mark.parametrize("step", ["select", "where", "explode", "union", "dedupe", "batches", "looked_up"])
def test_rows_keep_their_arrival_through_steps_that_pass_them_on(step):
    app = hr.App("lookup", shards=2)
    stream = passed_on(app, app.stream("l", LEFT, event_time="at", out_of_order="1 hour"))[step]
    table = app.table("r", RIGHT, key="k", event_time="since").where("r <> 'x'").drop("since")
    stream.join(table, on="k", how="left").named("met").to_topic("out")
    with Driver(app, shards=2) as driver:
        for number in range(6):
            right(driver, f"r{number}", 50 - number)
            left(driver, f"l{number}", 10 - number)
        driver.run()
        assert sorted(met(driver)) == [(f"l{number}", f"r{number}") for number in range(6)]


def test_rows_of_a_function_that_gives_others_have_arrived_when_their_batch_had():
    """Which came from which is not known: all of them see what the last row of the batch sees."""
    app = hr.App("lookup", shards=2)
    stream = passed_on(app, app.stream("l", LEFT, event_time="at", out_of_order="1 hour"))["twice"]
    stream.join(app.table("r", "k int, r string", key="k"), on="k", how="left").named("met").to_topic("out")
    with Driver(app) as driver:
        left(driver, "a", 0)
        driver.send("r", {"k": 1, "r": "between"})
        left(driver, "b", 0)
        driver.send("r", {"k": 1, "r": "later"})
        driver.run()
        assert sorted(met(driver)) == [(text, "between") for text in "aabb"]


def test_what_an_epoch_computes_is_there_for_all_rows_of_the_epoch():
    """An aggregate has one change an epoch, so rows see what their epoch leaves; a pair of streams does too."""
    app = hr.App("lookup", shards=2)
    stream = app.stream("l", LEFT, event_time="at")
    counts = app.table("r", RIGHT, key="k", event_time="since").group_by("k").agg(n="count(*)", most="max(r)")
    stream.join(counts, on="k", how="left").named("met").to_topic("out")
    pairs = stream.join(app.stream("p", "k int, p int, at timestamp", event_time="at"), on="k", within="1 hour")
    table = app.table("r2", "k int, r string", key="k")
    pairs.named("pairs").join(table, on="k", how="left").named("of_pairs").to_topic("of_pairs")
    with Driver(app) as driver:
        left(driver, "first", 1)
        right(driver, "a", 0)
        left(driver, "second", 1)
        right(driver, "b", 0)
        driver.send("p", {"k": 1, "p": 1, "at": 1000})
        driver.send("r2", {"k": 1, "r": "now"})
        driver.run()
        assert [(row["l"], row["most"]) for row in driver.read("out")] == [("first", "b"), ("second", "b")]
        assert [(row["l"], row["r"]) for row in driver.read("of_pairs")] == [("first", "now"), ("second", "now")]

"""Partitions that held nothing back get rows while an epoch runs: the epoch looks again before it moves time on."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa
import pytest

import headrace as hr
from headrace.base.time import ManualClock
from headrace.connect.decoding import RecordShape
from headrace.engine.input import Input
from headrace.engine.inputs import Inputs
from headrace.engine.storage import SourceProgress
from headrace.testing import Driver


def at(second):
    return datetime.fromtimestamp(second, tz=UTC)


def rows(*seconds):
    return [{"at": at(second)} for second in seconds]


class Meanwhile:
    """What happens once, in the middle of the next epoch: in a function of the app."""

    def __init__(self):
        self.what = None

    def __call__(self, table):
        if self.what is not None:
            what, self.what = self.what, None
            what()
        return table


def counting(meanwhile, *, other=False, **options):
    app = hr.App("wakes")
    stream = app.stream("t", "at timestamp", event_time="at", **options)
    read = stream.map_batches(meanwhile, "at timestamp")
    if other:
        read = read.union(app.stream("u", "at timestamp", event_time="at", **options))
    counts = read.group_by().window(hr.tumbling("10 s", grace="0 s"), emit="final").agg(n="count(*)").named("counts")
    counts.to_topic("counts")
    return app


def stored(driver, topic, *seconds, partition):
    return lambda: hr.Log(driver.storage / "log").topic(topic).append(rows(*seconds), partition=partition)


def begun(driver):
    """Let both partitions have a row."""
    for partition in (0, 1):
        driver.send("t", *rows(partition + 1), partition=partition)
    driver.run()


def spans(driver):
    return [(row["window_start"], row["n"]) for row in driver.read("counts")]


def test_an_idle_partition_that_wakes_in_the_middle_of_an_epoch_is_not_late():
    meanwhile = Meanwhile()
    with Driver(counting(meanwhile, partitions=2, idle_after="30 s")) as driver:
        begun(driver)
        driver.advance(31)
        driver.send("t", *rows(33), partition=1)
        driver.run()
        assert driver.watermark("t") == at(33), "partition 0 is idle"
        meanwhile.what = stored(driver, "t", 35, partition=0)
        driver.send("t", *rows(60), partition=1)
        driver.run()
        assert driver.late("counts") == []
        driver.finish()
        assert spans(driver) == [(at(0), 2), (at(30), 2), (at(60), 1)]


def test_a_partition_with_rows_is_not_idle_because_the_epoch_took_long():
    meanwhile = Meanwhile()
    with Driver(counting(meanwhile, partitions=2, idle_after="30 s")) as driver:
        begun(driver)

        def long():
            stored(driver, "t", 5, partition=0)()
            driver.advance(40)

        meanwhile.what = long
        driver.send("t", *rows(60), partition=1)
        driver.run()
        assert driver.late("counts") == []
        assert driver.watermark("t") == at(5)


@pytest.mark.parametrize("idle_after", [None, "30 s"])
def test_the_first_row_of_a_partition_is_not_late_for_a_later_one_of_another(idle_after):
    meanwhile = Meanwhile()
    with Driver(counting(meanwhile, partitions=2, idle_after=idle_after)) as driver:
        driver.send("t", *rows(1), partition=0)
        meanwhile.what = stored(driver, "t", 2, partition=1)
        driver.send("t", *rows(60), partition=0)
        driver.run()
        assert driver.late("counts") == []
        assert driver.watermark("t") == at(2)


def test_an_idle_source_that_wakes_in_the_middle_of_an_epoch_is_not_late():
    meanwhile = Meanwhile()
    with Driver(counting(meanwhile, other=True, partitions=1, idle_after="30 s")) as driver:
        driver.send("t", *rows(1))
        driver.send("u", *rows(2))
        driver.run()
        driver.advance(31)
        driver.send("t", *rows(33))
        driver.run()
        meanwhile.what = stored(driver, "u", 35, partition=0)
        driver.send("t", *rows(60))
        driver.run()
        assert driver.late("counts") == []


def test_a_source_of_sparks_is_not_idle_because_an_epoch_took_long():
    """It may have had rows since that epoch was planned; nobody can ask it."""
    shape = RecordShape(topic="s", schema=pa.schema([("at", pa.timestamp("us", tz="UTC"))]), event_time="at")
    read = Input(source=None, shape=shape, on_error="fail", takes_out=False, out_of_order=0, idle_after=30)
    inputs = Inputs({"s": read}, clock=ManualClock())
    progress = {"s": SourceProgress(times={"spark": 7}, active={"spark": 100})}
    for planned, idle in [(None, True), (129, False), (130, True), (999, True)]:
        assert inputs.watermarks(progress, {}, {}, 150, planned)["s"].idle == idle


def test_what_an_epoch_reaches_is_known_by_no_partition_that_has_its_first_row_meanwhile():
    """Both rows are stored before the epoch is planned, and in order: neither is late for a join as of a time."""
    app = hr.App("wakes", shards=1)
    app.stream("t", "at timestamp", event_time="at", partitions=2).to_topic("out")
    with Driver(app) as driver:
        driver.send("t", *rows(1), partition=0)
        driver.run()
        engine = driver._engine  # noqa: SLF001 -- what plans epochs
        driver.send("t", *rows(60), partition=0)
        bounds = engine.inputs.bounds(engine.last)
        ranges = engine.inputs.unread(engine.last, bounds, 100)
        assert engine.inputs.reached(engine.last, ranges, bounds) == {"t": 60_000_000}
        stored(driver, "t", 2, partition=1)()
        assert engine.inputs.reached(engine.last, ranges, bounds) == {"t": 1_000_000}

"""Epochs that are one task, and epochs that Spark spreads: the same outputs, on the same state, in any turn."""

import dataclasses

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from small_epochs import SIZES, TICKS, Kept, made, played, settings

import headrace as hr
from headrace.engine.engine import Engine
from headrace.engine.inprocess import InProcess
from headrace.engine.input import only_mapped
from headrace.engine.levels import each_shard, run_levels
from headrace.engine.lowering import lower
from headrace.engine.pace import MOST_ROWS, SMALL_ROWS
from headrace.engine.watermarks import EpochTimes
from headrace.kernels.task import Outcome, Report
from headrace.testing import Driver


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """What comes out in one process."""
    storage = tmp_path_factory.mktemp("undisturbed") / "s"
    app, sinks = made(storage)
    engine = Engine(app.plan(), settings(storage))
    carrier = InProcess(engine)
    try:
        played(engine, carrier, InProcess.step)
    finally:
        carrier.close()
        engine.close()
    return [sink.epochs for sink in sinks]


@pytest.mark.spark
@pytest.mark.parametrize(
    "small",
    [
        pytest.param(-1, id="all spread", marks=pytest.mark.prove),
        pytest.param(20, id="in turns"),
        pytest.param(SMALL_ROWS, id="all small", marks=pytest.mark.prove),
    ],
)
def test_small_and_spread_epochs_give_the_same(spark, undisturbed, tmp_path, small):
    from headrace.engine.spark.carrier import SparkCarrier
    from headrace.engine.spark.planning import MOST_SECONDS
    from headrace.engine.spark.source import EpochControl

    app, sinks = made(tmp_path / "s")
    engine = Engine(app.plan(), settings(tmp_path / "s", small))
    try:
        carrier = SparkCarrier(engine, spark, control=EpochControl(until=-1))
        try:
            played(engine, carrier, SparkCarrier.step)
            whole = [carrier.planned_offset(batch, batch)["single_task"] for batch in range(len(SIZES))]
            took = [engine.storage.read_commit(epoch).seconds for epoch in range(len(SIZES))]
        finally:
            carrier.close()
    finally:
        engine.close()
    for epoch, (in_one, size) in enumerate(zip(whole, SIZES, strict=True)):
        after_a_slow_one = epoch > 1 and took[epoch - 1] > MOST_SECONDS  # the first one does not count
        assert in_one == (2 * size <= small) or (after_a_slow_one and not in_one)
    assert [sink.epochs for sink in sinks] == undisturbed


def test_what_is_small(tmp_path):
    whole = pytest.importorskip("headrace.engine.spark.planning")
    from headrace.base.time import SystemClock
    from headrace.connect.source import OffsetRange
    from headrace.engine.outside import Outside
    from headrace.engine.spark.planning import MOST_BYTES, SMALL_BYTES
    from headrace.engine.spark.tasks import Job
    from headrace.engine.storage import Commit
    from headrace.kernels.state.state import StateHead

    plan = made(tmp_path)[0].plan()
    job = Job(
        app_id="x",
        program=lower(plan, 2),
        storage=tmp_path,
        topics=None,
        sync=False,
        inputs=Outside(plan, tmp_path, None, clock=SystemClock()).inputs,
        fault=print,
        base=0,
        small=100,
        query="q",
    )

    def rows(count):
        return [OffsetRange(source="ticks", partition="0", start=5, end=5 + count)]

    def before(**more):
        return dataclasses.replace(Commit(epoch=3, rows=10, seconds=0.1), **more)

    assert whole.is_small(job.planning, before(), rows(100))
    assert whole.is_small(job.planning, before(), [])
    assert not whole.is_small(job.planning, before(), rows(101)), "too many rows"
    assert not whole.is_small(job.planning, before(seconds=5.0), rows(10)), "as few rows took long before"
    assert whole.is_small(job.planning, before(seconds=5.0, rows=4_000_000), rows(10)), "many rows took long before"
    assert whole.is_small(job.planning, before(seconds=5.0), rows(10), warm=False), "Spark was cold"
    many = dataclasses.replace(job, program=lower(plan, 64))
    assert whole.is_small(many.planning, before(seconds=4.0), rows(10)), "many shards take longer"
    assert not whole.is_small(many.planning, before(seconds=4.1), rows(10)), "but not that long"
    steps = {op.step: op.looks_up for level in job.program.levels for op in level.stateful}
    assert set(steps.values()) == {True, False}
    for step, looked_up in steps.items():
        large = {step: {"1": StateHead(file="x", chain=1, full_bytes=SMALL_BYTES, chain_bytes=1)}}
        assert whole.is_small(job.planning, before(heads=large), rows(10)) == looked_up, f"{step} keeps much"
        full = StateHead(file="x", chain=1, full_bytes=SMALL_BYTES, chain_bytes=0)
        fits = {step: {str(shard): full for shard in range(MOST_BYTES // SMALL_BYTES)}}
        assert whole.is_small(many.planning, before(heads=fits), rows(10)), f"{step} keeps little in each shard"
        too_many = {step: fits[step] | {"x": full}}
        assert whole.is_small(many.planning, before(heads=too_many), rows(10)) == looked_up, f"{step}: in all, too much"
        alone = dataclasses.replace(job, small=MOST_ROWS).planning
        assert whole.is_small(alone, before(heads=large), rows(10)), f"{step}: no other machine would help"
        larger = {step: {"1": dataclasses.replace(full, full_bytes=whole.SCANNED_BYTES + 1)}}
        assert whole.is_small(alone, before(heads=larger), rows(10)) == looked_up, f"{step} keeps very much"
    many_rows = 10 * SMALL_ROWS
    assert whole.is_small(alone, before(seconds=9.9, rows=many_rows), rows(many_rows)), "many rows may take long"
    assert not whole.is_small(alone, before(seconds=10.1, rows=many_rows), rows(many_rows))
    assert not whole.is_small(alone, before(seconds=1.1), rows(10))


@pytest.mark.parametrize("how", ["inner", "left"])
def test_an_epoch_in_which_much_may_come_out_is_not_small(tmp_path, how):
    """Rows of a stream join are read by their time; those that met none come out when it has passed, however many."""
    whole = pytest.importorskip("headrace.engine.spark.planning")
    from headrace.base.time import SystemClock
    from headrace.engine.outside import Outside
    from headrace.engine.spark.planning import SMALL_BYTES
    from headrace.engine.spark.tasks import Job
    from headrace.engine.storage import Commit
    from headrace.kernels.state.state import StateHead

    app = hr.App("waits", storage=tmp_path, shards=2)
    left, right = (app.stream(name, TICKS, event_time="at") for name in ("left", "right"))
    left.join(right, on="car", within="1 minute", how=how).named("both").to_topic("out")
    plan = app.plan()
    inputs = Outside(plan, tmp_path, None, clock=SystemClock()).inputs
    program = lower(plan, 2)
    job = Job(
        app_id="x", program=program, storage=tmp_path, topics=None, sync=False, inputs=inputs, fault=print, base=0,
        small=100,
        query="q",
    )  # fmt: skip
    large = {"both": {"1": StateHead(file="x", chain=1, full_bytes=SMALL_BYTES, chain_bytes=1)}}
    assert whole.is_small(job.planning, Commit(epoch=3, rows=10, seconds=0.1), [])
    assert whole.is_small(job.planning, Commit(epoch=3, rows=10, seconds=0.1, heads=large), []) == (how == "inner")


@pytest.mark.parametrize(
    ("master", "one_thread", "rows"),
    [
        ("local[*]", False, MOST_ROWS),
        ("local[2]", True, 1 << 20),
        ("local", False, MOST_ROWS),
        ("local-cluster[2,1,1024]", False, SMALL_ROWS),
        ("spark://host:7077", True, SMALL_ROWS),
        ("yarn", False, SMALL_ROWS),
    ],
)
def test_how_large_a_small_epoch_is_depends_on_the_machines_and_on_what_one_thread_does(master, one_thread, rows):
    planning = pytest.importorskip("headrace.engine.spark.planning")
    assert planning.small_rows(master, one_thread=one_thread) == rows


@pytest.mark.parametrize(
    ("options", "mapped"),
    [
        ({}, True),
        ({"event_time": "at"}, True),
        ({"event_time": "at + interval 1 hour"}, False),
        ({"format": "json"}, False),
    ],
)
def test_records_that_are_decoded_or_dated_are_not_mapped(tmp_path, options, mapped):
    from headrace.engine.outside import Outside

    app = hr.App("reads", storage=tmp_path)
    app.stream("ticks", TICKS, **options).group_by("car").agg(n="count(*)").to_view("counts")
    inputs = Outside(app.plan(), tmp_path, None, clock=settings(tmp_path).clock).inputs
    assert only_mapped(inputs) == mapped


class Longest:
    """A user's aggregate: the length of the longest text."""

    state = "length int"

    def init(self, count):
        """Begin with nothing."""
        return {"length": np.zeros(count, np.int32)}

    def add(self, groups, texts):
        """Take texts in."""
        rows = pa.table({"group": groups, "length": pc.binary_length(texts)}).group_by("group", use_threads=False)
        return {"length": rows.aggregate([("length", "max")])["length_max"]}

    def merge(self, left, right):
        """Put two together."""
        return {"length": pc.max_element_wise(left["length"], right["length"])}

    def result(self, states):
        """Give it."""
        return states["length"]


def test_functions_of_a_user_are_never_called_from_two_threads():
    """Others are: the shards of a level run side by side."""
    app = hr.App("users", storage="unused", shards=2)
    app.function("longest", Longest, returns="int", takes="string")
    words = app.stream("words", "k string, word string")
    made = words.group_by("k").agg(n="longest(word)").group_by("n").agg(keys="count(*)")
    made.to(Kept("made"))
    program, asked = lower(app.plan(), 2), []

    def each(one, shards):
        asked.append(list(shards))
        return [one(shard) for shard in shards]

    def run(_level, shard, _inputs):
        return Outcome(report=Report(shard=shard))

    reports = run_levels(program, [Outcome()], each_shard(program.shards, run, each))
    assert [level.calls_users for level in program.levels] == [True, True, False]
    assert len(reports) == 1 + 2 * 2
    assert asked == [[0, 1]], "the last level alone"


WIDE = "k string, word string, x double, at timestamp"


@pytest.mark.parametrize("threads", range(3))
def test_shards_side_by_side_may_each_have_a_cache_on_the_disk(tmp_path, monkeypatch, threads):
    """Few rows may be many bytes: then each shard's tables are in a file of their own, all of them in one database."""
    tasks = pytest.importorskip("headrace.engine.spark.tasks")
    from headrace.engine.spark import caches
    from headrace.engine.spark.blobs import reports_of
    from headrace.engine.spark.single_task import read_single_task

    monkeypatch.setenv("HEADRACE_CACHE", str(tmp_path / "caches"))
    monkeypatch.setattr(caches, "SMALL_BYTES", 0)
    app, sink = hr.App("wide", storage=tmp_path / "s", shards=8), Kept("made")
    rows = app.stream("words", WIDE, event_time="at", partitions=2)
    made = rows.group_by("k").window(hr.tumbling("1 minute", grace="0 s")).agg(n="count(*)", all="collect_set(word)")
    made.group_by("n").agg(keys="count(*)", total="sum(cast(n as double) / 3)").to(sink)
    engine = Engine(app.plan(), dataclasses.replace(settings(tmp_path / "s"), shards=8))
    try:
        job = tasks.Job(
            app_id=f"wide{threads}", program=engine.program, storage=tmp_path / "s", topics=None, sync=False,
            inputs=engine.outside.inputs, fault=engine.settings.fault, base=0, small=SMALL_ROWS, query=f"wide{threads}",
        )  # fmt: skip
        for epoch in range(3):
            words = [{"k": f"k{i % 40}", "word": str(i), "x": i / 7, "at": 1_000 * i} for i in range(200 * (epoch + 1))]
            engine.outside.log.topic("words").append(words)
            work = engine.begin()
            (row,) = read_single_task(job, work.epoch, work.ranges, EpochTimes(work.now))
            reports = reports_of(bytes(row.column(2)[0].as_buffer()))
            engine.publish(engine.commit(work, reports, carrier="test"))
    finally:
        engine.close()
    assert len(sink.epochs) == 3


@pytest.mark.spark
def test_a_driver_on_spark_runs_small_epochs_in_one_task(spark):  # noqa: ARG001 -- the session is shared
    """The planner has the system's clock, the driver one that stands still: no epoch seems to have taken long."""
    app = hr.App("clocks", shards=2)
    app.stream("t", "k int").group_by("k").agg(n="count(*)").named("counts").to_view("counts")
    with Driver(app, carrier="spark", shards=2) as driver:
        for k in range(3):
            driver.send("t", {"k": k})
            driver.step()
        carrier, epoch = driver._carrier, driver._engine.last.epoch  # noqa: SLF001 -- nothing outside says it
        assert carrier.planned_offset(epoch, epoch)["single_task"]
        assert driver._engine.last.seconds < 60  # noqa: SLF001

"""Spark computes a task again when its output is lost: an epoch never mixes two answers of a function."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import headrace as hr
from headrace.base.time import SystemClock
from headrace.engine.engine import Engine
from headrace.engine.epoch import Settings
from headrace.kernels.task import Report

ROWS = 400
SHARDS = 6


def drawn(values):
    """Return a random number for each row: another one each time."""
    return pa.array([random.randrange(1000) for _ in range(len(values))], pa.int32())  # noqa: S311 -- any will do


class Loses:
    """Removes the files of Spark's shuffles in the middle of level 1, for the first `times` calls that find some."""

    def __init__(self, folders, counter, times):
        self.folders, self.counter, self.times = folders, counter, times

    def __call__(self, table):
        """Return the rows as they are."""
        files = [path for folder in self.folders for path in Path(folder).rglob("shuffle_*")]
        lost = len(list(self.counter.iterdir()))
        if files and lost < self.times:
            (self.counter / str(lost)).touch()
            for path in files:
                path.unlink(missing_ok=True)
        return table


def drawing(storage, loses):
    """Return an app that publishes drawn numbers at level 0 and counts them at level 1."""
    app = hr.App("drawing", storage=storage, shards=SHARDS)
    app.function("drawn", drawn, returns="int", takes="int", deterministic=False)
    rows = app.stream("t", "v int").select(r="drawn(v)")
    rows.to_topic("numbers")
    counts = rows.group_by("r").agg(n="count(*)")
    counts.to_view("counts")
    counts.changes().map_batches(loses, "r int, n bigint, _change_type string").named("loses").to_topic("changes")
    return app


def main(folder):
    """Run one epoch whose level-0 outputs are lost in its middle; print what came of it."""
    from headrace.engine.spark.carrier import SparkCarrier
    from headrace.engine.spark.session import session
    from headrace.engine.spark.source import EpochControl

    counter, local = folder / "lost", folder / "local"
    counter.mkdir()
    spark = session(master="local[2]", settings={"spark.local.dir": str(local)})
    app = drawing(folder / "s", Loses([local], counter, 1))
    settings = Settings(
        storage=folder / "s", topics=None, shards=SHARDS, clock=SystemClock(), sync=False, partitions=1, small=0
    )
    engine = Engine(app.plan(), settings)
    try:
        engine.outside.log.topic("t").append([{"v": i} for i in range(ROWS)])
        carrier = SparkCarrier(engine, spark, control=EpochControl(until=-1))
        carrier.step()
        carrier.close()
        numbers = engine.outside.log.topic("numbers")
        published = [r for p, end in numbers.end_offsets().items() for r in numbers.read(p, 0, end)["r"].to_pylist()]
        counted = [[row["r"], row["n"]] for row in engine.views.read("counts").to_pylist()]
        found = {"lost": len(list(counter.iterdir())), "published": published, "counted": counted}
        sys.stdout.write(json.dumps(found) + "\n")
    finally:
        engine.close()
        spark.stop()


@pytest.mark.prove
def test_a_task_that_is_computed_again_gives_no_second_answer(tmp_path):
    """What is published at level 0 is what level 1 counts: the epoch is computed again as a whole."""
    pytest.importorskip("pyspark")
    ran = subprocess.run(
        [sys.executable, __file__, tmp_path], capture_output=True, text=True, check=False, timeout=300, env=os.environ
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    found = json.loads(ran.stdout.splitlines()[-1])
    published = found["published"]
    assert found["lost"] == 1, "the files of the shuffle were removed once"
    assert len(published) == ROWS
    assert dict(found["counted"]) == {r: published.count(r) for r in set(published)}


def test_reports_about_two_attempts_of_a_task_are_noticed():
    carrier = pytest.importorskip("headrace.engine.spark.carrier")
    reports = [Report(attempts={"0.0": "a", "1.0": "x"}), Report(attempts={"0.0": "a", "1.1": "y"})]
    assert carrier.mixed(reports) == []
    assert carrier.mixed([*reports, Report(attempts={"0.0": "b", "1.2": "z"})]) == ["0.0"]
    assert Report.from_json(reports[0].to_json()) == reports[0]


def test_only_what_may_answer_otherwise_is_marked(tmp_path):
    tasks = pytest.importorskip("headrace.engine.spark.tasks")
    from headrace.engine.lowering import lower

    class Here:
        shard, attempt = 0, "a"

    class Job:
        def __init__(self, app):
            self.program = lower(app.plan(), 3)

    plain = hr.App("plain")
    plain.stream("t", "v int").group_by("v").agg(n="count(*)").to_view("out")
    marked = Job(drawing(tmp_path, lambda table: table))
    assert tasks.mark(Job(plain), 0, Here) is None
    assert tasks.mark(marked, 0, Here).shards == 3
    assert tasks.mark(marked, 1, Here) is None, "the last level reports for itself"


if __name__ == "__main__":
    main(Path(sys.argv[1]))

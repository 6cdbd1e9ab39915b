"""Sources that Spark reads, alone and beside topics: rows of both in whole epochs, windows that close by the clock."""

from __future__ import annotations

import json

import pytest

import headrace as hr
from headrace.base.time import SystemClock

pytestmark = pytest.mark.spark
SCHEMA = "k string, at timestamp"
MOST = 60


class Folder:
    """A folder of JSON files that Spark reads as a stream."""

    def __init__(self, path):
        self.path, self.files = path, 0
        path.mkdir()

    def add(self, *rows):
        """Add a file, whole at once."""
        self.files += 1
        aside = self.path.parent / f"{self.files}.tmp"
        aside.write_text("\n".join(json.dumps(row) for row in rows))
        aside.rename(self.path / f"{self.files}.json")


def wait(running, holds):
    """Wait until something holds, while the app runs."""
    clock = SystemClock()
    until = clock.monotonic() + MOST
    while not holds():
        running._carrier.check()  # noqa: SLF001 -- what ended the app, at once
        assert clock.monotonic() < until, "it does not come"
        clock.sleep(0.02)


def counted(app, view="counts"):
    return {row["k"]: row["n"] for row in app.view(view).to_pylist()}


def test_topics_are_read_right_after_epochs_without_any_row_of_theirs(spark, tmp_path):
    """The planner of topics goes by the last commit, not by the last epoch that had rows of topics."""
    folder, app = Folder(tmp_path / "files"), hr.App("mixed", storage=tmp_path / "app", shards=2)
    files = app.read("json", SCHEMA, event_time="at", path=str(folder.path))
    rows = app.stream("t", SCHEMA, event_time="at").union(files)
    rows.group_by("k").agg(n="count(*)").named("counts").to_view("counts")
    rows.to_topic("all")
    with app.start(spark) as running:
        topic = hr.Log(tmp_path / "app" / "log").topic("t")
        topic.append([{"k": "t", "at": "2026-01-01"}])
        wait(running, lambda: counted(app) == {"t": 1})
        for number in range(1, 4):
            folder.add({"k": "f", "at": "2026-01-01"})
            wait(running, lambda number=number: counted(app) == {"t": 1, "f": number})
        topic.append([{"k": "t", "at": "2026-01-02"}, {"k": "u", "at": "2026-01-02"}])
        wait(running, lambda: counted(app) == {"t": 2, "u": 1, "f": 3})
        everything = hr.Log(tmp_path / "app" / "log").topic("all")
        assert sum(everything.end_offsets().values()) == 6


def test_windows_of_a_source_of_sparks_close_by_the_clock(spark, tmp_path):
    """Its app has no topic: epochs without rows run all the same."""
    folder, app = Folder(tmp_path / "files"), hr.App("alone", storage=tmp_path / "app", shards=2)
    rows = app.read("json", SCHEMA, event_time="at", path=str(folder.path), idle_after="1 s").group_by("k")
    rows.window(hr.tumbling("1 s", grace="0 s"), emit="final").agg(n="count(*)").named("counts").to_view("counts")
    with app.start(spark) as running:
        folder.add({"k": "f", "at": "2026-01-01 00:00:00"}, {"k": "f", "at": "2026-01-01 00:00:00.5"})
        wait(running, lambda: counted(app) == {"f": 2})


def test_event_times_of_the_end_of_time_are_dead_letters(spark, tmp_path):
    """They would move the watermark to where all other rows are late."""
    folder, app = Folder(tmp_path / "files"), hr.App("far", storage=tmp_path / "app", shards=2)
    rows = app.read("json", SCHEMA, event_time="at", path=str(folder.path)).group_by("k")
    rows.window(hr.tumbling("1 s", grace="0 s")).agg(n="count(*)").named("counts").to_view("counts")
    with app.start(spark) as running:
        for second, far in enumerate(["9999-12-31", "0001-01-01", None]):
            folder.add({"k": "far", "at": far}, {"k": f"near {second}", "at": f"2026-01-01 00:00:0{second}"})
            wait(running, lambda second=second: len(counted(app)) == second + 1)
        assert counted(app) == {"near 0": 1, "near 1": 1, "near 2": 1}
        assert running.status()["sources"][next(iter(running.status()["sources"]))]["dead"] == 3


def test_offsets_of_other_sources_may_use_our_words(spark, tmp_path):
    """As those of a Kafka topic "whole" do: its epochs are spread like all of Spark's own sources."""
    from pyspark.sql.datasource import DataSource, SimpleDataSourceStreamReader

    class Counting(SimpleDataSourceStreamReader):
        def initialOffset(self):  # noqa: N802 -- Spark's name
            return {"whole": {"0": 0}}

        def read(self, start):
            last = min(start["whole"]["0"] + 1, 3)
            return iter([(f"k{last}",)] * (last - start["whole"]["0"])), {"whole": {"0": last}}

        def readBetweenOffsets(self, start, end):  # noqa: N802 -- Spark's name
            return iter([(f"k{at + 1}",) for at in range(start["whole"]["0"], end["whole"]["0"])])

        def commit(self, end):
            pass

    class Wholes(DataSource):
        @classmethod
        def name(cls):
            return "headrace_test_wholes"

        def schema(self):
            return "k string"

        def simpleStreamReader(self, schema):  # noqa: N802, ARG002 -- Spark's names
            return Counting()

    spark.dataSource.register(Wholes)
    app = hr.App("wholes", storage=tmp_path / "app", shards=2)
    rows = app.read(spark.readStream.format("headrace_test_wholes").load())
    rows.group_by("k").agg(n="count(*)").named("counts").to_view("counts")
    with app.start(spark) as running:
        wait(running, lambda: counted(app) == {"k1": 1, "k2": 1, "k3": 1})

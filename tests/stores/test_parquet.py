"""Folders of Parquet files as sinks."""

from __future__ import annotations

import itertools
import json
import random
import signal
import subprocess
import sys
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from crashing_sinks import Kept, batches, check_crashes, check_zombie, expected, for_rows, write

import headrace as hr
from budget import fast
from headrace.base.errors import InvalidPlan
from headrace.base.time import ManualClock
from headrace.connect import parquet
from headrace.connect.parquet.manifest import Manifest
from headrace.connect.store import StoreDiffers, StoreRefused, WriterFenced
from headrace.testing import Crash, Driver, check_sink

BOTH = pytest.mark.parametrize("table", [False, True], ids=["stream", "table"])
SIZES = pytest.mark.parametrize(
    "size", [pytest.param(1, marks=pytest.mark.prove, id="all_finished"), pytest.param(3_000, id="some_finished")]
)


def rows_of(path):
    return duckdb.sql(parquet.sql(path)).to_arrow_table().to_pylist()


@pytest.fixture
def make(tmp_path):
    number = itertools.count()

    def fresh(size=1 << 20, **options):
        path = tmp_path / str(next(number))
        return parquet.folder(path, file_bytes=size, **options), lambda: rows_of(path)

    return fresh


@BOTH
def test_a_folder_is_a_sink(make, table):
    def kept():
        sink, read = make()
        return Kept(for_rows(sink, table=table), read)

    check_sink(kept)


@pytest.mark.parametrize("table", fast(*[True], of=[False, True]))
@SIZES
def test_a_crash_at_any_step_leaves_each_epoch_once(make, table, size, monkeypatch):
    """Also while files are gathered, which is after every second epoch here."""
    monkeypatch.setattr("headrace.connect.parquet.gathering.FEW", 2)
    passed = check_crashes(lambda: make(size), table=table)
    assert {"before_files", "in_files", "before_manifest", "after_manifest"} <= passed
    assert {"after_gathering", "after_gathered"} <= passed


def listed(path):
    names = [each for each in path.rglob("*.parquet") if "_headrace" not in each.parts]
    return [row for name in names for row in ds.dataset(name).to_table().to_pylist()]


def test_who_lists_the_folder_sees_each_row_once_at_any_crash(make, monkeypatch):
    """A finished file appears whole; what a crash left is replaced by the file of the same name."""
    monkeypatch.setattr("headrace.connect.parquet.gathering.FEW", 2)

    def listing():
        sink, _ = make(1, keep="0 seconds")
        found = Path(sink.path)

        def read():
            early = listed(found)
            assert len({row["id"] for row in early}) == len(early)
            parquet.compact(found, clock=ManualClock())
            return listed(found)

        return sink, read

    check_crashes(listing, table=False)


def test_who_lists_the_folder_sees_each_row_once_after_a_compaction_that_was_killed(make):
    """Its file is there without a manifest that names it; the app goes on, and finishes other runs."""

    def killed(point):
        if point == "after_gathering":
            raise Crash(point)

    sink, read = make(8_000)
    sink = for_rows(sink, table=False)
    sink.prepare(clock=ManualClock())
    writer = sink.open(writer="app/1/sink", clock=ManualClock())
    for epoch in range(40):
        writer.publish(epoch, batches([(100 * epoch + at, "x", False) for at in range(4)], table=False))
        if epoch == 2:
            with pytest.raises(Crash):
                parquet.compact(sink.path, clock=ManualClock(), fault=killed)
        early = [row["id"] for row in listed(Path(sink.path))]
        assert len({*early}) == len(early)
    parquet.compact(sink.path, clock=ManualClock())
    assert len(listed(Path(sink.path))) == len(read()) == 160


@BOTH
def test_an_older_writer_is_fenced(make, table):
    check_zombie(make, WriterFenced, table=table)


@BOTH
def test_small_epochs_are_gathered_and_readers_see_every_row_once_after_each(tmp_path, table):
    """120 epochs leave few files, whatever their sizes; a list from before stays readable for an hour."""
    draw, clock = random.Random(7), ManualClock()  # noqa: S311 -- rows of a test
    sink = for_rows(parquet.folder(tmp_path / "f", file_bytes=20_000), table=table)
    sink.prepare(clock=clock)
    writer = sink.open(writer="a/1/s", clock=clock)
    there, old = {}, []
    for epoch in range(120):
        keys = draw.sample(range(500), draw.choice([1, 3, 40]))
        rows = [(each, f"{epoch}-{each}", table and draw.random() < 0.3) for each in keys]
        writer.publish(epoch, batches(rows, table=table))
        for each, text, deleted in rows:
            there[each if table else (epoch, each)] = (each, None if deleted else text)
        if epoch % 20 == 0:
            kept = [(i, text) for i, text in there.values() if text is not None]
            assert sorted((r["id"], r["text"]) for r in rows_of(tmp_path / "f")) == sorted(kept)
            old.append((parquet.sql(tmp_path / "f"), len(kept)))
    for query, count in old:
        assert duckdb.sql(f"SELECT count(*) FROM ({query})").fetchall() == [(count,)]
    assert len(parquet.files(tmp_path / "f")) < 30
    clock.advance(3_601)
    writer.publish(120, batches([(1, "x", False)], table=table))
    on_disk = {str(each) for each in (tmp_path / "f").rglob("*.parquet")}
    extra = on_disk - set(parquet.files(tmp_path / "f"))
    assert len(extra) <= 8, "replaced files are deleted, but for those of the last epoch"


def test_compacting_leaves_no_deleted_value_in_any_file(tmp_path):
    sink = for_rows(parquet.folder(tmp_path / "f"), table=True)
    write(sink, table=True)
    parquet.compact(tmp_path / "f", keep="0 seconds", clock=ManualClock(1))
    assert sorted(((r["id"], r["text"]) for r in rows_of(tmp_path / "f")), key=str) == expected(table=True)
    texts = [r["text"] for each in (tmp_path / "f").rglob("*.parquet") for r in ds.dataset(each).to_table().to_pylist()]
    assert sorted(texts, key=str) == sorted((text for _, text in expected(table=True)), key=str)


def test_partitions_are_folders_that_plain_readers_know(tmp_path):
    """DuckDB and Spark's rules: `column=value`, null as Hive writes it; the manifest alone has the hidden rest."""
    path = tmp_path / "events"
    app = hr.App("shop")
    app.stream("events", "id int, day string, at timestamp", event_time="at").to(
        parquet.folder(path, partition_by="day", file_bytes=1)
    )
    with Driver(app) as driver:
        days = ["2024/05", None, "ä b", "2024/05"]
        driver.send("events", *({"id": i, "day": day, "at": i} for i, day in enumerate(days)))
        driver.run()
    listed = duckdb.sql(f"FROM read_parquet('{path}/*/*.parquet', hive_partitioning=true) ORDER BY id").fetchall()
    assert [(i, day) for i, day, _ in listed] == list(enumerate(days))
    assert (path / "day=__HIVE_DEFAULT_PARTITION__").is_dir()
    assert [row["id"] for row in sorted(rows_of(path), key=lambda row: row["id"])] == [0, 1, 2, 3]
    plain = f"SELECT list('{path}/' || f.path) FROM (SELECT unnest(files) AS f FROM '{path}/_headrace/manifest.json')"
    with duckdb.connect() as sql:
        sql.execute(f"SET VARIABLE names = ({plain})").fetchall()
        (count,) = sql.execute("SELECT count(*) FROM read_parquet(getvariable('names'))").fetchone()
    assert count == 4


def test_a_table_is_partitioned_by_its_key_alone(make):
    sink, _ = make(partition_by="text")
    with pytest.raises(InvalidPlan, match="not of the table's key"):
        for_rows(sink, table=True)
    with pytest.raises(InvalidPlan, match="does not have"):
        for_rows(make(partition_by="txt")[0], table=False)


def test_columns_may_be_added_and_others_are_refused(tmp_path):
    sink = parquet.folder(tmp_path / "f")
    write(for_rows(sink, table=False), table=False)
    options = {"key": None, "is_table": False, "sealed": frozenset()}
    wider = sink.for_step(schema=pa.schema([("id", pa.int32()), ("text", pa.string()), ("n", pa.int64())]), **options)
    wider.prepare(clock=ManualClock())
    assert rows_of(tmp_path / "f")[0].keys() == {"id", "text", "n"}
    other = sink.for_step(schema=pa.schema([("id", pa.int64()), ("text", pa.string())]), **options)
    with pytest.raises(StoreDiffers, match="another type: id, n"):
        other.prepare(clock=ManualClock())


PROGRAM = """
import os, signal, sys
sys.path.insert(0, sys.argv[4])
from dataclasses import replace
from crashing_sinks import for_rows, write
from headrace.connect import parquet
left = int(sys.argv[3])
def fault(point):
    global left
    left -= 1
    if not left:
        os.kill(os.getpid(), signal.SIGKILL)
write(replace(for_rows(parquet.folder(sys.argv[1], file_bytes=3000), table=sys.argv[2] == "True"), fault=fault),
      table=sys.argv[2] == "True")
"""


def test_a_process_that_is_killed_leaves_each_epoch_once(tmp_path):
    """Killed by the system, one process after the other, at one of its steps; the lock goes with it."""
    for step in (4, 5, 99):
        ran = subprocess.run(
            [sys.executable, "-c", PROGRAM, tmp_path / "f", "True", str(step), Path(__file__).parent], check=False
        )
        assert ran.returncode in (0, -signal.SIGKILL)
        assert Manifest.read(tmp_path / "f") is not None or step == 4
    seen = sorted(((row["id"], row["text"]) for row in rows_of(tmp_path / "f")), key=str)
    assert ran.returncode == 0
    assert seen == expected(table=True)
    assert json.loads((tmp_path / "f/_headrace/manifest.json").read_text())["checksum"]


def test_a_partition_may_have_any_bytes_and_a_column_any_name(tmp_path):
    app, path = hr.App("shop"), tmp_path / "items"
    app.stream("items", "raw binary, `__row` int").to(parquet.folder(path, partition_by="raw"))
    values = [b"", b"\xff/", b"a", None]
    with Driver(app) as driver:
        driver.send("items", *({"raw": raw, "__row": at} for at, raw in enumerate(values)))
        driver.run()
    rows = duckdb.sql(parquet.sql(path)).fetchall()
    assert sorted(rows, key=lambda row: row[1]) == [(raw, at) for at, raw in enumerate(values)]


def test_what_no_folder_of_parquet_can_have_is_refused_with_the_plan(tmp_path):
    app = hr.App("shop")
    with pytest.raises(InvalidPlan, match="cannot be partitioned"):
        app.stream("tagged", "tags array<string>").to(parquet.folder(tmp_path, partition_by="tags"))
    with pytest.raises(InvalidPlan, match="cannot have a column"):
        app.table("runs", "id int, _Run int", key="id").to(parquet.folder(tmp_path))


def test_a_partition_whose_name_is_too_long_is_refused_at_once(tmp_path):
    """Waiting would not mend it."""
    app = hr.App("shop")
    app.stream("items", "id int, city string").to(parquet.folder(tmp_path / "items", partition_by="city"))
    with Driver(app) as driver:
        driver.send("items", {"id": 1, "city": "x" * 300})
        with pytest.raises(StoreRefused, match="too long"):
            driver.run()

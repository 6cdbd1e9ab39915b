"""Tables of DuckDB files as sinks."""

from __future__ import annotations

import itertools
import subprocess
import sys

import duckdb
import pyarrow as pa
import pytest
from crashing_sinks import Kept, check_each_crash, check_zombie, for_rows

import headrace as hr
from budget import fast
from headrace.base.errors import InvalidPlan
from headrace.base.outside import OutputLost, Unavailable
from headrace.base.time import ManualClock
from headrace.connect import duckdb as files
from headrace.connect.store import StoreDiffers, WriterFenced
from headrace.testing import Driver, check_sink

BOTH = pytest.mark.parametrize("table", [False, True], ids=["stream", "table"])


def rows_of(path, name="t"):
    with duckdb.connect(path, read_only=True) as sql:
        return sql.sql(f"FROM {name}").to_arrow_table().to_pylist()


@pytest.fixture
def make(tmp_path):
    number = itertools.count()

    def fresh():
        path = str(tmp_path / f"{next(number)}.duckdb")
        return files.table(path, "t"), lambda: rows_of(path)

    return fresh


@BOTH
def test_a_table_of_duckdb_is_a_sink(make, table):
    def kept():
        sink, read = make()
        return Kept(for_rows(sink, table=table), read)

    check_sink(kept)


@pytest.mark.parametrize("table", fast(*[True], of=[False, True]))
def test_a_crash_at_any_step_leaves_each_epoch_once(make, table):
    check_each_crash(make, table=table)


@BOTH
def test_an_older_writer_is_fenced(make, table):
    check_zombie(make, WriterFenced, table=table)


def test_a_file_that_another_process_has_open_is_tried_again(tmp_path):
    path = str(tmp_path / "x.duckdb")
    sink = for_rows(files.table(path, "t"), table=True)
    sink.prepare(clock=ManualClock())
    held = "import duckdb,sys; d=duckdb.connect(sys.argv[1]); print('open', flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", held, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout.readline() == "open\n"
        with pytest.raises(Unavailable):
            sink.open(writer="a/1/s", clock=ManualClock())
        other.stdin.close()
    sink.open(writer="a/1/s", clock=ManualClock()).close()


def test_other_columns_are_refused_with_the_statement(tmp_path):
    path = str(tmp_path / "x.duckdb")
    with duckdb.connect(path) as sql:
        sql.execute("CREATE TABLE t (id INTEGER, text INTEGER, old VARCHAR)")
    with pytest.raises(StoreDiffers) as refused:
        for_rows(files.table(path, "t"), table=True).prepare(clock=ManualClock())
    assert 'ALTER "text" TYPE VARCHAR' in refused.value.hint
    assert 'DROP COLUMN "old"' in refused.value.hint


def test_a_table_without_a_key_is_refused():
    with pytest.raises(InvalidPlan, match="by its key"):
        files.table("x.duckdb", "t").for_step(
            schema=pa.schema([("a", pa.int64())]), key=None, is_table=True, sealed=frozenset()
        )


def test_two_tables_of_an_app_follow_and_types_survive(tmp_path):
    """Current rows and a stream, in one file; every type comes back as it was."""
    path = tmp_path / "shop.duckdb"
    app = hr.App("shop")
    kinds = "id int, price decimal(20,4), at timestamp, day date, tags array<string>, raw binary, x double"
    orders = app.stream("orders", kinds, event_time="at")
    orders.to(files.table(path, "orders"))
    orders.group_by("day").agg(n="count(*)", sold="sum(price)").to(files.table(path, "days"))
    row = {"id": 1, "price": "12.5", "at": "2024-05-01T10:00:00Z", "day": "2024-05-01", "tags": ["a", None], "x": -0.5}
    with Driver(app) as driver:
        driver.send("orders", row | {"raw": b"\x00\xff"}, row | {"id": 2, "raw": None})
        driver.run()
        driver.send("orders", row | {"id": 3, "tags": None})
        driver.run()
    kept = rows_of(str(path), "orders")
    assert [each["id"] for each in kept] == [1, 2, 3]
    assert kept[0]["raw"] == b"\x00\xff"
    assert kept[0]["tags"] == ["a", None]
    assert kept[0]["at"].isoformat() == "2024-05-01T10:00:00+00:00"
    (day,) = rows_of(str(path), "days")
    assert (day["n"], str(day["sold"])) == (3, "37.5000")


def test_a_table_that_was_dropped_while_the_app_was_stopped_is_missed(tmp_path):
    """It is not gone on with after a gap; a repair of it brings it level, and the app goes on."""
    path = tmp_path / "shop.duckdb"

    def run(*ids):
        app = hr.App("shop")
        items = app.table("items", "id int", key="id")
        items.to(files.table(path, "Items"))
        items.where("id < 2").to(files.table(path, "few"))
        with Driver(app, storage=tmp_path / "storage") as driver:
            driver.send("items", *({"id": each} for each in ids))
            driver.run()
        return app

    run(2)  # nothing for "few"
    with duckdb.connect(path) as sql:
        sql.execute("DROP TABLE few")
    run(1)
    with duckdb.connect(path) as sql:
        sql.execute("DROP TABLE items")
    for _ in range(2):
        with pytest.raises(OutputLost, match='"Items"'):
            run(3)
    sink = files.table(path, "items").for_step(
        schema=pa.schema([("id", pa.int32())]), key=("id",), is_table=True, sealed=frozenset()
    )
    assert sink.compare(iter([pa.record_batch({"id": pa.array([1, 2], pa.int32())})]), repair=True).missing == 2
    run(3)
    assert sorted(row["id"] for row in rows_of(path, "items")) == [1, 2, 3]
    assert rows_of(path, "few") == [{"id": 1}]


@pytest.mark.parametrize("name", ["changes", "Batch", "wanted"])
def test_a_table_has_any_name(tmp_path, name):
    app = hr.App("shop")
    items = app.table("items", "id int, name string", key="id")
    items.to(files.table(tmp_path / "shop.duckdb", name))
    with Driver(app) as driver:
        driver.send("items", {"id": 1, "name": "pen"}, {"id": 2, "name": "ink"})
        driver.run()
        driver.send("items", {"id": 1, "name": "cap"})
        driver.delete("items", id=2)
        driver.run()
    assert rows_of(tmp_path / "shop.duckdb", name) == [{"id": 1, "name": "cap"}]


def test_a_file_stays_where_the_app_was_started(tmp_path, monkeypatch):
    (tmp_path / "started").mkdir()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "started")
    app = hr.App("shop")
    app.table("items", "id int", key="id").to(files.table("shop.duckdb", "items"))
    with Driver(app) as driver:
        driver.send("items", {"id": 1})
        driver.run()
        monkeypatch.chdir(tmp_path / "elsewhere")
        driver.send("items", {"id": 2})
        driver.run()
    assert [*(tmp_path / "elsewhere").iterdir()] == []
    assert rows_of(tmp_path / "started" / "shop.duckdb", "items") == [{"id": 1}, {"id": 2}]

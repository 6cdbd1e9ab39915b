"""Full-text indexes of tantivy that follow a table."""

from __future__ import annotations

import itertools
import json

import pyarrow as pa
import pytest
from crashing_sinks import WRITER, Kept, check_each_crash, check_zombie, for_rows

import headrace as hr
from headrace.base.errors import InvalidArgument, InvalidPlan
from headrace.base.outside import Unavailable
from headrace.base.time import ManualClock
from headrace.connect.store import StoreDiffers, StoreRefused, WriterFenced
from headrace.testing import Driver, check_sink

engine = pytest.importorskip("tantivy")
from headrace.connect import search  # noqa: E402 - only where there is tantivy

BOTH = pytest.mark.parametrize("table", [False, True], ids=["stream", "table"])


def rows_of(path):
    """Return all rows, whatever they say."""
    index = engine.Index.open(path)
    searcher = index.searcher()
    hits = searcher.search(engine.Query.all_query(), 1000).hits
    found = [json.loads(searcher.doc(address).get_first("_row")) for _, address in hits]
    return [row for row in found if "id" in row]


@pytest.fixture
def make(tmp_path):
    number = itertools.count()

    def fresh():
        path = str(tmp_path / str(next(number)))
        return search.tantivy(path, memory_bytes=15_000_000), lambda: rows_of(path)

    return fresh


@BOTH
def test_an_index_is_a_sink(make, table):
    def kept():
        sink, read = make()
        return Kept(for_rows(sink, table=table), read)

    check_sink(kept)


@BOTH
def test_a_crash_at_any_step_leaves_each_epoch_once(make, table):
    check_each_crash(make, table=table)


@BOTH
def test_an_older_writer_is_fenced(make, table):
    check_zombie(make, WriterFenced, table=table)


def test_an_index_that_another_writes_is_tried_again(make):
    sink, _ = make()
    sink = for_rows(sink, table=True)
    sink.prepare(clock=ManualClock())
    held = engine.Index.open(sink.path).writer()
    with pytest.raises(Unavailable):
        sink.open(writer=WRITER, clock=ManualClock())
    held.wait_merging_threads()
    sink.open(writer=WRITER, clock=ManualClock()).close()


def test_other_columns_and_bad_names_are_refused(make):
    sink, _ = make()
    for_rows(sink, table=True).prepare(clock=ManualClock())
    options = {"key": ("id",), "is_table": True, "sealed": frozenset()}
    other = sink.for_step(schema=pa.schema([("id", pa.int64())]), **options)
    with pytest.raises(StoreDiffers, match="other columns"):
        other.prepare(clock=ManualClock())
    with pytest.raises(InvalidPlan, match="cannot be a field"):
        sink.for_step(schema=pa.schema([("a.b", pa.int64())]), **options)


@pytest.mark.parametrize("name", ["_key", "_row", "_writer", "_score", "a\\b"])
def test_a_column_is_not_called_as_what_an_index_has_of_its_own(make, name):
    sink, _ = make()
    with pytest.raises(InvalidPlan, match="cannot be a field"):
        sink.for_step(schema=pa.schema([(name, pa.string())]), key=(name,), is_table=True, sealed=frozenset())


def test_a_table_of_an_app_is_found_by_words_numbers_and_times(tmp_path):
    path = tmp_path / "index"
    app = hr.App("shop")
    kinds = "id int, title string, tags array<string>, price double, at timestamp, ok boolean, raw decimal(9,2)"
    app.table("items", kinds, key="id").to(search.tantivy(path))

    def found(text, **options):
        return sorted(row["id"] for row in search.query(path, text, **options))

    with Driver(app) as driver:
        driver.send(
            "items",
            {"id": 1, "title": "Red shoes", "tags": ["sale", None], "price": 10.5, "at": "2024-05-01T10:00:00Z"},
            {"id": 2, "title": 'Blue "shoes"', "tags": None, "price": float("nan"), "ok": True, "raw": "1.50"},
            {"id": 3, "title": None, "tags": [None], "price": None},
        )
        driver.run()
        assert found("shoes") == [1, 2]
        assert found("red") == found("sale") == found("price:[10 TO 20]") == [1]
        assert found("at:[2024-05-01T00:00:00Z TO 2024-05-02T00:00:00Z]") == [1]
        assert found("sale", fields=["title"]) == []
        assert found("ok:true") == [2]
        assert found("*") == [1, 2, 3]
        (blue,) = search.query(path, "blue")
        assert (blue["title"], blue["raw"], blue["price"]) == ('Blue "shoes"', 1.5, "NaN")
        assert blue["_score"] > 0
        driver.send("items", {"id": 1, "title": "green boots"}, {"id": 2, "_deleted": True})
        driver.run()
        assert found("shoes") == []
        assert found("boots") == [1]
    with pytest.raises(InvalidArgument, match="cannot be understood"):
        search.query(path, "title:(")


def test_a_key_that_the_index_would_leave_out_is_refused(tmp_path):
    """Its row would stay, next to the one that replaces it."""
    app = hr.App("shop")
    app.table("items", "name string, v int", key="name").to(search.tantivy(tmp_path / "index"))
    with Driver(app) as driver:
        for number in (1, 2):
            driver.send("items", {"name": "a" * 65_530, "v": number})
            driver.run()
        assert [row["v"] for row in search.query(tmp_path / "index", "v:[0 TO 9]")] == [2]
        driver.send("items", {"name": "b" * 65_531, "v": 1})
        with pytest.raises(StoreRefused, match="the key bbb"):
            driver.run()


def test_an_instant_that_the_index_cannot_count_is_in_what_is_found(tmp_path):
    """It is searched by the other columns."""
    app, path = hr.App("shop"), tmp_path / "index"
    app.table("items", "id int, until timestamp", key="id").to(search.tantivy(path))
    instants = ["0001-01-01T00:00:00Z", "1677-09-22T00:00:00Z", "2262-04-11T00:00:00Z", "9999-12-31T23:59:59.999999Z"]
    with Driver(app) as driver:
        driver.send("items", *({"id": number, "until": each} for number, each in enumerate(instants)))
        driver.run()
    found = {row["id"]: row["until"] for row in search.query(path, "id:[0 TO 9]")}
    assert [found[number][:10] for number in range(4)] == [each[:10] for each in instants]
    assert {row["id"] for row in search.query(path, "until:[1600-01-01T00:00:00Z TO 2262-01-01T00:00:00Z]")} == {1}

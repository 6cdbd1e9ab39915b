"""Indexes of OpenSearch as sinks, on a real node."""

from __future__ import annotations

import http.client
import itertools
import json
from contextlib import closing
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from crashing_sinks import WRITER, Kept, batches, check_each_crash, check_zombie, epochs, expected, for_rows, seen

import headrace as hr
from headrace.base.errors import InvalidPlan
from headrace.base.outside import OutputLost, Unavailable
from headrace.base.time import ManualClock
from headrace.connect import search
from headrace.connect.store import StoreDiffers, StoreRefused, WriterFenced
from headrace.testing import Driver, check_sink

pytest.importorskip("opensearchpy")
BOTH = pytest.mark.parametrize("table", [False, True], ids=["stream", "table"])
CLOCK = ManualClock()
NUMBERS = itertools.count()


class Node:
    """What a reader outside sees of the run's node."""

    def __init__(self, server):
        self.server, self.url = server, server.url()

    def ask(self, method, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        with closing(http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=60)) as connection:
            connection.request(method, f"/{path}", data, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            assert answer.status < 300, answer.read()
            return json.load(answer)

    def rows(self, index, query=None):
        """Return what is found, without asking for a refresh."""
        hits = self.ask("POST", f"{index}/_search", {"size": 1000, "query": query or {"match_all": {}}})["hits"]["hits"]
        return [each["_source"] for each in hits]


@pytest.fixture
def node(opensearch_of_the_run):
    opensearch_of_the_run.start()
    return Node(opensearch_of_the_run)


@pytest.fixture
def make(node):
    def fresh():
        name = f"t{next(NUMBERS)}"
        return search.opensearch(node.url, name), lambda: node.rows(name)

    return fresh


@BOTH
def test_an_index_is_a_sink(make, table):
    def kept():
        sink, read = make()
        return Kept(for_rows(sink, table=table), read)

    check_sink(kept)


@BOTH
def test_a_crash_at_any_step_leaves_each_epoch_once(make, table):
    passed = check_each_crash(make, table=table)
    assert {"before_rows", "rows_written", "after_mark"} <= passed


@BOTH
def test_an_older_writer_is_fenced(make, table):
    check_zombie(make, WriterFenced, table=table)


def test_what_an_older_process_still_sends_changes_nothing(make):
    """Its rows reach the server after the newer one has gone on: also of a row that is deleted by then."""
    sink, read = make()
    sink = for_rows(sink, table=True)
    sink.prepare(clock=CLOCK)
    whole = epochs(table=True)
    old = sink.open(writer=WRITER, clock=CLOCK)
    old.publish(0, batches(whole[0], table=True))
    late = [old.lines(rows, 1, old.base + 1, 0) for rows in batches(whole[1], table=True)]
    new = sink.open(writer=WRITER, clock=CLOCK)
    for epoch in list(whole)[1:]:
        new.publish(epoch, batches(whole[epoch], table=True))
    for lines in late:
        old.write(1, old.base + 1, lines)
    new.publish(8, iter(()))  # readers see what has been written
    assert seen(read) == expected(table=True)
    old.close()
    new.close()


def test_rows_are_found_by_words_values_and_ranges(node):
    app = hr.App("shop")
    items = app.table("items", "id int, title string, price decimal(6, 2), tags array<string>, at timestamp", key="id")
    name = f"items{next(NUMBERS)}"
    items.to(search.opensearch(node.url, name))
    with Driver(app) as driver:
        at = "2024-05-01T10:00:00.123456Z"
        driver.send("items", {"id": 1, "title": "Red running shoes", "price": "12.50", "tags": ["a b", "c"], "at": at})
        driver.send("items", {"id": 2, "title": "Blue hat", "price": "7.10", "tags": None, "at": None})
        driver.run()
        driver.send("items", {"id": 2, "title": "Green hat", "price": "7.10", "tags": [], "at": at})
        driver.run()
    one = {"id": 1, "title": "Red running shoes", "price": 12.5, "tags": ["a b", "c"], "at": at}
    assert node.rows(name, {"match": {"title": "shoes running"}}) == [one]
    assert node.rows(name, {"term": {"title.keyword": "Red running shoes"}}) == [one]
    assert [row["id"] for row in node.rows(name, {"range": {"price": {"lt": 10}}})] == [2]
    assert [row["id"] for row in node.rows(name, {"range": {"at": {"gte": "2024-05-01"}}})] == [1, 2]
    assert [row["id"] for row in node.rows(name, {"match": {"tags": "b"}})] == [1]
    assert not node.rows(name, {"match": {"title": "blue"}})


def test_every_type_is_stored_and_what_a_field_cannot_have_is_not_searched(node):
    name = f"t{next(NUMBERS)}"
    values = {
        "id": pa.array([1, 2], pa.int64()),
        "f": pa.array([float("nan"), 0.1]),
        "d": pa.array([Decimal("12345678901234567890.12"), None], pa.decimal128(30, 2)),
        "day": pa.array([date(2024, 2, 29), date(1, 1, 1)]),
        "at": pa.array([datetime(9999, 1, 1, tzinfo=UTC), None], pa.timestamp("us", "UTC")),
        "b": pa.array([b"\0\xff", None]),
        "s": pa.array([{"x": 1, "t": "a"}, None]),
        "m": pa.array([[("k", 1)], []], pa.map_(pa.string(), pa.int32())),
    }
    rows = pa.record_batch(values | {"_time": pa.array([0, 0]), "_deleted": pa.array([False, False])})
    schema = pa.schema([rows.schema.field(each) for each in values])
    sink = search.opensearch(node.url, name).for_step(schema=schema, key=("id",), is_table=True, sealed=frozenset())
    sink.prepare(clock=CLOCK)
    sink.prepare(clock=CLOCK)  # which checks the fields
    writer = sink.open(writer=WRITER, clock=CLOCK)
    writer.publish(0, iter([rows]))
    writer.close()
    one = next(row for row in node.rows(name) if row["id"] == 1)
    assert (one["f"], one["day"], one["b"], one["s"], one["m"]) == (
        "NaN", "2024-02-29", "AP8=", {"x": 1, "t": "a"}, {"k": 1},
    )  # fmt: skip
    assert [row["id"] for row in node.rows(name, {"range": {"f": {"gt": 0}}})] == [2]
    assert [row["id"] for row in node.rows(name, {"match": {"s.t": "a"}})] == [1]
    assert sink.compare(iter([rows]), repair=False).count == 0
    with pytest.raises(StoreDiffers, match="other fields"):
        search.opensearch(node.url, name).for_step(
            schema=pa.schema([("id", pa.string())]), key=("id",), is_table=True, sealed=frozenset()
        ).prepare(clock=CLOCK)


def test_the_row_that_is_refused_is_named(make):
    """A key of more than 512 bytes cannot be the id of a document."""
    sink, _ = make()
    schema = pa.schema([("id", pa.string())])
    sink = sink.for_step(schema=schema, key=("id",), is_table=True, sealed=frozenset())
    sink.prepare(clock=CLOCK)
    writer = sink.open(writer=WRITER, clock=CLOCK)
    rows = pa.record_batch({"id": ["a", "x" * 600], "_time": [0, 0], "_deleted": [False, False]})
    with pytest.raises(StoreRefused, match="xxx"):
        writer.publish(0, iter([rows]))
    writer.close()


def test_a_refused_epoch_may_be_there_in_part_and_the_error_says_so(node, make):
    """An empty text cannot be the id of a document; the other rows are written."""
    sink, read = make()
    sink = sink.for_step(schema=pa.schema([("id", pa.string())]), key=("id",), is_table=True, sealed=frozenset())
    sink.prepare(clock=CLOCK)
    writer = sink.open(writer=WRITER, clock=CLOCK)
    rows = pa.record_batch({"id": ["a", ""], "_time": [0, 0], "_deleted": [False, False]})
    with pytest.raises(StoreRefused, match="may be written") as refused:
        writer.publish(0, iter([rows]))
    assert "Nothing of epoch" not in str(refused.value)
    node.ask("POST", f"{sink.index}/_refresh")
    assert [row["id"] for row in read()] == ["a"]
    writer.close()


def test_what_differs_is_found_and_repaired(node, make):
    sink, read = make()
    sink = for_rows(sink, table=True)
    sink.prepare(clock=CLOCK)
    writer = sink.open(writer=WRITER, clock=CLOCK)
    rows = [(i, f"t{i}", False) for i in range(20)]
    writer.publish(0, batches(rows, table=True))
    writer.close()
    node.ask("POST", f"{sink.index}/_doc/3", {"id": 3, "text": "somebody else"})
    node.ask("DELETE", f"{sink.index}/_doc/4")
    node.ask("PUT", f"{sink.index}/_doc/99", {"id": 99, "text": "too much"})
    found = sink.compare(batches(rows, table=True), repair=True)
    assert (found.missing, found.other, found.extra) == (1, 1, 1)
    assert sink.compare(batches(rows, table=True), repair=False).count == 0
    assert seen(read) == [(i, f"t{i}") for i in sorted(range(20), key=lambda i: str((i, f"t{i}")))]


def test_an_index_that_was_removed_is_missed(node, make):
    """Under the app, and while it was stopped: it is not begun anew without a word."""
    sink, _ = make()
    sink = for_rows(sink, table=True)
    sink.prepare(clock=CLOCK)
    writer = sink.open(writer=WRITER, clock=CLOCK)
    rows = epochs(table=True)
    writer.publish(0, batches(rows[0], table=True))
    node.ask("DELETE", sink.index)
    with pytest.raises(OutputLost, match="removed under the app"):
        writer.publish(1, batches(rows[1], table=True))
    writer.close()
    sink.prepare(clock=CLOCK)
    with pytest.raises(OutputLost, match="created anew"):
        sink.open(writer=WRITER, clock=CLOCK)


@pytest.mark.prove
def test_a_node_that_is_killed_while_it_is_written_gets_each_epoch_once(node, make):
    sink, read = make()
    sink = for_rows(sink, table=True)
    sink.prepare(clock=CLOCK)
    writer, kill_at = sink.open(writer=WRITER, clock=CLOCK), [2]

    def kill(point):
        if point == "rows_written" and kill_at and not kill_at.append(kill_at.pop() - 1) and not kill_at[0]:
            kill_at.clear()
            node.server.kill()

    writer.sink = type(sink)(**{**vars(sink), "fault": kill})
    for epoch, rows in epochs(table=True).items():
        for _ in range(9):
            try:
                writer.publish(epoch, batches(rows, table=True))
            except Unavailable:
                node.server.start()
            else:
                break
    writer.close()
    assert not kill_at
    assert seen(read) == expected(table=True)


@pytest.mark.parametrize("url", ["postgresql://x/y", "http://", "http://h:9200/index", 3, "http://ada:lovelace@h?x=1"])
def test_what_is_no_address_is_refused_without_its_password(url):
    with pytest.raises(InvalidPlan) as refused:
        search.opensearch(url, "items")
    assert "lovelace" not in str(refused.value)


def test_an_address_shows_no_password_and_a_name_is_one_of_an_index(monkeypatch):
    sink = search.opensearch("https://ada:env:SEARCH_PASSWORD@h:9200", "items")
    assert "ada" not in repr(sink) + sink.where + sink.name
    monkeypatch.delenv("SEARCH_PASSWORD", raising=False)
    with pytest.raises(InvalidPlan, match="SEARCH_PASSWORD"):
        sink.address.open()
    for name in ("Items", "_x", "", 3, "headrace_marks", "a*", "a,b", "<a>", "a b", "a/b", "a#b", "a\n"):
        with pytest.raises(InvalidPlan, match="no name of an index"):
            search.opensearch("http://h:9200", name)
    with pytest.raises(InvalidPlan, match="cannot be a field"):
        sink.for_step(schema=pa.schema([("a.b", pa.int32())]), key=None, is_table=False, sealed=frozenset())

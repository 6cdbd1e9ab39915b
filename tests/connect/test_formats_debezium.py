"""Debezium's envelope, as its connectors write it with JsonConverter."""

from __future__ import annotations

import base64
import json
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa

import headrace as hr
from headrace.base.schema import as_schema
from headrace.connect.formats import debezium
from headrace.testing import Driver

DECLARED = "id int, price decimal(10,2), at timestamp, day date, raw binary, name string"
INSTANT = datetime(2026, 1, 31, 10, tzinfo=UTC)
MICROS = int(INSTANT.timestamp()) * 1_000_000


def row(number, *, at=MICROS, price=None):
    steps = base64.b64encode((12345).to_bytes(2, "big")).decode()
    return {"id": number, "price": price or steps, "at": at, "day": 20484, "raw": "AQI=", "name": "é"}


def expected(number):
    return {
        "id": number,
        "price": Decimal("123.45"),
        "at": INSTANT,
        "day": date(2026, 1, 31),
        "raw": b"\1\2",
        "name": "é",
    }


def event(op, before=None, after=None):
    return {"before": before, "after": after, "source": {"lsn": 7, "table": "t"}, "op": op, "ts_ms": 1769853600000}


def decode(*events, form=None, schema=DECLARED):
    values = [each if each is None or isinstance(each, bytes) else json.dumps(each).encode() for each in events]
    return (form or debezium()).decode(pa.array(values, pa.binary()), as_schema(schema))


def described(payload, unit, scale):
    """Return an event with its schema inside."""
    columns = [
        {"type": "int32", "optional": False, "field": "id"},
        {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": str(scale)},
         "field": "price"},
        {"type": "int64", "name": unit, "version": 1, "field": "at"},
        {"type": "int32", "name": "io.debezium.time.Date", "version": 1, "field": "day"},
    ]  # fmt: skip
    rows = [{"type": "struct", "fields": columns, "optional": True, "field": each} for each in ("before", "after")]
    return {"schema": {"type": "struct", "fields": rows, "name": "s.t.Envelope"}, "payload": payload}


def test_changes_are_rows_and_deletions_have_the_row_before():
    read = decode(
        event("c", after=row(1)),
        event("u", before=row(1), after=row(2)),
        event("r", after=row(3)),
        event("d", before=row(4)),
        None,
    )
    assert read.rows.to_pylist() == [expected(1), expected(2), expected(3), expected(4)]
    assert read.deleted.to_pylist() == [False, False, False, True]
    assert read.records.to_pylist() == [0, 1, 2, 3]
    assert read.good.to_pylist() == [True] * 5


def test_the_schema_inside_an_event_says_how_its_columns_are_written():
    read = decode(
        described(event("c", after=row(1, at=MICROS // 1_000)), "io.debezium.time.Timestamp", 2),
        described(event("c", after=row(2, at=MICROS * 1_000)), "io.debezium.time.NanoTimestamp", 2),
        event("c", after=row(3)),
        described(event("c", after=row(4, at=MICROS // 1_000)), "io.debezium.time.Timestamp", 4),
    )
    assert [each["at"] for each in read.rows.to_pylist()] == [INSTANT] * 4
    assert [str(each["price"]) for each in read.rows.to_pylist()] == ["123.45", "123.45", "123.45", "1.23"]
    assert read.records.to_pylist() == [0, 1, 2, 3]


def test_options_say_how_columns_are_written_where_no_schema_does():
    form = debezium(times="millis", decimals="string")
    text = row(1, at="2026-01-31T10:00:00Z", price="123.45")
    assert decode(event("c", after=text), form=form).rows.to_pylist() == [expected(1)]
    number = row(1, at=MICROS // 1_000, price=123.45)
    assert decode(event("c", after=number), form=form).rows.to_pylist() == [expected(1)]


def test_columns_of_the_event_and_its_position_in_the_source():
    read = decode(
        event("d", before={"id": 1}), schema="id int, __op string, __ts_ms timestamp, __source_lsn bigint, __x int"
    )
    assert read.rows.to_pylist() == [{"id": 1, "__op": "d", "__ts_ms": INSTANT, "__source_lsn": 7, "__x": None}]


def test_what_is_no_change_of_a_row_says_why():
    read = decode(
        event("t"),
        event("x", after=row(1)),
        event("u", before=row(1)),
        event("d", after=row(1)),
        b"{",
        event("m"),
        event("c", after=row(2) | {"price": "!"}),
        event("c", after=row(5)),
    )
    assert read.rows.to_pylist() == [expected(5)]
    reasons = read.reasons.to_pylist()
    assert "emptied" in reasons[0]
    assert reasons[1:5] == [
        "it is no change: its op is x",
        "its after is null",
        "its before is null",
        "it is no JSON object",
    ]
    assert reasons[5] is None
    assert "price" in reasons[6]


def test_what_is_written_is_read_as_it_was():
    rows = pa.RecordBatch.from_pylist([expected(1), dict.fromkeys(expected(1)) | {"id": 2}], schema=as_schema(DECLARED))
    form = debezium(decimals="string")
    assert form.decode(form.encode(rows), rows.schema).rows.equals(rows)
    assert json.loads(form.encode(rows)[0].as_py())["op"] == "c"


def test_a_change_says_what_the_row_was_and_a_deletion_is_followed_by_a_tombstone():
    columns = as_schema("id int, name string")
    rows = pa.record_batch(
        {
            "id": pa.array([1, 2, 3, 4], pa.int32()),
            "name": pa.array(["a", "b", None, None]),
            "_deleted": [False, False, True, True],
            "_before": pa.array([None, {"id": 2, "name": "B"}, {"id": 3, "name": "C"}, None], pa.struct(columns)),
        }
    )
    records, owners, places = debezium().encode_changes(rows, columns.names, pa.nulls(4, pa.binary()))
    events = [None if each is None else json.loads(each) for each in records.column("value").to_pylist()]
    assert owners.to_pylist() == [0, 1, 2, 2, 3, 3]
    assert places.to_pylist() == [0, 1, 2, 4]
    assert [each and each["op"] for each in events] == ["c", "u", "d", None, "d", None]
    assert [each and each["before"] for each in events] == [
        *(None, {"id": 2, "name": "B"}, {"id": 3, "name": "C"}),
        *(None, {"id": 4, "name": None}, None),
    ]
    assert [each and each["after"] for each in events] == [
        *({"id": 1, "name": "a"}, {"id": 2, "name": "b"}),
        *([None] * 4),
    ]
    read = debezium().decode(records.column("value"), columns)
    assert read.deleted.to_pylist() == [False, False, True, True]
    assert [row["id"] for row in read.rows.to_pylist()] == [1, 2, 3, 4]


def test_an_app_counts_rows_of_events():
    """A format that has a name, on the embedded log."""
    app = hr.App("cdc")
    app.stream("changes", "id int, name string", format="debezium").to_topic("out")
    with Driver(app) as driver:
        driver.send("changes", {"value": json.dumps(event("c", after={"id": 1, "name": "a"}))}, {"value": "{"})
        driver.step()
        assert [(each["id"], each["name"]) for each in driver.read("out")] == [(1, "a")]
        assert len(driver.read("changes.dead")) == 1

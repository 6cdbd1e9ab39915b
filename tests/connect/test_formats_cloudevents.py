"""CloudEvents in structured and binary mode, and batches."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pyarrow as pa
import pytest

from headrace.base.errors import InvalidPlan
from headrace.base.schema import as_schema
from headrace.connect.format import HEADERS, HEADERS_TYPE, VALUE
from headrace.connect.formats import cloudevents

DECLARED = as_schema("id int, name string, ce_id string, ce_time timestamp, ce_type string")
TIME = datetime(2026, 1, 31, 10, tzinfo=UTC)


def event(number, **more):
    return {
        "specversion": "1.0",
        "id": f"e{number}",
        "source": "/shop",
        "type": "order",
        "time": "2026-01-31T10:00:00Z",
        "data": {"id": number, "name": "é"},
    } | more


def headers(**values):
    return [{"name": name.replace("__", "-"), "value": value.encode()} for name, value in values.items()]


IN_HEADERS = {
    "ce_specversion": "1.0",
    "ce_id": "e7",
    "ce_source": "/shop",
    "ce_type": "order",
    "ce_time": "2026-01-31T10:00:00Z",
}


def decode(*records):
    values = [each if isinstance(each, bytes | None) else json.dumps(each).encode() for each, _ in records]
    batch = pa.record_batch(
        {VALUE: pa.array(values, pa.binary()), HEADERS: pa.array([each for _, each in records], HEADERS_TYPE)}
    )
    return cloudevents().decode_records(batch, DECLARED)


def expected(number):
    return {"id": number, "name": "é", "ce_id": f"e{number}", "ce_time": TIME, "ce_type": "order"}


def test_every_mode_is_read_and_each_event_of_a_batch_is_a_row():
    read = decode(
        ({"id": 7, "name": "é"}, headers(**IN_HEADERS, content__type="application/json; charset=utf-8")),
        (event(1), headers(content__type="application/cloudevents+json")),
        ([event(2), event(3)], headers(content__type="application/cloudevents-batch+json")),
        ([], None),
        (event(4), None),
        (None, headers(**IN_HEADERS)),
        ([event(5)], []),
    )
    rows = read.rows.to_pylist()
    assert rows[:5] == [expected(7), expected(1), expected(2), expected(3), expected(4)]
    assert rows[5] == expected(7) | {"id": None, "name": None}
    assert rows[6] == expected(5)
    assert read.records.to_pylist() == [0, 1, 2, 2, 4, 5, 6]
    assert read.good.to_pylist() == [True] * 7


def test_what_is_no_event_says_why_and_a_batch_with_a_bad_event_is_bad():
    read = decode(
        ({"id": 1}, None),
        (b"{", None),
        (None, None),
        ([event(1), event(2) | {"data": {"id": "x"}}], None),
        ([event(1), 7], None),
        ({"id": 7}, headers(**{name: value for name, value in IN_HEADERS.items() if name != "ce_id"})),
        ({"id": "x"}, headers(**IN_HEADERS)),
        (b"\xff", headers(**IN_HEADERS, content__type="image/png")),
        ({"id": 7}, headers(**IN_HEADERS | {"ce_time": "soon"})),
        (event(3, data_base64="AA=="), None),
        (b"[{", None),
    )
    assert read.rows.num_rows == 0
    reasons = read.reasons.to_pylist()
    assert reasons[0] == "it is no CloudEvent: it has no specversion"
    assert reasons[1] == "it is no JSON object"
    assert reasons[2] == "it has no value"
    assert reasons[3] == 'the field data.id is no whole number: "x"'
    assert reasons[4] == "it is no JSON object"
    assert reasons[5] == "it is no CloudEvent: it has no ce_id"
    assert reasons[6] == 'the field id is no whole number: "x"'
    assert reasons[7] == "its data is not JSON, by its content-type"
    assert reasons[8] == 'the field ce_time is no time: "soon"'
    assert reasons[9] == "its data is binary, and not JSON"
    assert reasons[10] == "it is no batch of CloudEvents"


@pytest.mark.parametrize("mode", ["structured", "binary"])
def test_what_is_written_is_read(mode):
    rows = pa.RecordBatch.from_pylist([expected(1), expected(2) | {"name": None, "ce_time": None}], schema=DECLARED)
    form = cloudevents(source="/us", mode=mode)
    records = form.encode_records(rows)
    assert form.decode_records(records, DECLARED).rows.equals(rows)
    read = form.decode_records(records, as_schema("ce_source string"))
    assert read.rows.to_pylist() == [{"ce_source": "/us"}] * 2


def test_events_without_an_id_have_one_each():
    rows = pa.record_batch({"id": pa.array([1, 1, 1], pa.int32())})
    form = cloudevents(source="/us", type="t")
    ids = form.decode(form.encode(rows), as_schema("ce_id string")).rows.column("ce_id").to_pylist()
    assert len(set(ids)) == 3
    assert None not in ids


def test_an_event_without_a_source_is_not_written():
    with pytest.raises(InvalidPlan, match='no "source"'):
        cloudevents(type="t").encode(pa.record_batch({"id": pa.array([1])}))
    with pytest.raises(InvalidPlan, match="mode"):
        cloudevents(mode="some")
    with pytest.raises(InvalidPlan, match="size"):
        cloudevents(mode="batch", size=0)


def in_batches(keys, *, deleted=(), text="é", **options):
    rows = [expected(n) | {"name": text, "_deleted": n in deleted} for n in range(len(keys))]
    columns = pa.schema([*DECLARED, ("_deleted", pa.bool_())])
    form = cloudevents(source="/us", mode="batch", **options)
    batch = pa.RecordBatch.from_pylist(rows, schema=columns)
    return form, form.encode_changes(batch, DECLARED.names, pa.array(keys, pa.binary()))


def test_a_batch_has_events_of_one_key_in_their_order():
    form, (records, rows, places) = in_batches([b"a", b"b", b"a", None, b"a", b"a", None, b"b"], size=3)
    assert rows.to_pylist() == [4, 5, 6, 7], "a record has the key and the time of its last event"
    assert places.to_pylist() == [0, 3, 0, 2, 0, 1, 2, 3]
    read = form.decode_records(records, DECLARED)
    assert read.records.to_pylist() == [0, 0, 0, 1, 2, 2, 3, 3]
    assert [row["id"] for row in read.rows.to_pylist()] == [0, 2, 4, 5, 3, 6, 1, 7]
    assert read.rows.to_pylist()[0] == expected(0)
    (first,) = {each[0]["value"] for each in records.column(HEADERS).to_pylist()}
    assert first.startswith(b"application/cloudevents-batch+json")


def test_a_deletion_has_a_record_of_its_own_between_batches():
    _, (records, rows, _) = in_batches([b"a"] * 5, deleted=[2])
    assert rows.to_pylist() == [1, 2, 4]
    assert [value is None for value in records.column(VALUE).to_pylist()] == [False, True, False]


def test_a_batch_is_not_larger_than_what_a_broker_takes():
    form, (records, _, places) = in_batches([b"a"] * 40, text="x" * 20_000)
    sizes = [len(value) for value in records.column(VALUE).to_pylist()]
    assert max(sizes) < 300_000
    assert places.to_pylist() == sorted(places.to_pylist())
    assert form.decode_records(records, DECLARED).rows.num_rows == 40

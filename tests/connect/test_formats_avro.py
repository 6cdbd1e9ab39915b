"""Avro records: read by compiled code and one by one, as an independent writer has written them."""

from __future__ import annotations

import json
import pickle
from decimal import Decimal
from io import BytesIO

import fastavro
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headrace.base.errors import InvalidPlan
from headrace.base.schema import as_schema
from headrace.connect.formats import avro, avro_cells, avro_format, avro_schema, avro_values
from headrace.connect.formats.avro_values import bare
from headrace.connect.formats.cells import NotInColumns
from headrace.connect.formats.json_text import plain

FLAT = (
    "id int, big bigint, small tinyint, at timestamp, wall timestamp_ntz, day date, d decimal(10,2), "
    "wide decimal(38,10), t struct<a int, b struct<c string>>, f boolean, x double, y float, s string, raw binary"
)
EVERY = as_schema(FLAT + ", xs array<timestamp>, m map<string,decimal(5,1)>, ys array<struct<a int>>")
TIMES = st.integers(-(2**63) + 1, 2**63 - 1)
VALUES = {
    "id": st.integers(-(2**31), 2**31 - 1),
    "big": st.integers(-(2**63), 2**63 - 1),
    "small": st.integers(-128, 127),
    "at": TIMES,
    "wall": TIMES,
    "day": st.integers(-(2**31), 2**31 - 1),
    "d": st.decimals(-1000, 1000, places=2),
    "wide": st.decimals(-(10**27), 10**27, places=10),
    "t": st.fixed_dictionaries(
        {
            "a": st.none() | st.integers(-5, 5),
            "b": st.none() | st.fixed_dictionaries({"c": st.none() | st.text(max_size=3)}),
        }
    ),
    "f": st.booleans(),
    "x": st.floats(),
    "y": st.floats(width=32),
    "s": st.text(max_size=5),
    "raw": st.binary(max_size=5),
    "xs": st.lists(st.none() | TIMES, max_size=3),
    "m": st.dictionaries(st.text(max_size=3), st.none() | st.decimals(-99, 99, places=1), max_size=3).map(
        lambda found: [*found.items()]
    ),
    "ys": st.lists(st.none() | st.fixed_dictionaries({"a": st.none() | st.integers(-5, 5)}), max_size=2),
}
ROWS = st.lists(st.fixed_dictionaries({name: st.none() | value for name, value in VALUES.items()}), max_size=4)


def batch(rows, schema):
    columns = [pa.array([row[field.name] for row in rows], field.type) for field in schema]
    return pa.RecordBatch.from_arrays(columns, names=schema.names)


def shown(rows):
    """Return rows as text, in which NaN equals NaN, and no time is too late for Python."""
    return repr([plain(column) for column in rows])


@pytest.fixture(params=["compiled", "one by one"])
def way(request, monkeypatch):
    monkeypatch.setattr(avro_format, "has_compiler", lambda: request.param == "compiled")


@pytest.mark.parametrize("ddl", [FLAT, None], ids=["flat", "nested"])
@given(rows=ROWS)
def test_what_was_written_is_read(ddl, rows):
    schema = EVERY if ddl is None else as_schema(ddl)
    form = avro(schema=avro_format_schema(schema))
    rows = batch(rows, schema)
    read = form.decode(form.encode(rows), schema)
    assert read.reasons.null_count == rows.num_rows, read.reasons
    assert shown(read.rows) == shown(rows)


def avro_format_schema(schema):
    from headrace.connect.formats.avro_schema import of_rows

    return of_rows(schema, "Row")


def record(*fields, name="Bid"):
    return {"type": "record", "name": name, "fields": [dict(zip(("name", "type"), field)) for field in fields]}  # noqa: B905 -- a field may have more


def written(schema, *values):
    found = []
    for value in values:
        stream = BytesIO()
        fastavro.schemaless_writer(stream, fastavro.parse_schema(bare(schema)), value)
        found.append(stream.getvalue())
    return found


WRITER = record(
    ("skipped", {"type": "fixed", "name": "F", "size": 3}),
    ("id", "long"),
    ("s", ["string", "null"]),
    ("color", {"type": "enum", "name": "E", "symbols": ["RED", "BLUE"]}),
    ("at", {"type": "long", "logicalType": "timestamp-millis"}),
    ("d", {"type": "fixed", "name": "D", "size": 20, "logicalType": "decimal", "precision": 38, "scale": 3}),
    ("t", ["null", record(("a", "int"), ("x", "double"), name="T")]),
    ("x", "float"),
)
OTHER = st.fixed_dictionaries(
    {
        "skipped": st.binary(min_size=3, max_size=3),
        "id": st.integers(-(2**63), 2**63 - 1),
        "s": st.none() | st.text(max_size=4),
        "color": st.sampled_from(["RED", "BLUE"]),
        "at": st.integers(-(2**63), 2**63 - 1),
        "d": st.integers(-(10**36), 10**36).map(lambda steps: steps.to_bytes(20, "big", signed=True)),
        "t": st.none() | st.fixed_dictionaries({"a": st.integers(-5, 5), "x": st.floats()}),
        "x": st.floats(width=32),
    }
)
DECLARED = as_schema(
    "id int, s string, color string, at timestamp, d decimal(12,2), t struct<x double>, x double, n int"
)


LEAST = {"skipped": b"abc", "id": 0, "s": None, "color": "RED", "at": -(2**63), "d": bytes(20), "t": None, "x": 0.0}


@example(values=[LEAST], cut=0, junk=b"")  # its absolute value is no 64-bit number
@settings(max_examples=150)
@given(values=st.lists(OTHER, max_size=4), cut=st.integers(0, 40), junk=st.binary(max_size=30))
def test_compiled_code_and_one_by_one_agree(values, cut, junk):
    """On other types than declared, values out of range, records that are cut off, and bytes that are none."""
    records = written(WRITER, *values)
    records += [each[:cut] for each in records] + [junk, None, b""]
    schema, found = json.dumps(WRITER), []
    for compiled in (True, False):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(avro_format, "has_compiler", lambda compiled=compiled: compiled)
            found.append(avro(schema=schema).decode(pa.array(records, pa.binary()), DECLARED))
    fast, slow = found
    assert fast.good == slow.good, (fast.reasons, slow.reasons)
    assert shown(fast.rows) == shown(slow.rows)


def read(writer, declared, *values, reader=None):
    """Read records as a registry's are: each with its own schema."""
    form = avro(schema=reader or writer)
    records = pa.array(written(writer, *values), pa.binary())
    if reader is None:
        return form.decode(records, as_schema(declared))
    from headrace.connect.formats import avro_schema, framing
    from headrace.connect.formats.verdicts import Verdicts

    verdicts = Verdicts(len(records))
    part = form._part(framing.bare(records), avro_schema.parsed(json.dumps(writer)), as_schema(declared), verdicts)
    return verdicts.formatted(part.columns, as_schema(declared).names)


@pytest.mark.usefixtures("way")
class TestEvolution:
    """The rules of docs/formats.md."""

    def test_a_field_that_was_removed_is_null(self):
        assert read(record(("a", "int")), "a int, b string", {"a": 1}).rows.to_pylist() == [{"a": 1, "b": None}]

    def test_a_field_that_was_added_is_ignored(self):
        found = read(record(("new", "string"), ("a", "int")), "a int", {"a": 1, "new": "x"})
        assert found.rows.to_pylist() == [{"a": 1}]

    def test_a_field_that_was_renamed_is_found_by_its_alias_and_one_that_is_missing_has_its_default(self):
        reader = {
            "type": "record",
            "name": "Bid",
            "fields": [
                {"name": "cost", "type": "double", "aliases": ["price"]},
                {"name": "currency", "type": "string", "default": "EUR"},
            ],
        }
        found = read(record(("price", "double")), "cost double, currency string", {"price": 1.5}, reader=reader)
        assert found.rows.to_pylist() == [{"cost": 1.5, "currency": "EUR"}]

    def test_a_wider_type_is_read_and_a_narrower_one_where_the_value_has_room(self):
        writer = record(("a", "int"), ("b", "long"), ("c", "float"))
        found = read(writer, "a bigint, b int, c double", {"a": 1, "b": 2, "c": 0.5}, {"a": 1, "b": 2**40, "c": 0.5})
        assert found.rows.to_pylist() == [{"a": 1, "b": 2, "c": 0.5}]
        assert found.reasons.to_pylist()[1] == f"the field b is out of the range of INT: {2**40}"

    def test_a_type_that_cannot_be_read_refuses_the_first_record(self):
        found = read(record(("a", record(("b", "int"), name="B"))), "a int", {"a": {"b": 1}})
        assert found.rows.num_rows == 0
        assert found.reasons.to_pylist()[0].startswith("the field a is")


@pytest.mark.usefixtures("way")
def test_a_decimal_keeps_its_digits_and_is_refused_where_it_has_too_many():
    kind = {"type": "bytes", "logicalType": "decimal", "precision": 30, "scale": 3}
    steps = [-1, 123456, 10**20]
    values = [{"d": each.to_bytes(12, "big", signed=True)} for each in steps]
    found = read(record(("d", kind)), "d decimal(10,3)", *values)
    assert found.rows.to_pylist() == [{"d": Decimal("-0.001")}, {"d": Decimal("123.456")}]
    assert "out of the range of DECIMAL(10,3)" in found.reasons.to_pylist()[2]


def test_what_is_no_schema_is_refused_at_once():
    with pytest.raises(InvalidPlan, match="registry or a schema"):
        avro()
    with pytest.raises(InvalidPlan, match="no schema of Avro"):
        avro(schema='{"type": "record"}')
    with pytest.raises(InvalidPlan, match="not the schema of a record"):
        avro(schema='"string"')
    with pytest.raises(InvalidPlan, match="without a default"):
        avro(schema=record(("a", "int"), ("b", "int"))).encode(pa.record_batch({"a": pa.array([1], pa.int32())}))


def test_a_format_is_a_value():
    form = avro(registry="http://localhost:8081", schema=record(("a", "int")))
    assert pickle.loads(pickle.dumps(form)) == form  # noqa: S301 -- our own
    assert form.bound("orders").subject == "orders-value"
    assert form.bound("orders", key=True).subject == "orders-key"
    assert "8081" not in form.identity


OTHERS = [
    {"name": "big", "type": ["long", "null"]},
    {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-millis"}]},
    {"name": "id", "type": ["null", "long"]},
    {"name": "y", "type": ["double", "null"]},
    {
        "name": "t",
        "type": ["null", {"type": "record", "name": "T", "fields": [{"name": "a", "type": ["int", "null"]}]}],
    },
]


@settings(max_examples=40)
@given(rows=ROWS, cut=st.integers(0, 2), other=st.booleans())
def test_rows_that_are_written_in_columns_are_those_written_one_by_one(rows, cut, other):
    """Byte by byte, also of a part of a batch."""
    flat = as_schema(FLAT)
    text = json.dumps({"type": "record", "name": "R", "fields": OTHERS}) if other else avro_schema.of_rows(flat, "R")
    written = avro_schema.parsed(text)
    part = batch(rows, flat).slice(cut)
    assert avro_cells.write(part, written, b"\0head").equals(avro_values.write(part, written, b"\0head"))


def one_field(kind):
    return avro_schema.parsed(json.dumps({"type": "record", "name": "R", "fields": [{"name": "x", "type": kind}]}))


@pytest.mark.parametrize(
    ("kind", "column"),
    [
        ("int", pa.array([1, 2**31], pa.int64())),
        ("long", pa.array([1, None], pa.int64())),
        ("float", pa.array([1e300], pa.float64())),
        ("string", pa.array([b"x"], pa.binary())),
        ({"type": "enum", "name": "E", "symbols": ["a"]}, pa.array(["a"])),
        ({"type": "array", "items": "int"}, pa.array([[1]], pa.list_(pa.int32()))),
        (["int", "long"], pa.array([1], pa.int32())),
        ({"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 1}, pa.array([Decimal("1.25")])),
        ({"type": "long", "logicalType": "timestamp-nanos"}, pa.array([1], pa.timestamp("us", "UTC"))),
    ],
)
def test_what_is_not_exactly_a_type_of_avro_is_left_to_the_library(kind, column):
    with pytest.raises(NotInColumns):
        avro_cells.write(pa.record_batch({"x": column}), one_field(kind), b"")


def test_a_field_without_a_column_is_left_to_the_library():
    with pytest.raises(NotInColumns):
        avro_cells.write(pa.record_batch({"y": pa.array([1])}), one_field("int"), b"")


def test_many_rows_are_written_in_columns(monkeypatch):
    monkeypatch.setattr(avro_values, "write", None)
    rows = pa.record_batch({"id": pa.array(range(1_000), pa.int64()), "s": pa.array(["é"] * 1_000)})
    form = avro(schema=avro_schema.of_rows(rows.schema, "R"))
    assert form.decode(form.encode(rows), rows.schema).rows.equals(rows)

"""What a union's value or a field's default means: by its logical type, as everywhere in Avro."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from io import BytesIO

import fastavro
import pyarrow as pa
import pytest

from headrace.base.errors import InvalidPlan
from headrace.base.schema import as_schema
from headrace.connect.formats import avro, avro_format, avro_schema, framing
from headrace.connect.formats.verdicts import Verdicts

MICROS = {"type": "long", "logicalType": "timestamp-micros"}
LOCAL = {"type": "long", "logicalType": "local-timestamp-millis"}
DAY = {"type": "int", "logicalType": "date"}
MONEY = {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}
NEW_YEAR = datetime(2026, 1, 1, tzinfo=UTC)


def of(kind, name="R", **more):
    return {"type": "record", "name": name, "fields": [{"name": "x", "type": kind, **more}]}


@pytest.mark.parametrize(
    ("union", "value", "ddl", "shown"),
    [
        (["null", MICROS, "string"], NEW_YEAR, "timestamp", NEW_YEAR),
        (["string", DAY], date(2026, 1, 1), "date", date(2026, 1, 1)),
        (["null", "string", MONEY], Decimal("1.50"), "decimal(10,2)", Decimal("1.50")),
        (["null", "string", MONEY], "2.5", "decimal(10,2)", Decimal("2.50")),
        (["null", "string", MONEY], None, "decimal(10,2)", None),
        (["string", {"type": "array", "items": MICROS}], [NEW_YEAR], "array<timestamp>", [NEW_YEAR]),
        (["int", of(MICROS, "A"), of(DAY, "B")], 7, "string", "7"),
        (["string", of(MICROS, "A")], {"x": NEW_YEAR}, "struct<x:timestamp>", {"x": NEW_YEAR}),
    ],
    ids=str,
)
def test_a_union_of_several_types_knows_its_times_and_decimals(union, value, ddl, shown):
    stream = BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(of(union)), {"x": value})
    found = avro(schema=of(union)).decode(pa.array([stream.getvalue()], pa.binary()), as_schema(f"x {ddl}"))
    assert found.reasons.to_pylist() == [None]
    assert found.rows.to_pylist() == [{"x": shown}]


def defaulted(kind, default, ddl):
    """Read a record whose own schema has no field x; return its value and the reason why it is bad."""
    writer = json.dumps({"type": "record", "name": "R", "fields": [{"name": "id", "type": "int"}]})
    records, verdicts = framing.bare(pa.array([b"\x0e"], pa.binary())), Verdicts(1)
    schema = as_schema(f"id int, x {ddl}")
    form = avro(schema=of(kind, default=default))
    part = form._part(records, avro_schema.parsed(writer), schema, verdicts)
    found = verdicts.formatted(part.columns, schema.names)
    return [row["x"] for row in found.rows.to_pylist()], found.reasons.to_pylist()


@pytest.mark.parametrize("compiled", [True, False], ids=["compiled", "one by one"])
@pytest.mark.parametrize(
    ("kind", "default", "ddl", "shown"),
    [
        (MICROS, 1767225600000000, "timestamp", NEW_YEAR),
        (LOCAL, 1767225600000, "timestamp_ntz", NEW_YEAR.replace(tzinfo=None)),
        (DAY, 20454, "date", date(2026, 1, 1)),
        ("bytes", "\u00ff\u0001", "binary", b"\xff\x01"),
        ({"type": "fixed", "name": "F", "size": 1}, "\u00ff", "binary", b"\xff"),
        (MONEY, "\u0000\u0096", "decimal(10,2)", Decimal("1.50")),
        ([MONEY, "null"], "\u0096", "decimal(10,2)", Decimal("-1.06")),
        ({"type": "array", "items": DAY}, [0], "array<date>", [date(1970, 1, 1)]),
        ({"type": "map", "values": "double"}, {"a": 1}, "map<string,double>", [("a", 1.0)]),
        (of(DAY, "Q"), {"x": 0}, "struct<x:date>", {"x": date(1970, 1, 1)}),
        (of(DAY, "Q", default=1), {}, "struct<x:date>", {"x": date(1970, 1, 2)}),
        (["null", DAY], None, "date", None),
        ("string", "EUR", "string", "EUR"),
    ],
    ids=str,
)
def test_a_default_is_a_value_of_its_type(kind, default, ddl, shown, compiled, monkeypatch):
    monkeypatch.setattr(avro_format, "has_compiler", lambda: compiled)
    assert defaulted(kind, default, ddl) == ([shown], [None])


def test_a_default_that_the_column_cannot_have_makes_bad_records():
    """The app goes on, as with a value that is written so."""
    assert defaulted("string", "x", "int") == ([], ['the default of the field x is no whole number: "x"'])


def test_a_default_that_is_no_bytes_is_refused_at_once():
    with pytest.raises(InvalidPlan, match="letters beyond 255"):
        avro(schema=of("bytes", default="\u1234"))

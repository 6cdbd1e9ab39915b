"""Text, binary and separated values."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.base.errors import InvalidPlan
from headrace.base.schema import as_schema
from headrace.connect.formats import csv, format_named

FLAT = as_schema("id int, name string, at timestamp, d decimal(10,2), x double, raw binary, f boolean, day date")
VALUES = st.fixed_dictionaries(
    {
        "id": st.none() | st.integers(-(2**31), 2**31 - 1),
        "name": st.none() | st.text(st.sampled_from("a\",;\n\\é'N "), max_size=5),
        "at": st.none() | st.integers(-(10**17), 10**17),
        "d": st.none() | st.decimals(-1000, 1000, places=2),
        "x": st.none() | st.floats(allow_nan=False),
        "raw": st.none() | st.binary(max_size=4),
        "f": st.none() | st.booleans(),
        "day": st.none() | st.integers(-9999, 9999),
    }
)


def decode(form, *records, schema):
    return form.decode(pa.array(records, pa.binary()), as_schema(schema))


@pytest.mark.parametrize("form", [csv(), csv(delimiter=";", quote="'", null="N")], ids=["usual", "other"])
@given(rows=st.lists(VALUES, max_size=4))
def test_separated_values_come_back(form, rows):
    """Also what looks like a null, a quote or a line end."""
    columns = [pa.array([row[field.name] for row in rows], field.type) for field in FLAT]
    batch = pa.RecordBatch.from_arrays(columns, names=FLAT.names)
    decoded = form.decode(form.encode(batch), FLAT)
    assert decoded.reasons.null_count == len(rows), decoded.reasons
    assert decoded.rows.equals(batch)


def test_separated_values_that_do_not_fit_say_why():
    records = [b"1,a", b"2", b"x,b", b"1,b,c", b'3,"a', b'4,a"b', b"\xff,a", None, b'5,"a,""b"', b'6,"",']
    decoded = decode(csv(), *records, schema="id int, s string")
    assert decoded.rows.to_pylist() == [{"id": 1, "s": "a"}, {"id": 2, "s": None}, {"id": 5, "s": 'a,"b'}]
    reasons = decoded.reasons.to_pylist()
    assert reasons[2] == 'the field id is no whole number: "x"'
    assert reasons[3] == reasons[9] == "it has more than 2 values"
    assert reasons[4] == reasons[5] == 'a " is not closed, or is inside a value'
    assert reasons[6] == "it is no text: its bytes are not UTF-8"
    assert reasons[7] == "it has no value"


@pytest.mark.parametrize("options", [{"delimiter": ";;"}, {"quote": ","}, {"null": 'a"'}, {"delimiter": "\n"}])
def test_marks_that_could_not_be_read_back_are_refused(options):
    with pytest.raises(InvalidPlan):
        csv(**options)


@pytest.mark.parametrize(
    ("ddl", "value", "text"),
    [
        ("k string", "é", "é".encode()),
        ("k string", "", b""),
        ("k bigint", -(2**63), b"-9223372036854775808"),
        ("k boolean", True, b"true"),
        ("k timestamp", datetime(2026, 1, 31, 10, tzinfo=UTC), b"2026-01-31T10:00:00.000000Z"),
        ("k decimal(10,2)", Decimal("1.10"), b"1.10"),
        ("k binary", b"\xff\x00", b"\xff\x00"),
        ("a int, b string", (1, "x"), b'{"a":1,"b":"x"}'),
    ],
)
def test_a_key_is_the_text_of_its_column_and_several_are_an_object(ddl, value, text):
    schema, form = as_schema(ddl), format_named("text")
    values = value if isinstance(value, tuple) else (value,)
    rows = pa.RecordBatch.from_arrays(
        [pa.array([each], field.type) for each, field in zip(values, schema, strict=True)], names=schema.names
    )
    encoded = form.encode(rows).cast(pa.binary())
    assert encoded.to_pylist() == [text]
    assert form.decode(encoded, schema).rows.equals(rows)


def test_text_that_is_no_value_of_the_column_is_bad():
    decoded = decode(format_named("text"), b"7", b"x", None, b"\xff", b"8", schema="k int")
    assert decoded.rows.to_pylist() == [{"k": 7}, {"k": 8}]
    assert decoded.good.to_pylist() == [True, False, False, False, True]
    assert 'the field k is no whole number: "x"' in decoded.reasons.to_pylist()


def test_binary_is_the_bytes_of_one_column():
    decoded = decode(format_named("binary"), b"\xff", None, b"", schema="raw binary")
    assert decoded.rows.to_pylist() == [{"raw": b"\xff"}, {"raw": b""}]
    assert decode(format_named("binary"), b"\xff", b"a", schema="s string").rows.to_pylist() == [{"s": "a"}]
    with pytest.raises(InvalidPlan, match="one column"):
        decode(format_named("binary"), b"1", schema="k int")

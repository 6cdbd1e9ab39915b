"""Types with values of them, and what every store of views keeps of values: a file of tests imports the tests."""

import math
import struct
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import strategies as st

from headrace.base.schema import parse

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
FLOAT32 = st.floats(width=32)
SCALARS = {
    "boolean": st.booleans(),
    "tinyint": st.integers(-(2**7), 2**7 - 1),
    "smallint": st.integers(-(2**15), 2**15 - 1),
    "int": st.integers(-(2**31), 2**31 - 1),
    "bigint": st.integers(-(2**63), 2**63 - 1),
    "float": FLOAT32,
    "double": st.floats(),
    "string": TEXT,
    "binary": st.binary(max_size=12),
    "date": st.dates(),
    "timestamp": st.datetimes(timezones=st.just(UTC)),
    "timestamp_ntz": st.datetimes(),
    "decimal(38,0)": st.decimals(-(10**38) + 1, 10**38 - 1, places=0),
    "decimal(10,2)": st.decimals(Decimal("-99999999.99"), Decimal("99999999.99"), places=2),
    "decimal(38,38)": st.decimals(Decimal("-0.9"), Decimal("0.9"), places=38),
}


def nested(inner):
    """Give types made of other types, as (DDL text, strategy of values)."""
    return st.one_of(
        inner.map(lambda of: (f"array<{of[0]}>", st.lists(of[1] | st.none(), max_size=3))),
        inner.map(lambda of: (f"map<string,{of[0]}>", st.dictionaries(TEXT, of[1] | st.none(), max_size=3).map(pairs))),
        inner.map(lambda of: (f"map<int,{of[0]}>", st.dictionaries(st.integers(0, 9), of[1], max_size=3).map(pairs))),
        inner.map(
            lambda of: (
                f"struct<a:{of[0]},`b c`:string>",
                st.fixed_dictionaries({"a": of[1] | st.none(), "b c": TEXT | st.none()}),
            )
        ),
    )


def pairs(mapping):
    return list(mapping.items())


TYPES = st.recursive(st.sampled_from(list(SCALARS.items())), nested, max_leaves=3)


def bits(value):
    """Make values comparable that are equal only bit by bit: NaN is itself, and -0.0 is not 0.0."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else struct.pack(">d", value)
    if isinstance(value, dict):
        return {name: bits(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [bits(part) for part in value]
    return value


@pytest.mark.parametrize(
    ("ddl", "ascending"),
    [
        ("bigint", [None, -(2**63), -1, 0, 2**63 - 1]),
        ("boolean", [None, False, True]),
        ("double", [None, -math.inf, -1.5, 0.0, 1e300, math.inf, math.nan]),
        ("string", [None, "", "A", "B", "a", "é", "\U0001f600"]),
        ("binary", [None, b"", b"\x00", b"\x7f", b"\xff"]),
        ("decimal(10,2)", [None, *map(Decimal, ["-100.00", "-99.99", "-1.00", "0.00", "0.01", "9.99", "10.00"])]),
        ("date", [None, date(1, 1, 1), date(1969, 12, 31), date(2026, 1, 31), date(9999, 12, 31)]),
        ("timestamp", [None, *(datetime(y, 1, 1, 0, 0, 0, 1, tzinfo=UTC) for y in (1, 1969, 2026, 9999))]),
    ],
)
def test_a_view_is_sorted_by_its_key_as_the_type_sorts_nulls_first(views, ddl, ascending):
    schema = parse(f"k {ddl}")
    views.declare("v", schema, ("k",))
    delta = pa.table({"k": pa.array(ascending[::-1], schema.field("k").type), "_weight": [1] * len(ascending)})
    views.apply(0, {"v": delta})
    assert bits(views.read("v")["k"].to_pylist()) == bits(ascending)

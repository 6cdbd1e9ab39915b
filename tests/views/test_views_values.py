"""Every value of every type comes back from SQLite as it was."""

import math
import struct
import tempfile
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.base.errors import InvalidRows
from headrace.base.schema import TIMESTAMP, TIMESTAMP_NTZ, parse, parse_type
from headrace.views.sqlite import SqliteViews

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


@settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_every_value_of_every_type_comes_back(data):
    ddl, strategy = data.draw(TYPES, label="type")
    values = data.draw(st.lists(strategy | st.none(), max_size=6), label="values")
    column = pa.array(values, parse_type(ddl))
    schema = pa.schema([("n", pa.int64()), ("v", column.type)])
    delta = pa.table({"n": list(range(len(values))), "v": column, "_weight": [1] * len(values)})
    with tempfile.TemporaryDirectory() as folder, SqliteViews(Path(folder) / "views.db", durable=False) as views:
        views.declare("v", schema, ("n",))
        views.apply(0, {"v": delta})
        read = views.read("v")
    assert read.schema == schema
    assert bits(read["v"].to_pylist()) == bits(column.to_pylist())


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


@pytest.mark.parametrize("kind", [TIMESTAMP, TIMESTAMP_NTZ])
def test_a_time_that_text_cannot_sort_is_refused_and_nothing_of_the_epoch_is_kept(views, kind):
    views.declare("v", pa.schema([("at", kind)]), None)
    with pytest.raises(InvalidRows, match='the column "at" has a time outside the years 1 to 9999'):
        views.apply(0, {"v": pa.table({"at": pa.array([0, 2**62], kind), "_weight": [1, 1]})})
    assert (views.applied(), views.read("v").num_rows) == (-1, 0)


def test_sql_reads_what_is_stored(views):
    """The tables are there for whoever has SQLite, not for us alone."""
    import sqlite3
    from contextlib import closing

    schema = parse("name string, price decimal(10,2), at timestamp, tags array<string>, ratio double")
    views.declare("items", schema, ("name",))
    row = {
        "name": ["lamp"],
        "price": pa.array([Decimal("12.50")]),
        "at": pa.array([datetime(2026, 1, 31, 10, tzinfo=UTC)], TIMESTAMP),
        "tags": [["a", "b"]],
        "ratio": [math.nan],
        "_weight": [1],
    }
    views.apply(0, {"items": pa.table(row)})
    with closing(sqlite3.connect(views.path)) as db:
        stored = db.execute("SELECT *, json_extract(tags, '$[1]') FROM items").fetchall()
    assert stored == [("lamp", "12.50", "2026-01-31 10:00:00.000000Z", '["a","b"]', "NaN", "b")]

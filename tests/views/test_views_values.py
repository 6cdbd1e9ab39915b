"""Every value of every type comes back from SQLite as it was."""

import math
import tempfile
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.base.errors import InvalidRows
from headrace.base.schema import TIMESTAMP, TIMESTAMP_NTZ, parse, parse_type
from headrace.views.sqlite import SqliteViews
from view_values import *  # noqa: F403 -- tests of what every store keeps of values
from view_values import TYPES, bits


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

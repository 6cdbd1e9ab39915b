"""Views served from PostgreSQL, on a real server."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.base.schema import parse_type
from headrace.connect.postgres.address import PostgresAddress
from headrace.connect.postgres.serving.store import PostgresViews
from view_contract import *  # noqa: F403 -- tests of what every store keeps
from view_values import *  # noqa: F403 -- tests of what every store keeps of values
from view_values import TYPES, bits


def store(database, **options):
    return PostgresViews(PostgresAddress.parse(database.url), "shop/1", **options)


@pytest.fixture
def views(database):
    opened = store(database)
    yield opened
    opened.close()


def fits(value):
    """Whether PostgreSQL has the value: no NUL in a text."""
    if isinstance(value, str):
        return "\0" not in value
    if isinstance(value, dict):
        return all(map(fits, [*value, *value.values()]))
    return not isinstance(value, list | tuple) or all(map(fits, value))


def shown(value, *, nested=False):
    """Return a value by its bits; inside of jsonb -0.0 is 0.0, and the entries of a map have another order."""
    if isinstance(value, float) and nested:
        return bits(value + 0.0)
    if isinstance(value, dict):
        return {name: shown(part, nested=True) for name, part in value.items()}
    if isinstance(value, tuple):
        return tuple(shown(part, nested=True) for part in value)
    if isinstance(value, list):
        pairs = value and all(isinstance(part, tuple) for part in value)
        return [shown(part, nested=True) for part in (sorted(value, key=repr) if pairs else value)]
    return bits(value)


@settings(deadline=None, max_examples=60, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_every_value_of_every_type_comes_back(views, data):
    ddl, strategy = data.draw(TYPES, label="type")
    values = data.draw(st.lists((strategy | st.none()).filter(fits), max_size=6), label="values")
    column = pa.array(values, parse_type(ddl))
    schema = pa.schema([("n", pa.int64()), ("v", column.type)])
    delta = pa.table({"n": list(range(len(values))), "v": column, "_weight": [1] * len(values)})
    views.reset()
    views.declare("v", schema, ("n",))
    views.declare("bag", schema, None)
    views.apply(0, {"v": delta, "bag": delta})
    read = views.read("v")
    assert read.schema == schema
    assert shown(read["v"].to_pylist()) == shown(column.to_pylist())
    assert views.damage() == {}
    gone = delta.set_column(2, "_weight", pa.array([-1] * len(values)))
    views.apply(1, {"v": gone, "bag": gone})
    assert (views.read("v").num_rows, views.read("bag").num_rows, views.damage()) == (0, 0, {})

"""Rows are staged by columns as by SQL: the same rows in the same order, or left to SQL."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from random import Random

import pyarrow as pa
import pytest

from headrace.kernels import staged_columns
from headrace.kernels.duck import Duck
from headrace.kernels.staged_columns import staged_by_columns
from headrace.kernels.staging import Stage, staged

KINDS = {
    "int": (pa.int32(), [0, -1, 7, 2**31 - 1]),
    "long": (pa.int64(), [0, -1, 2**63 - 1, -(2**63)]),
    "text": (pa.string(), ["", "a", "B", "ä", "z\u0301", "\U0001f600", "a\0b"]),
    "bytes": (pa.binary(), [b"", b"\0", b"\xff", b"a"]),
    "flag": (pa.bool_(), [True, False]),
    "day": (pa.date32(), [date(1970, 1, 1), date(1969, 1, 1), date(2026, 1, 31)]),
    "at": (pa.timestamp("us"), [0, -(10**16), 10**15 + 1]),
    "price": (pa.decimal128(10, 2), [Decimal("0.00"), Decimal("-1.50"), Decimal("99999999.99")]),
}
VALUES = pa.schema([("x", pa.float64()), ("tags", pa.list_(pa.string())), ("who", pa.struct([("a", pa.int32())]))])


def delta(dice, kinds, *, values=True):
    """At most one row of each weight for each key, nulls among the keys; in one table or two."""
    keys = sorted(
        {tuple(dice.choice([None, *KINDS[kind][1]]) for kind in kinds) for _ in range(dice.randrange(30))}, key=repr
    )
    rows = [(key, weight) for key in keys for weight in dice.choice([(1,), (-1,), (1, -1)])]
    dice.shuffle(rows)
    columns = [pa.array([key[i] for key, _ in rows], KINDS[kind][0]) for i, kind in enumerate(kinds)]
    names = [f"k{i}" for i in range(len(kinds))]
    if values:
        columns += [
            pa.array([dice.choice([None, 1.5, float("nan"), -0.0]) for _ in rows], pa.float64()),
            pa.array([dice.choice([None, [], ["a", None]]) for _ in rows], VALUES.field("tags").type),
            pa.array([dice.choice([None, {"a": 1}, {"a": None}]) for _ in rows], VALUES.field("who").type),
        ]
        names += VALUES.names
    columns += [
        pa.array([weight for _, weight in rows], pa.int32()),
        pa.array([dice.choice([None, 0, 5, 10**15]) for _ in rows], pa.int64()),
    ]
    table = pa.table(columns, names=[*names, "_weight", "_time"])
    at = dice.randrange(table.num_rows + 1)
    return [part for part in (table.slice(0, at), table.slice(at)) if part.num_rows] if at % 2 else [table]


def stage_of(table, form, kinds, **options):
    names = [name for name in table.column_names if not name.startswith("_")]
    schema = pa.schema([table.schema.field(name) for name in names])
    key = tuple(f"k{i}" for i in range(len(kinds)))
    options = {"net": False, **options}
    return Stage(step="s", inputs=(0,), sink="s", schema=schema, form=form, key=key, **options)


def shown(table):
    """Rows as text: every NaN is equal to every NaN, and -0.0, which DuckDB may give as 0.0, to that."""
    return repr(table.to_pylist()).replace("-0.0", "0.0")


def by_sql(op, tables):
    duck = Duck()
    try:
        return staged(
            duck, op, "(" + " UNION ALL ".join(f"SELECT * FROM {duck.register(each)}" for each in tables) + ")"
        )
    finally:
        duck.close()


@pytest.mark.parametrize("form", ["changelog", "rows", "delta"])
@pytest.mark.parametrize(
    "kinds", [*((kind,) for kind in KINDS), ("text", "int"), ("at", "flag", "price")], ids="-".join
)
def test_columns_give_what_sql_gives(form, kinds):
    dice = Random(f"{form}{kinds}")  # noqa: S311 -- it draws rows
    for _ in range(4):
        tables = delta(dice, kinds)
        if not tables or not tables[0].num_rows:
            continue
        op = stage_of(tables[0], form, kinds)
        found = staged_by_columns(op, tables)
        assert found is not None
        expected = by_sql(op, tables)
        assert found.schema == expected.schema
        assert shown(found) == shown(expected)


def test_what_columns_do_not_cover_is_left_to_sql(monkeypatch):
    rows = pa.table({"k0": [1, 1], "x": [1.0, 2.0], "_weight": pa.array([1, 1], pa.int32()), "_time": [0, 0]})
    key = ("int",)
    assert staged_by_columns(stage_of(rows, "changelog", key), [rows]) is None  # two rows of one key
    one = rows.slice(0, 1)
    assert staged_by_columns(stage_of(one, "changelog", key), [one]) is not None
    assert staged_by_columns(stage_of(one, "changelog", key, net=True), [one]) is None
    assert staged_by_columns(stage_of(one, "changelog", key, before=True), [one]) is None
    assert staged_by_columns(stage_of(one, "changelog", ()), [one]) is None
    floats = one.set_column(0, "k0", pa.array([-0.0]))
    assert staged_by_columns(stage_of(floats, "changelog", key), [floats]) is None
    monkeypatch.setattr(
        staged_columns, "hash_columns", lambda _, rows: pa.nulls(rows, pa.int64()).fill_null(0).to_numpy()
    )
    both = pa.concat_tables(
        [one, one.set_column(0, "k0", pa.array([2])).set_column(2, "_weight", pa.array([-1], pa.int32()))]
    )
    assert staged_by_columns(stage_of(both, "changelog", key), [both]) is None  # hashes that collide
    monkeypatch.setattr(staged_columns, "MOST_ROWS", 1)
    assert staged_by_columns(stage_of(both, "rows", key), [both]) is None


@pytest.mark.parametrize("name", ["_nth", "_NTH", "rows", "_row"])
def test_a_column_of_any_name_loses_no_row_of_a_changelog(name):
    schema = pa.schema([("k", pa.int32()), (name, pa.int32())])
    op = Stage(step="s", inputs=(0,), sink="s", schema=schema, form="changelog", key=("k",), net=True)
    ones = pa.array([1, 1, 1], pa.int32())
    rows = pa.table([pa.array([1, 2, 3], pa.int32()), pa.array([1, 2, 7], pa.int32()), ones, pa.array([0, 0, 0])],
                    names=["k", name, "_weight", "_time"])  # fmt: skip
    assert by_sql(op, [rows]).column(name).to_pylist() == [1, 2, 7]

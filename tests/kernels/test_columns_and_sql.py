"""What is computed by columns is what SQL computes: the same deltas and the same state, epoch by epoch."""

from __future__ import annotations

import random
from collections import Counter
from datetime import date, datetime
from decimal import Decimal
from itertools import product

import pyarrow as pa
import pytest
from one_shard import OneShard, tuples

from budget import examples, matrix
from headrace.kernels import upserts
from headrace.kernels.joins import pairs_by_columns
from headrace.kernels.joins.join_spec import JoinSpec
from headrace.kernels.joins.table_join import TableJoin
from headrace.kernels.latest import Upsert

NAN = float("nan")
KINDS = {
    "INTEGER": (pa.int32(), [1, 2, 3, -(2**31)]),
    "BIGINT": (pa.int64(), [1, 2, 2**62, -1]),
    "DOUBLE": (pa.float64(), [0.0, NAN, 1.5, float("inf")]),
    "DECIMAL(20,2)": (pa.decimal128(20, 2), [Decimal("1.10"), Decimal("-1.10"), Decimal("999999999999999999.99")]),
    "VARCHAR": (pa.string(), ["", "é", "e\u0301", "a\0b", "𝄞", "null"]),
    "BLOB": (pa.binary(), [b"", b"\0", b"\0\0", b"\xff"]),
    "TIMESTAMP": (pa.timestamp("us"), [datetime(1969, 12, 31), datetime(2026, 1, 1, 0, 0, 0, 1), datetime(1, 1, 1)]),  # noqa: DTZ001 -- readings in UTC
    "DATE": (pa.date32(), [date(1969, 12, 31), date(2026, 1, 1)]),
    "BOOLEAN": (pa.bool_(), [True, False]),
    "BIGINT[]": (pa.list_(pa.int64()), [[], [1], [1, None]]),
    "STRUCT(a BIGINT)": (pa.struct([("a", pa.int64())]), [{"a": 1}, {"a": None}]),
}
NESTED = ("BIGINT[]", "STRUCT(a BIGINT)")
HERE = {"step": "s", "inputs": (0,), "output": 1}
BOTH = {"step": "s", "inputs": (0, 1), "output": 2, "late": 3}


class Ways:
    """An operator run both ways: by columns where these cover it, and by SQL alone."""

    def __init__(self, op, folder, patch, room, *, how):
        self.shards = [OneShard(op, folder / way) for way in ("columns", "sql")]
        self.patch, self.room, self.how = patch, room, how
        self.by_columns = 0

    def step(self, *inputs):
        """Run an epoch both ways, and compare what comes out."""
        way = getattr(self.room, self.how)

        def counted(*arguments):
            found = way(*arguments)
            self.by_columns += found is not None
            return found

        self.patch.setattr(self.room, self.how, counted)
        columns = self.shards[0].step(*inputs)
        self.patch.setattr(self.room, self.how, lambda *_: None)
        sql = self.shards[1].step(*inputs)
        self.patch.setattr(self.room, self.how, way)
        assert _counted(columns) == _counted(sql)
        schemas = {tuple(shard.result.delta[0].schema) for shard in self.shards if shard.result.delta}
        assert len(schemas) <= 1
        return columns

    def keeps_the_same(self):
        """Return whether both ways keep the same rows."""
        return self._kept(0) == self._kept(1)

    def _kept(self, at):
        shard = self.shards[at]
        state = shard._open()
        kept = {}
        for table, spec in state.tables.items():
            rows = shard.duck.arrow(f"SELECT {', '.join(spec.columns)} FROM {state.name(table)}")
            kept[table] = _counted(tuples([rows]))
        shard.duck.forget()
        return kept

    def close(self):
        for shard in self.shards:
            shard.duck.close()


def _counted(rows):
    return Counter(map(repr, rows))


@pytest.fixture
def ways(tmp_path, monkeypatch):
    """Return how an operator is run both ways."""
    opened = []

    def make(op, room, how):
        opened.append(Ways(op, tmp_path / str(len(opened)), monkeypatch, room, how=how))
        return opened[-1]

    yield make
    for each in opened:
        each.close()


def table(columns, rows):
    """Return rows of these columns (names with Arrow types), `_weight` and `_time`."""
    kinds = {**columns, "_weight": pa.int32(), "_time": pa.int64()}
    values = zip(*rows, strict=True) if rows else [[]] * len(kinds)
    return pa.table([pa.array(column, kind) for column, kind in zip(values, kinds.values(), strict=True)], list(kinds))


# ---- upserts ----


@pytest.mark.parametrize(("key", "value", "by_time"), matrix(KINDS, reversed(KINDS), (False, True), depth=1))
def test_upserts_by_columns_are_those_by_sql(ways, key, value, by_time):
    """Null keys, deletes, rows that do not change, older rows, several records of a key, and epochs that delete all."""
    draw = random.Random(f"{key} {value} {by_time}")  # noqa: S311 -- a test is no secret
    op = Upsert(**HERE, columns=(("k", key), ("j", "BIGINT"), ("v", value)), keys=("k", "j"), by_time=by_time)
    run = ways(op, upserts, "records")
    kinds = {"k0": KINDS[key][0], "k1": pa.int64(), "v0": KINDS[value][0]}
    keys, values = [*KINDS[key][1], None], [*KINDS[value][1], None, *([-0.0] if value == "DOUBLE" else [])]
    for epoch in range(examples(8, times=8)):
        pairs = [(k, j) for k in keys for j in (1, None)]
        chosen = draw.sample(pairs, draw.randint(1, len(pairs)))
        chosen += draw.choices(pairs, k=2) if epoch % 4 == 3 else []
        weights = [-1 if epoch % 7 == 6 else draw.choice((1, 1, 1, -1)) for _ in chosen]
        times = [draw.choice((epoch, epoch + draw.randint(-3, 3), None)) for _ in chosen]
        rows = [
            (k, j, draw.choice(values) if weight > 0 else None, weight, time)
            for (k, j), weight, time in zip(chosen, weights, times, strict=True)
        ]
        cut = draw.randint(0, len(rows))
        parts = [table(kinds, some) for some in (rows[:cut], rows[cut:]) if some]
        order = [pa.array(range(len(part))) for part in parts]
        run.step([part.append_column("_order", numbers) for part, numbers in zip(parts, order, strict=True)])
    assert run.keeps_the_same()
    assert (run.by_columns > 0) == (key not in NESTED and value not in NESTED)


# ---- joins ----


class Side:
    """A side of a join, and the deltas that its table might send."""

    def __init__(self, draw, letter, kind, values, *, form):
        self.draw, self.letter, self.values, self.form = draw, letter, values, form
        self.kinds = {f"{letter}0": pa.int64(), f"{letter}1": kind, f"{letter}2": pa.string()}
        self.rows = {}

    def epoch(self, epoch):
        """Return a delta: withdrawals and insertions, of keys, or of rows of a bag."""
        rows = []
        for _ in range(self.draw.randint(0, 12)):
            key = self.draw.choice((1, 2, 3, 4, 5, 6, None))
            rows += {"key": self._of_key, "bag": self._of_bag, "growing": self._of_growing}[self.form](key, epoch)
        return table(self.kinds, rows)

    def _row(self, key):
        return (key, self.draw.choice(self.values), self.draw.choice(("x", "y", None)))

    def _of_key(self, key, time):
        old = self.rows.pop(key, None)
        withdrawn = [] if old is None else [(*old, -1, self.draw.choice((time, None)))]
        if self.draw.random() < 0.3:
            return withdrawn
        self.rows[key] = old if old and self.draw.random() < 0.1 else self._row(key)
        return [*withdrawn, (*self.rows[key], 1, self.draw.choice((time, time - 2, None)))]

    def _of_bag(self, key, time):
        return [(*self._row(key), self.draw.choice((1, 1, 1, -1)), self.draw.choice((time, None)))]

    def _of_growing(self, key, time):
        return [(*self._row(key), 1, time)]


@pytest.mark.parametrize(("kind", "forms"), matrix(KINDS, product(("key", "bag", "growing"), repeat=2), depth=1))
def test_joins_by_columns_are_those_by_sql(ways, kind, forms):
    """Keys, bags and sides that only grow; null keys, equal rows, rows that come back, rows that were never there."""
    draw = random.Random(f"{kind} {forms}")  # noqa: S311 -- a test is no secret
    arrow, values = KINDS[kind]
    left, right = (
        Side(draw, letter, arrow, [*values, None], form=form) for letter, form in zip("lr", forms, strict=True)
    )
    columns = [tuple((f"{x}{i}", ("BIGINT", kind, "VARCHAR")[i]) for i in range(3)) for x in "lr"]
    output = tuple((f"o{name}", name, of) for name, of in (*columns[0], *columns[1][::2]))
    spec = JoinSpec(
        left=columns[0],
        right=columns[1],
        on=(("l1", "r1"),),
        where=None,
        keys=tuple((f"{x}0",) if form == "key" else None for x, form in zip("lr", forms, strict=True)),
        ordered=False,
        output=output,
        how="inner",
        growing=tuple(form == "growing" for form in forms),
    )
    run = ways(TableJoin(**BOTH, join=spec), pairs_by_columns, "delta")
    for epoch in range(examples(6, times=10)):
        rows = run.step([left.epoch(epoch)], [right.epoch(epoch)])
        weights = [row[-2] for row in rows]
        assert weights == sorted(weights), "what is withdrawn comes first"
    assert run.keeps_the_same()
    assert (run.by_columns > 0) == (kind not in NESTED and not (kind == "DOUBLE" and "bag" in forms))


def test_a_value_that_half_of_the_rows_have_is_left_to_sql(ways, monkeypatch):
    """Pairs that do not fit in memory are computed by DuckDB, which spills; nothing was written before."""
    columns = [((f"{x}0", "BIGINT"), (f"{x}1", "BIGINT")) for x in "lr"]
    spec = JoinSpec(
        left=columns[0],
        right=columns[1],
        on=(("l1", "r1"),),
        where=None,
        keys=(("l0",), ("r0",)),
        ordered=False,
        output=(("a", "l0", "BIGINT"), ("b", "r0", "BIGINT")),
        how="inner",
    )
    run = ways(TableJoin(**BOTH, join=spec), pairs_by_columns, "delta")

    def rows(letter, count, first=0):
        kinds = {f"{letter}0": pa.int64(), f"{letter}1": pa.int64()}
        return [table(kinds, [(first + at, 7, 1, 0) for at in range(count)])]

    assert len(run.step(rows("l", 40), rows("r", 40))) == 1600
    assert run.by_columns == 1
    assert run.keeps_the_same()
    monkeypatch.setattr(pairs_by_columns, "room", lambda: 40 * 40 * 16)
    assert len(run.step(rows("l", 40, 40), rows("r", 1, 40))) == 40 * 40 + 40 + 40
    assert run.by_columns == 1

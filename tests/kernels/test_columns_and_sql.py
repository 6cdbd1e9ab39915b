"""What is computed by columns is what SQL computes: the same deltas and the same state, epoch by epoch."""

from __future__ import annotations

import random
from collections import Counter
from contextlib import closing
from datetime import date, datetime
from decimal import Decimal
from itertools import product

import duckdb
import pyarrow as pa
import pytest
from one_shard import OneShard, tuples

from budget import examples, matrix
from headrace.kernels import first_rows, upserts
from headrace.kernels.aggregates.accumulators import Accumulators
from headrace.kernels.aggregates.aggregate_spec import AggregateSpec
from headrace.kernels.delta import Delta
from headrace.kernels.duck import Duck
from headrace.kernels.groups import whole_numbers
from headrace.kernels.groups.grouping import Grouping
from headrace.kernels.groups.merge import Merge
from headrace.kernels.groups.partial import Partial
from headrace.kernels.groups.windows import Panes
from headrace.kernels.joins import pairs_by_columns
from headrace.kernels.joins.join_spec import JoinSpec
from headrace.kernels.joins.table_join import TableJoin
from headrace.kernels.latest import Upsert
from headrace.kernels.op import Context
from headrace.kernels.order import numbered
from headrace.kernels.ranking import Ranking
from headrace.kernels.top import PartialTop, Top

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

    def __init__(self, shards, patch, room, *, how, without):
        self.shards, self.without = shards, without
        self.patch, self.room, self.how = patch, room, how
        self.by_columns = 0

    def step(self, *inputs, **given):
        """Run an epoch both ways, and compare what comes out."""
        way = getattr(self.room, self.how)

        def counted(*arguments, **named):
            found = way(*arguments, **named)
            self.by_columns += (found[0] if isinstance(found, tuple) else found) is not None
            return found

        self.patch.setattr(self.room, self.how, counted)
        columns = self.shards[0].step(*inputs, **given)
        self.patch.setattr(self.room, self.how, self.without)
        sql = self.shards[1].step(*inputs, **given)
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


@pytest.fixture(scope="module")
def host():
    """Return a database that all shards are beside: one takes longer to open than an epoch."""
    with closing(Duck()) as duck:
        yield duck


@pytest.fixture
def ways(tmp_path, monkeypatch, host):
    """Return how an operator is run both ways."""
    opened = []

    def make(op, room, how, without=lambda *_, **__: None):
        shards = [OneShard(op, tmp_path / f"{way}{len(opened)}", host=host) for way in ("columns", "sql")]
        opened.append(Ways(shards, monkeypatch, room, how=how, without=without))
        return opened[-1]

    make.host = host
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
    run = ways(op, upserts, "records", lambda _state, _table, _columns, parts, _arrived: (None, parts))
    kinds = {"k0": KINDS[key][0], "k1": pa.int64(), "v0": KINDS[value][0]}
    keys, values = [*KINDS[key][1], None], [*KINDS[value][1], None, *([-0.0] if value == "DOUBLE" else [])]
    for epoch in range(examples(6, times=10)):
        pairs = [(k, j) for k in keys for j in (1, None)]
        chosen = draw.sample(pairs, draw.randint(1, len(pairs)))
        chosen += draw.choices(pairs, k=2) if epoch % 4 == 2 else []
        weights = [-1 if epoch % 5 == 4 else draw.choice((1, 1, 1, -1)) for _ in chosen]
        times = [draw.choice((epoch, epoch + draw.randint(-3, 3), None)) for _ in chosen]
        rows = [
            (k, j, draw.choice(values) if weight > 0 else None, weight, time)
            for (k, j), weight, time in zip(chosen, weights, times, strict=True)
        ]
        cut = draw.randint(0, len(rows))
        parts = [table(kinds, some) for some in (rows[:cut], rows[cut:]) if some]
        run.step(numbered(parts))
    assert run.keeps_the_same()
    assert (run.by_columns > 0) == (key not in NESTED and value not in NESTED)


def test_a_key_with_two_records_leaves_the_others_to_columns(ways):
    """Its records, and those alone, are taken in order by SQL; all others go by columns, in the same epoch."""
    op = Upsert(**HERE, columns=(("k", "BIGINT"), ("v", "BIGINT")), keys=("k",), by_time=False)
    run = ways(op, upserts, "records", lambda _state, _table, _columns, parts, _arrived: (None, parts))
    kinds = {"k0": pa.int64(), "v0": pa.int64()}
    run.step(numbered([table(kinds, [(k, 0, 1, 0) for k in range(6)])]))
    several = [(1, 1, 1, 1), (2, 1, 1, 1), (1, None, -1, 1), (3, None, -1, 1), (9, 9, 1, 1), (2, 2, 1, 1)]
    delta = run.step(numbered([table(kinds, several)]))
    assert [row for row in delta if row[0] == 2] == [(2, 0, -1, 1), (2, 1, 1, 1), (2, 1, -1, 1), (2, 2, 1, 1)]
    assert run.keeps_the_same()
    assert run.by_columns == 2


# ---- rankings ----


@pytest.mark.parametrize(("key", "value", "n"), matrix(KINDS, reversed(KINDS), ("1", "3", "c0", "c2"), depth=1))
def test_first_rows_by_columns_are_those_by_sql(ways, monkeypatch, key, value, n):
    """Groups that had rows and groups that had none, ties, equal rows, no time, and an n of the group's own."""
    if (n == "c0" and key not in ("INTEGER", "BIGINT")) or (n == "c2" and key in NESTED):
        n = "2"
    monkeypatch.setattr(first_rows, "MANY", 0)
    monkeypatch.setattr(first_rows, "SAMPLE", 0)
    draw = random.Random(f"{key} {value} {n}")  # noqa: S311 -- a test is no secret
    columns = (("k", key), ("v", value), ("m", "INTEGER"), ("x", "BIGINT"))
    group = (0, 2) if n == "c2" else (0,)
    order = ("o0 DESC NULLS LAST", "c1 ASC NULLS FIRST")
    ranking = Ranking(
        columns=columns,
        group=group,
        terms=("BIGINT",),
        order=order,
        n=n,
        rank=draw.choice((None, "place")),
        insert_only=True,
    )
    after = ways(Top(**HERE, ranking=ranking, counts=True), first_rows, "_as_one")
    before = ways(PartialTop(**HERE, ranking=ranking), first_rows, "_as_one")
    kinds = {"c0": KINDS[key][0], "c1": KINDS[value][0], "c2": pa.int32(), "c3": pa.int64(), "o0": pa.int64()}
    for epoch in range(examples(5, times=10)):
        keys, values = [*KINDS[key][1], None][: epoch + 2], [*KINDS[value][1], None]
        rows = []
        for _ in range(draw.randint(0, 25)):
            x, time = draw.randint(0, 2 + 30 * epoch), draw.choice((epoch, epoch + 1, None))
            rows.append((draw.choice(keys), draw.choice(values), draw.choice((1, 2, None)), x, x % 20, 1, time))
        parts = [counted(kinds, some) for some in (rows[:9], rows[9:]) if some]
        for part in parts:
            before.step(part)
        after.step(parts)
    assert after.keeps_the_same()
    assert after.by_columns > 0
    assert before.by_columns > 0


def counted(columns, rows):
    """Return rows as rankings take them: `_n` instead of `_weight`, and lists as DuckDB makes them."""
    lists = {name: pa.list_(pa.field("l", pa.int64())) for name, kind in columns.items() if pa.types.is_list(kind)}
    made = table(columns | lists, rows)
    return made.rename_columns(["_n" if name == "_weight" else name for name in made.column_names])


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


HOWS = ("inner", "left", "right", "semi", "anti")
FORMS = product(("key", "bag", "growing"), repeat=2)


@pytest.mark.parametrize(("kind", "forms", "how"), matrix(KINDS, FORMS, HOWS, depth=1))
def test_joins_by_columns_are_those_by_sql(ways, kind, forms, how):
    """Keys, bags and sides that only grow; null keys, equal rows, rows that come back, rows that were never there."""
    draw = random.Random(f"{kind} {forms} {how}")  # noqa: S311 -- a test is no secret
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
        output=output[:3] if how in ("semi", "anti") else output,
        how=how,
        growing=tuple(form == "growing" for form in forms),
    )
    run = ways(TableJoin(**BOTH, join=spec), pairs_by_columns, "delta")
    for epoch in range(examples(5, times=12)):
        rows = run.step([left.epoch(epoch)], [right.epoch(epoch)])
        weights = [row[-2] for row in rows]
        assert weights == sorted(weights), "what is withdrawn comes first"
    assert run.keeps_the_same()
    kept = forms[:1] if how in ("semi", "anti") else forms
    left_to_sql = kind == "DOUBLE" and (how != "inner" or "bag" in kept)
    assert (run.by_columns > 0) == (kind not in NESTED and not left_to_sql)


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


# ---- groups ----


def grouping(kind, *, insert_only, panes=None):
    """Count rows and values, add these up, and, where rows are only added, find the extremes, by a key of a kind.

    `kind` None: all rows are one group.
    """
    state = Accumulators(insert_only=insert_only)
    calls = [("count", "", "BIGINT"), ("count", "x", "BIGINT"), ("sum", "x", "BIGINT"), ("sum", "y", "BIGINT")]
    calls += [("avg", "x", "DOUBLE"), ("avg", "y", "DOUBLE")]
    calls += [("min", "x", "INTEGER"), ("max", "y", "BIGINT"), ("max", "t", "TIMESTAMP")] if insert_only else []
    of = {"x": "INTEGER", "y": "BIGINT", "t": "TIMESTAMP"}
    for function, argument, result in calls:
        arguments, types = ((f'"{argument}"',), (of[argument],)) if argument else ((), ())
        call = {"function": function, "arguments": arguments, "argument_types": types}
        state.add(AggregateSpec(**call, distinct=False, type=result))
    return Grouping(
        keys=() if kind is None else (("k", '"k"', kind), ("j", '"j"', "BIGINT")),
        panes=panes,
        final=False,
        insert_only=insert_only,
        accumulators=tuple(state.accumulators),
        multisets=(),
        calls=tuple(state.calls),
        from_multiset=tuple(state.from_multiset),
        forms=tuple(state.forms),
        results=tuple((f"r{i}", f'"_a{i}"', kind) for i, (_, _, kind) in enumerate(calls)),
    )


@pytest.mark.parametrize(("kind", "insert_only"), matrix((*KINDS, None), (True, False), depth=1))
def test_groups_by_columns_are_those_by_sql(ways, kind, insert_only):
    """Groups that come, go and come back; null keys and values, partial groups of two tasks, and withdrawals alone."""
    draw = random.Random(f"{kind} {insert_only}")  # noqa: S311 -- a test is no secret
    spec = grouping(kind, insert_only=insert_only)
    before = ways(Partial(**HERE, grouping=spec), whole_numbers, "partial")
    after = ways(Merge(**HERE, grouping=spec), whole_numbers, "merged")
    key_type, key_values = KINDS[kind or "BIGINT"]
    kinds = {"k": key_type, "j": pa.int64(), "x": pa.int32(), "y": pa.int64(), "t": pa.timestamp("us")}
    there = []
    for epoch in range(examples(6, times=10)):
        parts = []
        for _ in range(2):
            keys = [(draw.choice([*key_values, None]), draw.choice((1, None))) for _ in range(draw.randint(0, 9))]
            values = ((1, -5, None), (2**57, -(2**40), 3, None), (datetime(1, 1, 1), datetime(2026, 1, 1), None))  # noqa: DTZ001 -- readings in UTC
            rows = [(*key, *map(draw.choice, values)) for key in keys]
            gone = [] if insert_only else [there.pop() for _ in range(draw.randint(0, len(there)))]
            there += rows
            inserted = [(*row, 1, draw.choice((epoch, None))) for row in rows]
            parts.append(table(kinds, [*inserted, *((*row, -1, epoch) for row in gone)]))
        partials = []
        for part in parts:
            before.step(part)
            partials += before.shards[0].result.delta
        after.step(partials)
    assert after.keeps_the_same()
    covered = kind not in (*NESTED, "DOUBLE")
    assert (before.by_columns > 0, after.by_columns > 0) == (covered, covered)


@pytest.mark.parametrize(("kind", "insert_only"), matrix((*KINDS, None), (True, False), depth=1))
def test_new_windows_by_columns_are_those_by_sql(ways, kind, insert_only):
    """The partial groups of one task and of two, and of withdrawals, while no window is open."""
    draw = random.Random(f"{kind} {insert_only}")  # noqa: S311 -- a test is no secret
    spec = grouping(kind, insert_only=insert_only, panes=Panes(size=10, every=10, pane=10, grace=0, offset=3))
    before = OneShard(Partial(**HERE, grouping=spec), None, host=ways.host)
    after = ways(Merge(**HERE, grouping=spec), whole_numbers, "of_new_windows")
    key_type, key_values = KINDS[kind or "BIGINT"]
    kinds = {"k": key_type, "j": pa.int64(), "x": pa.int32(), "y": pa.int64(), "t": pa.timestamp("us")}
    values = ((1, -5, None), (2**57, -(2**40), 3, None), (datetime(1, 1, 1), datetime(2026, 1, 1), None))  # noqa: DTZ001 -- readings in UTC
    for epoch in range(examples(8, times=10)):
        partials = []
        for _ in range(draw.choice((1, 2))):
            keys = [(draw.choice([*key_values, None]), draw.choice((1, None))) for _ in range(draw.randint(1, 9))]
            weights = [1] if insert_only else [1, 1, -1]
            rows = [(*key, *map(draw.choice, values), draw.choice(weights), draw.randint(-30, 30)) for key in keys]
            before.step(table(kinds, rows))
            partials += before.result.delta
        after.step(partials, watermark=None if epoch == 0 else 40)
        after.step(partials[:1], watermark=40)  # of these windows there are some
        assert after.keeps_the_same()
        after.step([partials[0].slice(0, 0)], watermark=50)  # all are closed
        assert after.shards[0].kept() == {"groups": 0}
    before.duck.close()
    assert after.by_columns > 0


@pytest.mark.parametrize("kind", ["VARCHAR", None])
def test_rows_that_sql_only_passes_on_are_grouped_as_they_are(host, monkeypatch, kind):
    """Columns that are known without SQL are enough, where they are all that is read; else SQL computes the rest."""
    spec, called = grouping(kind, insert_only=True), []
    kinds = {"k": pa.string(), "j": pa.int64(), "x": pa.int32(), "y": pa.int64(), "t": pa.timestamp("us")}
    rows = [("a", 1, 5, 7, None, 1, 3), ("a", 1, None, -7, None, 1, None), (None, None, 1, 1, None, 1, 9)]
    whole = table(kinds, rows)
    by_columns = whole_numbers.partial
    monkeypatch.setattr(whole_numbers, "partial", lambda *given: called.append(by_columns(*given)) or called[-1])
    found = []
    with closing(Duck(host=host)) as duck:
        for passed in ((), (whole,), (whole.drop_columns(["x"]),), (whole.drop_columns(["_time"]),)):
            given = Delta(duck, f"(SELECT * FROM {duck.register(whole)})", about=len(rows), passed=passed)
            result = Partial(**HERE, grouping=spec).run(
                [given], Context(duck=duck, epoch=0, watermark=None, previous=None)
            )
            found.append((_counted(tuples(result.delta)), result.counts))
    assert [groups is not None for groups in called] == [True, False, False]  # without a known column it is not asked
    assert all(each == found[0] for each in found)


def test_a_sum_that_overflows_is_left_to_sql(tmp_path):
    """What 64 bits cannot hold is kept by SQL in 128, and an error where the result is a bigint."""
    spec = grouping("BIGINT", insert_only=True)
    run = OneShard(Merge(**HERE, grouping=spec), tmp_path)
    partial = OneShard(Partial(**HERE, grouping=spec), tmp_path)
    kinds = {"k": pa.int64(), "j": pa.int64(), "x": pa.int32(), "y": pa.int64(), "t": pa.timestamp("us")}

    def epoch(*values):
        partial.step(table(kinds, [(1, 1, 1, value, None, 1, 0) for value in values]))
        return [row[5] for row in run.step(partial.result.delta)]

    assert epoch(2**62) == [2**62]
    assert epoch(2**62 - 1) == [2**62, 2**63 - 1]
    assert epoch(-(2**62), -(2**62)) == [2**63 - 1, -1]
    with pytest.raises(duckdb.Error, match="ARITHMETIC_OVERFLOW"):
        epoch(2**62, 2**62, 1)
    for each in (run, partial):
        each.duck.close()

"""Groups as cells of arrays are those of SQL; what has no cells is left to it."""

from __future__ import annotations

from contextlib import closing
from decimal import Decimal
from itertools import cycle

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from budget import examples
from headrace.kernels import files, level
from headrace.kernels.duck import Duck
from headrace.kernels.groups import cells, session_columns, sessions
from headrace.kernels.groups.accumulated import Carried
from headrace.kernels.groups.gaps import SessionSql
from headrace.kernels.groups.partial import Partial, partial_groups
from headrace.kernels.groups.ungrouped import shrinks
from headrace.kernels.groups.windows import Panes
from headrace.testing import Driver, simulate

SCHEMA = "k string, i int, x double, v bigint, s string, at timestamp"
AGGREGATES = {
    "n": "count(*)",
    "some": "count(v)",
    "texts": "count(s)",
    "mean": "avg(v)",
    "total": "sum(v % 1000)",
    "twice": "sum(2 * i)",
    "lo": "min(v)",
    "hi": "max(i)",
    "first": "min(at)",
    "odd": "count_if(i % 2 = 1)",
}
WINDOWS = {
    "none": None,
    "tumbling": hr.tumbling("1 minute", grace="20 seconds", offset="7 seconds"),
    "hopping": hr.hopping("1 minute", "20 seconds", grace="0 seconds"),
    "cumulating": hr.cumulating("1 minute", "20 seconds", grace="0 seconds"),
    "months": hr.tumbling("1 month", grace="0 seconds"),
    "session": hr.session("30 seconds", grace="0 seconds"),
    "sliding": hr.sliding("30 seconds", grace="0 seconds"),
}
ROWS_OF_EDGES = 8
EXTREME = [2**63 - 1, -(2**63), 2**62]
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "k": st.sampled_from(["a", "b", "", "é😀", None]),
            "i": st.one_of(st.none(), st.integers(-3, 3)),
            "x": st.sampled_from([0.0, -0.0, float("nan"), 1.5, None]),
            "v": st.one_of(st.none(), st.integers(-5, 5), st.sampled_from(EXTREME)),
            "s": st.sampled_from(["x", None]),
            "at": st.integers(-90, 300).map(lambda second: 1000 * second),
        }
    ),
    max_size=40,
)


def played(rows, cuts, keys, window, emit):
    app = hr.App("cells", shards=2)
    grouped = app.stream("t", SCHEMA, event_time="at", out_of_order="20 seconds").group_by(*keys)
    if window is not None:
        grouped = grouped.window(window, emit=emit)
    made = grouped.agg(**AGGREGATES).named("made")
    made.to_view("out")
    with Driver(app) as driver:
        for at, row in enumerate(rows):
            driver.send("t", row)
            if at in cuts:
                driver.step()
        driver.finish()
        return sorted(map(repr, driver.view("out"))), driver.counts("made")["late"]


@pytest.mark.parametrize("emit", ["changes", "final"])
@pytest.mark.parametrize("name", WINDOWS)
@settings(max_examples=examples(2), deadline=None)
@given(
    rows=ROWS,
    cuts=st.sets(st.integers(0, 39), max_size=3),
    keys=st.sampled_from([("k",), ("i",), ("k", "i"), ("x", "i"), ()]),
    columns=st.lists(st.booleans(), min_size=1, max_size=5),
)
def test_both_ways_give_equal_results(name, emit, rows, cuts, keys, columns):
    """Groups by cells and by SQL; state that is scanned in columns in some of the epochs, and in DuckDB alone."""
    if name == "none" and emit == "final":
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(session_columns, "FROM", 1 << 60)
        by_sql = played(rows, cuts, keys, WINDOWS[name], emit)
    turns = cycle(columns)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(level, "reads_columns", lambda *_: next(turns))
        patch.setattr(cells, "FEW", 1)
        patch.setattr(cells, "CELLS_A_ROW", 1 << 20)
        patch.setattr(cells, "ROWS_A_CELL", 1 << 20 if len(rows) % 2 else 1e-6)
        patch.setattr(cells, "_repeats", lambda _: True)
        patch.setattr(files, "COMPRESSED_FROM", 1)
        assert played(rows, cuts, keys, WINDOWS[name], emit) == by_sql
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(level, "reads_columns", lambda *_: next(turns))
        left_ungrouped(patch)
        assert played(rows, cuts, keys, WINDOWS[name], emit) == by_sql


def left_ungrouped(patch):
    """Let each row be a partial group, wherever that is possible."""
    patch.setattr(cells, "FEW", 1)
    patch.setattr(cells, "CELLS_A_ROW", 0)
    patch.setattr(cells, "shrinks", lambda *_: False)


def grouping_of(window=None, keys=("k",), schema="k bigint, v bigint, at timestamp", **aggregates):
    app = hr.App("cells", shards=2)
    grouped = app.stream("t", schema, event_time="at").group_by(*keys)
    grouped = grouped if window is None else grouped.window(window)
    grouped.agg(**(aggregates or {"n": "count(*)", "total": "sum(v)", "lo": "min(v)", "hi": "max(v)"})).to_view("out")
    with Driver(app) as driver:
        ops = driver._engine.program.levels[0].ops
    return next(op.grouping for op in ops if isinstance(op, Partial))


def both_ways(grouping, rows):
    """Return the partial groups by cells and by SQL, in order."""
    with closing(Duck()) as duck:
        name = duck.register(rows)
        by_cells, by_sql = cells.partial_groups(duck, grouping, name), duck.arrow(partial_groups(grouping, name))
    return [
        None if each is None else sorted(map(repr, each.cast(by_sql.schema).to_pylist())) for each in (by_cells, by_sql)
    ]


def table(keys, values, times):
    return pa.table({"k": keys, "v": pa.array(values, pa.int64()), "_time": pa.array(times, pa.int64())})


def many(count=10_000, kinds=20, least=0):
    return table([least + at % kinds for at in range(count)], [at % 7 - 3 for at in range(count)], range(count))


@pytest.mark.parametrize("window", [None, hr.tumbling("1 millisecond", offset="300 microseconds", grace="0 seconds")])
def test_partial_groups_are_those_of_sql(window):
    grouping = grouping_of(window)
    for rows in (many(), many(least=-(2**63)), many(least=2**63 - 20)):
        by_cells, by_sql = both_ways(grouping, rows)
        assert by_cells == by_sql


def test_times_before_1970_are_in_the_panes_of_sql():
    grouping = grouping_of(hr.tumbling("1 millisecond", grace="0 seconds"))
    rows = many()
    rows = rows.set_column(2, "_time", pa.array(range(-5_000, 5_000), pa.int64()))
    by_cells, by_sql = both_ways(grouping, rows)
    assert by_cells == by_sql


def test_sums_that_might_overflow_are_left_to_sql():
    grouping = grouping_of()
    rows = many()
    values = [2**63 - 1, *rows["v"].to_pylist()[1:]]
    assert both_ways(grouping, rows.set_column(1, "v", pa.array(values)))[0] is None
    small = [2**49, *rows["v"].to_pylist()[1:]]
    by_cells, by_sql = both_ways(grouping, rows.set_column(1, "v", pa.array(small)))
    assert by_cells == by_sql


@pytest.mark.parametrize(
    "keys",
    [
        pa.array([at % 1_000 * 10**6 for at in range(10_000)]),
        pa.array([f"key {at % 5_000}" for at in range(10_000)]),
        pa.array([-0.0, 0.0] * 5_000),
        pa.array([[at % 2] for at in range(10_000)]),
    ],
    ids=["far apart", "rare", "doubles", "lists"],
)
def test_keys_that_have_no_cells_are_left_to_sql(keys):
    rows = many().set_column(0, "k", keys)
    assert both_ways(grouping_of(), rows)[0] is None


@pytest.mark.parametrize("window", [None, hr.tumbling("1 millisecond", grace="0 seconds")])
@pytest.mark.parametrize(
    "keys",
    [
        pa.array([at * 10**6 for at in range(10_000)]),
        pa.array([f"key {at}" for at in range(10_000)]),
        pa.array([at / 7 for at in range(10_000)]),
        pa.array([[at, None] for at in range(10_000)]),
    ],
    ids=["numbers", "texts", "doubles", "lists"],
)
def test_rows_with_keys_of_their_own_are_partial_groups_as_they_are(keys, window):
    rows = many().set_column(0, "k", keys)
    rows = rows.set_column(2, "_time", pa.array(range(-5_000, 5_000), pa.int64()))
    rows = rows.set_column(1, "v", pa.array([None if at % 3 else at for at in range(10_000)], pa.int64()))
    grouping = grouping_of(window, n="count(*)", some="count(v)", total="sum(v)", lo="min(v)", hi="max(v)")
    alone, by_sql = both_ways(grouping, rows)
    assert alone == by_sql


def estimated(keys, panes=None, times=None):
    times = range(len(keys)) if times is None else times
    rows = pa.table({"k0": pa.array(keys), "_at": pa.array(times, pa.int64())})
    return shrinks(rows, ["k0"], panes)


def test_few_enough_groups_shrink_rows():
    random = np.random.default_rng(3)
    count = 300_000
    for kinds, shrink in ((10, True), (count // 10, True), (count, True), (2 * count, False), (100 * count, False)):
        assert estimated(random.integers(0, kinds, count)) == shrink, f"{kinds} keys"
    assert not estimated(np.arange(count))
    assert estimated(np.arange(count) // 5), "the rows of a key are beside each other"
    for part, shrink in ((0.5, True), (0.1, True), (0.01, False)):
        keys = np.where(random.random(count) < part, 0, np.arange(count))
        assert estimated(keys) == shrink, f"{part:.0%} of the rows have one key"


def test_a_group_is_a_key_in_a_pane():
    panes = Panes(size=10, every=10, pane=10, grace=0, offset=0)
    keys, times = np.arange(100_000) % 100, np.arange(100_000)
    assert estimated(keys)
    assert not estimated(keys, panes, times), "no key comes twice within ten microseconds"
    assert estimated(keys, panes, times // 100)


@pytest.mark.parametrize(
    "keys",
    [
        pa.array(["a", None, "é😀", ""] * 2_500),
        pa.array([1, None, 3, -4] * 2_500, pa.int8()),
        pa.array([True, None, False, True] * 2_500),
        pa.array([1, 2, None, 3] * 2_500, pa.timestamp("us")),
        pa.array([Decimal("1.10"), None, Decimal("2.00"), Decimal("-1.00")] * 2_500),
    ],
    ids=["texts", "small numbers", "booleans", "times", "decimals"],
)
def test_keys_of_each_kind_with_nulls(keys):
    by_cells, by_sql = both_ways(grouping_of(), many().set_column(0, "k", keys))
    assert by_cells == by_sql
    assert by_cells is not None


@pytest.mark.parametrize("rows_a_cell", [1, 1 << 20], ids=["by cells", "by sorting"])
@pytest.mark.parametrize("since", [0, -2_000_000])
def test_chunks_of_sessions_are_those_of_sql(monkeypatch, rows_a_cell, since):
    """A row that is just the gap behind is in the chunk, one that is a microsecond more is not; of each key apart."""
    monkeypatch.setattr(cells, "ROWS_A_CELL", rows_a_cell)
    some = {
        "n": "count(*)",
        "some": "count(v)",
        "total": "sum(v)",
        "lo": "min(v)",
        "hi": "max(at)",
        "odd": "count_if(v = 1)",
    }
    grouping = grouping_of(hr.session("10 milliseconds", grace="0 seconds"), **some)
    times = since + np.cumsum(np.random.default_rng(7).choice([0, 500, 500, 500, 500, 501], 10_000))
    values = pa.array([None if at % 5 in (0, 1) or at < 3_000 else at % 7 - 3 for at in range(10_000)], pa.int64())
    rows = many().set_column(2, "_time", pa.array(times[::-1])).set_column(1, "v", values)
    rows = rows.append_column("at", rows["_time"].cast(pa.timestamp("us")))
    with closing(Duck()) as duck:
        name = duck.register(rows)
        marked = SessionSql(grouping.session).chunked(name, ["k"])
        by_sql = duck.arrow(partial_groups(grouping, marked))
        found = [cells.chunk_groups(duck, grouping, name), cells.chunk_groups(duck, grouping, name, [rows])]
    for by_columns in found:
        assert by_columns is not None
        assert 100 < len(by_columns) < 9_000
        assert sorted(map(repr, by_columns.cast(by_sql.schema).to_pylist())) == sorted(map(repr, by_sql.to_pylist()))


@pytest.mark.parametrize("emit", ["changes", "final"])
def test_sessions_of_whole_numbers_are_merged_without_sql(monkeypatch, emit):
    """A row between two kept sessions makes one of them, one before a session begins it anew, and one is late."""
    times = [0, 50_000, 25_000, -20_000, 200_000, 10_000, 190_000]
    rows = [{"k": "a", "i": 1, "x": None, "v": at, "s": "x", "at": at} for at in times]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(session_columns, "FROM", 1 << 60)
        by_sql = played(rows, range(9), ("k",), WINDOWS["session"], emit)
    monkeypatch.setattr(sessions, "islands", None)
    assert played(rows, range(9), ("k",), WINDOWS["session"], emit) == by_sql
    assert by_sql[1] == 1


def test_arrays_that_do_not_fit_into_the_memory_are_left_to_sql(monkeypatch):
    rows = many(kinds=9_000)
    assert both_ways(grouping_of(), rows)[0] is not None
    monkeypatch.setattr(cells, "shrinks", lambda *_: True)
    monkeypatch.setattr(cells, "room", lambda: rows.nbytes)
    monkeypatch.setattr(cells, "_CELL_BYTES", rows.nbytes // 8_999)
    assert both_ways(grouping_of(), rows)[0] is None


def test_few_rows_are_left_to_sql():
    assert both_ways(grouping_of(), many(count=cells.FEW - 1))[0] is None


def test_rows_of_a_table_are_not_covered():
    app = hr.App("cells", shards=2)
    app.table("t", "id int, k bigint, v bigint", key="id").group_by("k").agg(n="sum(v)").to_view("out")
    with Driver(app) as driver:
        ops = [op for level in driver._engine.program.levels for op in level.ops]
    assert not cells.covers(next(op.grouping for op in ops if isinstance(op, Partial)))
    assert not cells.covers(grouping_of(schema="k bigint, v double, at timestamp"))


def parts_of(grouping, *tables):
    with closing(Duck()) as duck:
        return [duck.arrow(partial_groups(grouping, duck.register(rows))) for rows in tables]


def test_partial_groups_of_several_tasks_become_one_a_key():
    grouping = grouping_of(hr.tumbling("1 millisecond", grace="0 seconds"))
    parts = parts_of(grouping, many(kinds=500), many(kinds=700))
    folded = cells.folded(grouping, parts)
    (whole,) = parts_of(grouping, pa.concat_tables([many(kinds=500), many(kinds=700)]))
    assert folded is not None
    assert sorted(map(repr, folded.cast(whole.schema).to_pylist())) == sorted(map(repr, whole.to_pylist()))


def test_sums_of_more_than_64_bits_are_folded_by_sql():
    grouping = grouping_of()
    (part,) = parts_of(grouping, many(kinds=5_000))
    wide = pa.array([Decimal(2**63)] * len(part), part.schema.field("p0").type)
    assert cells.folded(grouping, [part.set_column(part.schema.get_field_index("p0"), "p0", wide), part]) is None
    near = pa.array([Decimal(2**62)] * len(part), part.schema.field("p0").type)
    assert cells.folded(grouping, [part.set_column(part.schema.get_field_index("p0"), "p0", near), part]) is None


def test_a_key_that_comes_twice_from_one_task_is_one_group():
    """One partition is one task, whose partial groups SQL has only had once each before rows were left ungrouped."""
    app = hr.App("alone", shards=1)
    rows = app.stream("t", SCHEMA, event_time="at", out_of_order="20 seconds", partitions=1)
    rows.group_by("k").window(WINDOWS["tumbling"]).agg(**AGGREGATES).to_view("out")
    many_rows = [{"k": f"{at % 9_000}", "i": 1, "x": None, "v": at, "s": None, "at": 0} for at in range(10_000)]
    with Driver(app) as driver:
        driver.send("t", *many_rows)
        driver.step()
        made = driver.view("out")
    assert len(made) == 9_000
    assert sorted(row["n"] for row in made) == [1] * 8_000 + [2] * 1_000


@pytest.mark.prove
def test_simulated_apps_are_right_where_rows_are_left_ungrouped(monkeypatch):
    left_ungrouped(monkeypatch)
    for seed in range(80_000, 80_060):
        finding = simulate(seed)
        assert finding is None, finding.text()


@pytest.mark.prove
def test_simulated_apps_are_right_where_groups_are_cells(monkeypatch):
    """The law of simulated cases, both switches forced: groups are cells, files narrow, wherever they can be."""
    monkeypatch.setattr(cells, "FEW", 1)
    monkeypatch.setattr(cells, "CELLS_A_ROW", 1 << 20)
    monkeypatch.setattr(cells, "ROWS_A_CELL", 1e-6)
    monkeypatch.setattr(cells, "_repeats", lambda _: True)
    monkeypatch.setattr(files, "COMPRESSED_FROM", 1)
    turns = cycle([True, True, False])
    monkeypatch.setattr(level, "reads_columns", lambda *_: next(turns))
    for seed in range(70_000, 70_060):
        finding = simulate(seed)
        assert finding is None, finding.text()


EDGE = 1 << 62 - ROWS_OF_EDGES.bit_length() - 1
"""A column's sums are carried with the number of rows where they stay below this."""


@pytest.mark.parametrize("far", [EDGE - 1, EDGE], ids=["carried", "by_itself"])
@pytest.mark.parametrize("sign", [1, -1])
def test_sums_at_the_edge_of_what_is_carried_with_the_number_of_rows(monkeypatch, far, sign):
    monkeypatch.setattr(cells, "FEW", 1)
    most = far // ROWS_OF_EDGES
    values = pa.array([sign * most] * (ROWS_OF_EDGES - 1) + [-sign], pa.int64())
    rows = pa.table({"k": [3] * (ROWS_OF_EDGES - 1) + [4], "v": values, "_time": [0] * ROWS_OF_EDGES})
    reach = {"v": most * ROWS_OF_EDGES}
    carried = Carried.of(rows, [("sum", "v")], reach)
    assert (carried is None) == (reach["v"] >= EDGE)
    by_cells, by_sql = both_ways(grouping_of(n="count(*)", total="sum(v)"), rows)
    assert by_cells == by_sql is not None

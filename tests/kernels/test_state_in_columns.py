"""State that an epoch scans as columns is that of the tables in DuckDB, whichever read or wrote its files before."""

from __future__ import annotations

from contextlib import closing
from itertools import cycle

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.kernels import level
from headrace.kernels.duck import Duck
from headrace.kernels.state import in_columns
from headrace.kernels.state.in_columns import ColumnState, reads_columns
from headrace.kernels.state.scanned import ScannedState
from headrace.kernels.state.state import StateHead
from headrace.kernels.state.tables import TableSpec
from headrace.testing import Driver

TABLE = TableSpec(name="t", keys=(("k", "VARCHAR"), ("_pane", "BIGINT")), values=(("p0", "HUGEINT"), ("p1", "DATE")))
SCHEMA = pa.schema(
    [("k", pa.string()), ("_pane", pa.int64()), ("_n", pa.int64()), ("p0", pa.decimal128(38, 0)), ("p1", pa.date32())]
)
rows = st.dictionaries(
    st.tuples(st.sampled_from(["a", "b", None]), st.integers(0, 3)), st.integers(0, 2), min_size=1, max_size=6
)
step = st.tuples(st.booleans(), rows, st.none() | st.integers(0, 3))


@settings(max_examples=20, deadline=None)
@given(steps=st.lists(step, min_size=1, max_size=8))
def test_both_kinds_of_state_continue_the_files_of_each_other(tmp_path_factory, steps):
    """Rows come, are replaced, removed (a count of 0) and evicted; the cache in DuckDB may be old."""
    folder, truth, head = tmp_path_factory.mktemp("state"), {}, None
    with closing(Duck()) as duck:
        for epoch, (columns, changed, until) in enumerate(steps):
            state = (ColumnState if columns else ScannedState)(duck, "s", (TABLE,), head)
            state.restore(folder)
            found = duck.rows(f"SELECT k, _pane, rowid FROM {state.name('t')}")
            at = {(key, pane): row for key, pane, row in found}
            table = [{"k": k, "_pane": p, "_n": n, "p0": 10**30, "p1": None} for (k, p), n in changed.items()]
            old = pa.array([at.get(key) for key in changed], pa.int64())
            state.replace("t", pa.Table.from_pylist(table, SCHEMA).append_column("o_row", old), at="o_row")
            truth = {key: n for key, n in {**truth, **changed}.items() if n}
            if until is not None:
                state.evict("t", f"_pane < {until}")
                truth = {key: n for key, n in truth.items() if key[1] >= until}
            shown = duck.rows(f"SELECT k, _pane, _n, p0, p1 FROM {state.name('t')}")
            assert sorted(map(repr, shown)) == sorted(repr((*key, n, 10**30, None)) for key, n in truth.items())
            assert state.rows == len(truth)
            head = state.save(folder, epoch, "x", sync=False)
            assert head.rows == len(truth)
            duck.forget()


def test_columns_are_read_where_many_rows_arrive_or_none_and_the_cache_is_behind():
    def head(rows, **about):
        return StateHead(**{"file": "f", "chain": 0, "chain_bytes": 0, "full_bytes": 1, "rows": rows, **about})

    with closing(Duck()) as duck:
        assert reads_columns(duck, "s", None, in_columns.LEAST_ROWS)
        assert not reads_columns(duck, "s", None, 10)
        assert reads_columns(duck, "s", head(20_000), 5_000)
        assert not reads_columns(duck, "s", head(20_001), 5_000)
        assert reads_columns(duck, "s", head(1_000_000), 0)
        assert not reads_columns(duck, "s", head(1 << 40), 0)
        assert not reads_columns(duck, "s", head(100, chain=in_columns.MOST_FILES + 1), 0)
        duck.set_stamp("s", "f 01234567")
        assert not reads_columns(duck, "s", head(20_000), 5_000)
        assert reads_columns(duck, "s", head(20_000, file="g"), 5_000)


def played(emit, turns, *, crashes):
    """Return the results of windows whose state is scanned in columns where `turns` says so, and what was late."""
    app = hr.App("columns", shards=2)
    stream = app.stream("t", "k string, v int, at timestamp", event_time="at")
    window = hr.tumbling("10 seconds", grace="0 seconds")
    made = stream.group_by("k").window(window, emit=emit).agg(n="count(*)", v="sum(v)", u="count(distinct v)")
    made.named("made").to_view("out")
    with pytest.MonkeyPatch.context() as patch, Driver(app) as driver:
        patch.setattr(level, "reads_columns", lambda *_: next(turns))
        for number in range(12):
            sent = [
                {"k": f"k{at % 3}", "v": at % 4, "at": 1_000 * (number * 4 + at - number % 3 * 5)} for at in range(5)
            ]
            driver.send("t", *sent)
            if crashes and number % 2:
                driver.crash(at="during_commit" if number % 4 == 1 else "after_commit")
                driver.restart()
            driver.run()
        driver.finish()
        return driver.view("out"), driver.counts("made")["late"]


@pytest.mark.parametrize("emit", ["changes", "final"])
def test_windows_survive_crashes_whichever_way_their_state_is_scanned(emit):
    plain = played(emit, cycle([False]), crashes=False)
    assert len(plain[0]) > 10
    assert plain[1] > 3
    assert played(emit, cycle([True]), crashes=True) == plain
    assert played(emit, cycle([True, True, False, True, False]), crashes=True) == plain

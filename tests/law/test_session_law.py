"""Sessions are those of the batch, however the input is cut and in whatever order; late rows are as the rules say."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import cycle

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from playing import Deltas, results
from test_aggregates import EVERY, SCHEMA, batch, cuts, frame, inputs, same

import headrace as hr
from budget import examples, matrix
from headrace.kernels import level
from headrace.kernels.groups import session_columns
from headrace.testing import Driver

QUIET = list(HealthCheck)
MINUTE = 60_000
START = 1_767_225_600_000
GAP = 3
BOUNDS = f"min(at) AS window_start, max(at) + interval {GAP} minutes AS window_end"
BEGINS = f"at > lag(at) OVER (PARTITION BY k ORDER BY at) + interval {GAP} minutes"
SESSIONS = (
    "SELECT *, sum(begins) OVER (PARTITION BY k ORDER BY at) AS session "
    f"FROM (SELECT *, if({BEGINS}, 1, 0) AS begins FROM t)"
)
"""Sessions by hand: Spark's own session_window counts a value twice in count(distinct) where it merges sessions."""


@pytest.mark.spark
@pytest.mark.parametrize("emit", ["changes", "final"])
@settings(max_examples=examples(3), deadline=None, suppress_health_check=QUIET)
@given(sent=inputs, sizes=cuts)
def test_sessions_are_the_same_however_the_input_is_cut(spark, emit, sent, sizes):
    """Every aggregate, against sessions in Spark SQL; no delta withdraws what is not there."""
    app = hr.App("sessions")
    window = hr.session(f"{GAP} minutes", grace="10 days")
    table = app.stream("t", SCHEMA, event_time="at").group_by("k").window(window, emit=emit).agg(**EVERY)
    ours = results(app, table, sent, sizes, emit=emit)
    frame(spark, sent)
    columns = ", ".join(f"{sql} AS {name}" for name, sql in EVERY.items())
    query = f"SELECT k, {BOUNDS}, {columns} FROM ({SESSIONS}) GROUP BY k, session"
    same(ours, batch(spark, query), ["k", "window_start"])


class Oracle:
    """The rules, row by row: sessions by key as sorted lists of times and values."""

    def __init__(self, gap, grace):
        self.gap, self.grace = gap, grace
        self.open, self.closed, self.late = {}, [], []

    def epoch(self, rows, watermark):
        """Close what is over at the watermark; then let the rows meet what is open."""
        for key, sessions in self.open.items():
            self.closed += [(key, each) for each in sessions if self._over(each, watermark)]
            sessions[:] = [each for each in sessions if not self._over(each, watermark)]
        for key in dict.fromkeys(row["k"] for row in rows):
            mine = [([row], True) for row in rows if row["k"] == key]
            mine += [(each, False) for each in self.open.get(key, [])]
            made = []
            for each, _ in sorted(mine, key=lambda pair: pair[0][0]["at"]):
                if made and each[0]["at"] - max(row["at"] for row in made[-1]) <= self.gap:
                    made[-1] = sorted(made[-1] + each, key=lambda row: row["at"])
                else:
                    made.append(list(each))
            self.late += [row for each in made if self._over(each, watermark) for row in each]
            self.open[key] = [each for each in made if not self._over(each, watermark)]

    def _over(self, rows, watermark):
        return watermark is not None and max(row["at"] for row in rows) + self.gap + self.grace < watermark

    def results(self, *, final):
        """Return what a view shows."""
        kept = [] if final else [(key, each) for key, sessions in self.open.items() for each in sessions]
        return sorted((self._result(key, rows) for key, rows in [*self.closed, *kept]), key=repr)

    def _result(self, key, rows):
        values = [row["v"] for row in rows]
        first, last = rows[0]["at"], max(row["at"] for row in rows)
        total = sum(v for v in values if v is not None) if any(v is not None for v in values) else None
        kinds = sorted({v for v in values if v is not None})
        return key, first, last + self.gap, len(rows), total, kinds


def micros(time):
    return (time - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)


def shown(view):
    return sorted(
        (
            (row["k"], micros(row["window_start"]), micros(row["window_end"]), row["n"], row["total"], row["kinds"])
            for row in view
        ),
        key=repr,
    )


scattered = st.fixed_dictionaries(
    {
        "k": st.sampled_from(["a", "b", None]),
        "v": st.one_of(st.none(), st.integers(0, 4)),
        "at": st.integers(0, 60).map(lambda minute: START + minute * MINUTE),
    }
)
epochs = st.lists(st.lists(scattered, max_size=8), min_size=1, max_size=8)


@pytest.mark.parametrize(("keys", "emit"), matrix([("k",), ()], ["changes", "final"], depth=1))
@settings(max_examples=examples(5), deadline=None, suppress_health_check=QUIET)
@given(
    epochs=epochs,
    gap=st.integers(1, 6),
    grace=st.integers(0, 12),
    drift=st.integers(0, 8),
    restart=st.booleans(),
    ways=st.tuples(st.booleans(), st.lists(st.booleans(), min_size=1, max_size=5)),
)
def test_every_row_is_in_its_session_or_late_after_every_epoch(emit, keys, epochs, gap, grace, drift, restart, ways):
    """Rows out of order, empty epochs, sessions that close between rows: the rules, one by one, say the same."""
    by_sql, in_columns = ways[0], cycle(ways[1])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(session_columns, "FROM", 1 << 60 if by_sql else 1)
        patch.setattr(level, "reads_columns", lambda *_: next(in_columns))
        check(emit, keys, epochs, gap, grace, drift, restart=restart)


@pytest.mark.parametrize("emit", ["changes", "final"])
@settings(max_examples=examples(3), deadline=None, suppress_health_check=QUIET)
@given(rows=st.lists(scattered, min_size=1, max_size=20), gap=st.integers(1, 6), grace=st.integers(0, 12))
def test_one_row_an_epoch_and_all_in_one(emit, rows, gap, grace):
    check(emit, ("k",), [[row] for row in rows], gap, grace, 1)
    check(emit, ("k",), [rows, []], gap, grace, 1)


def check(emit, keys, epochs, gap, grace, drift, *, restart=False):
    app = hr.App("sessions")
    window = hr.session(f"{gap} minutes", grace=f"{grace} minutes")
    rows = app.stream("t", "k string, v int, at timestamp", event_time="at")
    grouped = rows.group_by(*keys).window(window, emit=emit)
    table = grouped.agg(n="count(*)", total="sum(v)", kinds="collect_set(v)").named("s")
    table.to_view("out")
    table.late.to_topic("late")
    deltas = Deltas()
    table.to(deltas)
    oracle, greatest = Oracle(gap * MINUTE, grace * MINUTE), None
    with Driver(app, shards=2) as driver:
        for number, sent in enumerate(epochs):
            moved = [{**row, "at": row["at"] + number * drift * MINUTE} for row in sent]
            driver.send("t", *moved)
            driver.step()
            oracle.epoch([row if keys else {**row, "k": None} for row in moved], greatest)
            greatest = max([*([] if greatest is None else [greatest]), *(row["at"] for row in moved)], default=None)
            view = [{"k": None, **row} for row in driver.view("out")]
            assert shown(view) == oracle.results(final=emit == "final")
            if restart:
                driver.restart()
        late = driver.late("s")
        assert sorted((micros(row["at"]), str(row["v"])) for row in late) == sorted(
            (row["at"], str(row["v"])) for row in oracle.late
        )
        assert sorted(map(repr, driver.read("late"))) == sorted(map(repr, late))
        driver.finish()
        view = [{"k": None, **row} for row in driver.view("out")]
        assert shown(view) == oracle.results(final=False)
        totals = driver.counts("s")
        assert totals["late"] == len(oracle.late)
        assert totals["rows_in"] == sum(map(len, epochs))
        assert totals.get("state_rows", 0) == 0
    assert sum(deltas.sum.values()) == len(view)

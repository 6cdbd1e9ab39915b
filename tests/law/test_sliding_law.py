"""Sliding windows are those of the batch, however the input is cut; what closed stays as it was.

Two oracles that share nothing with the kernel or with each other: in Spark a self-join over the ends of windows, in
DuckDB a self-join over the first and the last row of each set of rows that some interval holds.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import duckdb
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from playing import Deltas, results
from test_aggregates import EVERY, SCHEMA, batch, cuts, frame, inputs, same

import headrace as hr
from budget import examples, matrix
from headrace.testing import Driver

QUIET = list(HealthCheck)
SECOND = 1_000_000
START = 1_767_225_600_000_000
SIZE = 6


@pytest.mark.spark
@pytest.mark.parametrize("emit", ["changes", "final"])
@settings(max_examples=examples(2), deadline=None, suppress_health_check=QUIET)
@given(sent=inputs, sizes=cuts)
def test_sliding_windows_are_the_same_however_the_input_is_cut(spark, emit, sent, sizes):
    """Every aggregate, against a self-join in Spark; no delta withdraws what is not there."""
    app = hr.App("slides")
    window = hr.sliding(f"{SIZE} minutes", grace="10 days")
    table = app.stream("t", SCHEMA, event_time="at").group_by("k").window(window, emit=emit).agg(**EVERY)
    ours = results(app, table, sent, sizes, emit=emit)
    frame(spark, sent)
    columns = ", ".join(f"{sql} AS {name}" for name, sql in EVERY.items())
    size, after = f"INTERVAL '{SIZE}' MINUTE", "INTERVAL '0.000001' SECOND"
    ends = f"SELECT k, at AS w FROM t UNION SELECT k, at + {size} + {after} FROM t"
    inside = f"t.k <=> e.k AND t.at BETWEEN e.w - {size} AND e.w"
    joined = f"SELECT t.*, e.w - {size} AS window_start, e.w AS window_end FROM ({ends}) e JOIN t ON {inside}"
    query = f"SELECT k, window_start, window_end, {columns} FROM ({joined}) GROUP BY k, window_start, window_end"
    same(ours, batch(spark, query), ["k", "window_start"])


SETS = """
WITH times AS (SELECT k, t, lag(t) OVER own AS before, lead(t) OVER own AS after
               FROM (SELECT DISTINCT k, t FROM accepted) WINDOW own AS (PARTITION BY k ORDER BY t)),
sets AS (SELECT f.k, f.t AS first, l.t AS last, greatest(f.before + 1, l.t - $size) AS start
         FROM times f JOIN times l ON f.k IS NOT DISTINCT FROM l.k AND l.t BETWEEN f.t AND f.t + $size
         WHERE greatest(f.before + 1, l.t - $size) <= least(f.t, l.after - $size - 1))
SELECT s.k, s.start, s.start + $size, count(*), sum(v)::BIGINT, min(v),
       coalesce(list(DISTINCT v ORDER BY v) FILTER (v IS NOT NULL), [])
FROM sets s JOIN accepted a ON a.k IS NOT DISTINCT FROM s.k AND a.t BETWEEN s.first AND s.last
GROUP BY s.k, s.start
"""
"""Sets of rows that an interval of the size holds alone: what is before and after them is out. One row each."""


COLUMNS = [("k", pa.string()), ("v", pa.int64()), ("at", pa.int64())]


class Oracle:
    """What a view shows: open windows are those of all rows that were not late, closed ones stay as they were."""

    def __init__(self, size, grace):
        self.size, self.grace = size, grace
        self.accepted, self.late, self.view, self.partly = [], [], {}, 0
        self.waiting = []
        self.con = duckdb.connect()

    def epoch(self, rows, watermark):
        """Take an epoch's rows at the watermark of the epoch before."""
        bound = -(2**60) if watermark is None else watermark - self.grace
        self.end_waiting(bound)
        self.late += [row for row in rows if row["at"] + self.size < bound]
        self.waiting += [row for row in rows if row["at"] < bound <= row["at"] + self.size]
        self.partly += len([row for row in rows if row["at"] < bound <= row["at"] + self.size])
        self.accepted += [row for row in rows if row["at"] + self.size >= bound]
        self.waiting = [row for row in self.waiting if not self.is_taken(row, bound)]
        kept = {window: made for window, made in self.view.items() if window[2] < bound}
        self.closed = dict(kept)
        if rows:
            kept |= {made[:3]: made[3:] for made in self.batch() if made[2] >= bound}
            self.view = kept

    def end_waiting(self, bound):
        """Rows that no window took while one could are late, and partly late no more."""
        late = [row for row in self.waiting if row["at"] + self.size < bound]
        self.waiting = [row for row in self.waiting if row not in late]
        self.late += late
        self.partly -= len(late)

    def is_taken(self, row, bound):
        """Tell whether a row is in a window that may still change, by the windows of all rows so far."""
        ends = [made[2] for made in self.batch() if made[0] == row["k"] and made[1] <= row["at"] <= made[2]]
        return any(end >= bound for end in ends)

    def batch(self):
        """Return every window of the rows so far: key, start, end, results."""
        columns = [pa.array([row[name] for row in self.accepted], kind) for name, kind in COLUMNS]
        self.con.register("accepted", pa.table(columns, names=["k", "v", "t"]))
        return self.con.execute(SETS, {"size": self.size}).fetchall()


def micros(time):
    return (time - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def shown(rows):
    return sorted(
        [
            ((row.get("k"), micros(row["window_start"]), micros(row["window_end"])),
             (row["n"], row["total"], row["least"], row["kinds"]))
            for row in rows
        ],
        key=repr,
    )  # fmt: skip


def expected(view):
    return sorted(view.items(), key=repr)


scattered = st.fixed_dictionaries(
    {
        "k": st.sampled_from(["a", "b", None]),
        "v": st.one_of(st.none(), st.integers(0, 4)),
        "at": st.one_of(st.integers(0, 40).map(lambda n: n * SECOND), st.integers(0, 12)).map(lambda n: START + n),
    }
)
epochs = st.lists(st.lists(scattered, max_size=8), min_size=1, max_size=6)
sizes = st.one_of(st.integers(1, 8).map(lambda n: n * SECOND), st.integers(1, 6))
graces = st.integers(0, 12).map(lambda n: n * SECOND)


@pytest.mark.parametrize(("keys", "emit"), matrix([("k",), ()], ["changes", "final"], depth=1))
@settings(max_examples=examples(4), deadline=None, suppress_health_check=QUIET)
@given(epochs=epochs, size=sizes, grace=graces, drift=st.integers(0, 8), restart=st.booleans())
def test_every_set_of_rows_is_in_one_window_after_every_epoch(emit, keys, epochs, size, grace, drift, restart):
    """Rows out of order and a microsecond apart, empty epochs, windows that close between rows."""
    check(emit, keys, epochs, size, grace, drift, restart=restart)


@pytest.mark.parametrize("emit", ["changes", "final"])
@settings(max_examples=examples(2), deadline=None, suppress_health_check=QUIET)
@given(rows=st.lists(scattered, min_size=1, max_size=20), size=sizes, grace=graces)
def test_one_row_an_epoch_and_all_in_one(emit, rows, size, grace):
    check(emit, ("k",), [[row] for row in rows], size, grace, 1)
    check(emit, ("k",), [rows, []], size, grace, 1)


def check(emit, keys, epochs, size, grace, drift, *, restart=False):
    app = hr.App("slides")
    window = hr.sliding(timedelta(microseconds=size), grace=timedelta(microseconds=grace))
    rows = app.stream("t", "k string, v int, at timestamp", event_time="at")
    table = rows.group_by(*keys).window(window, emit=emit)
    table = table.agg(n="count(*)", total="sum(v)", least="min(v)", kinds="collect_set(v)").named("s")
    table.to_view("out")
    table.late.to_topic("late")
    deltas = Deltas()
    table.to(deltas)
    oracle, greatest = Oracle(size, grace), None
    with Driver(app, shards=2) as driver:
        for number, sent in enumerate(epochs):
            moved = [{**row, "at": row["at"] + number * drift * SECOND} for row in sent]
            driver.send("t", *(timed(row) for row in moved))
            driver.step()
            oracle.epoch([row if keys else {**row, "k": None} for row in moved], greatest)
            greatest = max([*([] if greatest is None else [greatest]), *(row["at"] for row in moved)], default=None)
            assert shown(driver.view("out")) == expected(oracle.closed if emit == "final" else oracle.view)
            if restart:
                driver.restart()
        late = driver.late("s")
        assert sorted((micros(row["at"]), str(row["v"])) for row in late) == sorted(
            (row["at"], str(row["v"])) for row in oracle.late
        )
        driver.finish()
        oracle.end_waiting(2**62)
        assert shown(driver.view("out")) == expected(oracle.view)
        totals = driver.counts("s")
        assert (totals["late"], totals["partly_late"]) == (len(oracle.late), oracle.partly)
        assert totals["rows_in"] == sum(map(len, epochs))
        assert totals.get("state_rows", 0) == 0
    assert sum(deltas.sum.values()) == len(oracle.view)


@pytest.mark.parametrize("emit", ["changes", "final"])
@settings(max_examples=examples(2), deadline=None, suppress_health_check=QUIET)
@given(epochs=epochs, size=sizes)
def test_sliding_windows_of_corrected_windows_take_back_what_was_corrected(emit, epochs, size):
    """Rows go away again, and with them windows; minima and sets lose a value."""
    app = hr.App("second")
    rows = app.stream("t", "k string, v int, at timestamp", event_time="at")
    first = rows.group_by("k").window(hr.tumbling("2 s", grace="1 day")).agg(best="max(v)", n="count(*)")
    window = hr.sliding(timedelta(microseconds=size), grace="1 day")
    table = first.group_by(k="cast(best as string)").window(window, emit=emit)
    table = table.agg(n="count(*)", total="sum(n)", least="min(n)", kinds="collect_set(n)").named("s")
    table.to_view("out")
    deltas = Deltas()
    table.to(deltas)
    oracle, sent = Oracle(size, 0), []
    with Driver(app, shards=2) as driver:
        for number, rows in enumerate([*epochs, []]):
            driver.send("t", *(timed(row) for row in rows))
            driver.step()
            sent += rows
            oracle.accepted = corrected(sent)
            if number == len(epochs):
                driver.finish()
            if emit == "changes" or number == len(epochs):
                assert shown(driver.view("out")) == sorted(((w[:3], w[3:]) for w in oracle.batch()), key=repr)
    assert sum(deltas.sum.values()) == len(oracle.batch())


def timed(row):
    return {**row, "at": datetime.fromtimestamp(0, UTC) + timedelta(microseconds=row["at"])}


def corrected(sent):
    """Return the rows of the first windows as the oracle takes them."""
    groups = {}
    for row in sent:
        groups.setdefault((row["k"], row["at"] // (2 * SECOND)), []).append(row["v"])
    best = {group: max((v for v in values if v is not None), default=None) for group, values in groups.items()}
    return [
        {
            "k": None if best[group] is None else str(best[group]),
            "v": len(values),
            "at": (group[1] + 1) * 2 * SECOND - 1,
        }
        for group, values in groups.items()
    ]

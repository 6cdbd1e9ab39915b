"""Replaying a table through an app, cut into epochs, and what a batch over the same rows says."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

MICROS = 1_000_000
DAY = 86_400 * MICROS


def cuts(rows, *, most=5):
    """Where epochs end: any places, equal ones (an empty epoch) and the ends included."""
    return st.lists(st.integers(0, rows), max_size=most).map(sorted)


def replay(driver, topic, table, ends):
    """Send a table in epochs that end at `ends`; then end the input."""
    for first, last in zip([0, *ends], [*ends, table.num_rows], strict=True):
        if last > first:
            send(driver, topic, table.slice(first, last - first))
        driver.step()
    driver.run()
    driver.finish()


def send(driver, topic, table):
    """Append an Arrow table, as a producer would."""
    driver.log.topic(topic).append(table)


def batch(spark, name, table, query):
    """Return the rows of a plain Spark query over a table."""
    spark.createDataFrame(table).createOrReplaceTempView(name)
    return spark.sql(query).toArrow().to_pylist()


def same(ours, theirs):
    """Compare rows whatever their order; columns in any order too."""
    assert _ordered(ours) == _ordered(theirs)


def _ordered(rows):
    return sorted(repr(sorted(row.items())) for row in rows)


def late(table, ends, *, out_of_order, grace, end_of_last_window):
    """Return which rows come too late, from the rules alone.

    An epoch works with the watermark of the epoch before it: the greatest event time so far, less `out_of_order`.
    A row is late when even its last window has ended `grace` before. `end_of_last_window` maps times to its end.
    """
    times = table.column("at").cast("int64").to_numpy()
    marks = np.full(len(times), np.iinfo(np.int64).min)
    for first, last in zip(ends, [*ends[1:], len(times)][: len(ends)], strict=True):
        if first:
            marks[first:last] = times[:first].max() - out_of_order
    return end_of_last_window(times) + grace <= marks


def counted(table, gone, size, key=None):
    """Return the rows that windows of `size` take, counted by window and key: what is left when late rows are gone."""
    made = Counter()
    keys = table.column(key).to_pylist() if key else [None] * table.num_rows
    ends = tumbling_end(size)(table.column("at").cast("int64").to_numpy()).tolist()
    for group, end, late_ in zip(keys, ends, gone.tolist(), strict=True):
        if not late_:
            made[group, end] += 1
    return made


def shown(view, key=None):
    """Return the same of a view's rows."""
    return Counter({(row[key] if key else None, _micros(row["window_end"])): row["n"] for row in view})


def _micros(time):
    return (time - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def current(table, end, *, key, gone="_deleted"):
    """Return the rows that the first `end` records of a table leave, in plain Python: the last of each key."""
    last = {}
    deleted = table.column(gone).to_pylist() if gone in table.column_names else [False] * table.num_rows
    for nr, (of, is_gone) in enumerate(zip(table.column(key).to_pylist()[:end], deleted, strict=False)):
        last.pop(of, None)
        if not is_gone:
            last[of] = nr
    return table.take(pa.array(sorted(last.values()), pa.int64()))


def shuffled(table, seed):
    """Return the rows in an order that a seed decides."""
    return table.take(np.random.default_rng(seed).permutation(table.num_rows))


def tumbling_end(size):
    """Return the function that gives the end of a time's window."""
    return lambda times: np.floor_divide(times, size) * size + size

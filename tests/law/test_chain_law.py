"""A chain of five steps with state, consistent at every epoch: aggregate, window, top, table, aggregate.

Whatever the cut into epochs, each step is the batch query over all that was sent, after every epoch and all at once.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import headrace as hr
from budget import examples
from headrace.testing import Driver

START = datetime(2026, 1, 1, tzinfo=UTC)
SCHEMA = "k string, g int, v int, at timestamp"
STEPS = ("minutes", "hours", "best", "places", "groups")

events = st.fixed_dictionaries(
    {
        "k": st.sampled_from(["a", "b", "é", None]),
        "g": st.one_of(st.none(), st.integers(0, 2)),
        "v": st.one_of(st.none(), st.integers(-3, 3)),
        "at": st.integers(0, 300).map(lambda minute: START + timedelta(minutes=minute)),
    }
)


class Deltas:
    """A sink that sums the deltas it is given; none may withdraw what is not there, or insert what is."""

    def __init__(self):
        self.sum = Counter()

    def write(self, epoch, rows):
        """Add a delta."""
        for row in rows.drop_columns(["_time"]).to_pylist():
            weight = row.pop("_weight")
            self.sum[told(row)] += weight
        assert set(self.sum.values()) <= {0, 1}, epoch
        self.sum = +self.sum


def told(row):
    return tuple(value.timestamp() if isinstance(value, datetime) else value for value in row.values())


def chain():
    """Return an app of five steps, and a sink for each."""
    app = hr.App("chain", shards=2)
    rows = app.stream("t", SCHEMA, event_time="at", partitions=2)
    ten = hr.tumbling("10 minutes", grace="9 days")
    minutes = rows.group_by("k", "g").window(ten).agg(n="count(*)", v="sum(v)").named("minutes")
    hour = hr.hopping("60 minutes", "30 minutes", grace="9 days")
    hours = minutes.group_by("k").window(hour).agg(n="sum(n)", v="sum(v)", gs="count(distinct g)").named("hours")
    ranked = hours.rename(began="window_start", ended="window_end")
    best = ranked.group_by("began").top(2, "n desc, v desc nulls last, k asc", "place").named("best")
    places = best.changes().latest("began", "place").named("places").where("_change_type <> 'delete'")
    places = places.drop("_change_type")
    groups = places.group_by("k").agg(windows="count(*)", n="sum(n)", v="max(v)", first="min(began)").named("groups")
    sinks = {}
    for name, table in zip(STEPS, (minutes, hours, best, places, groups), strict=True):
        sinks[name] = Deltas()
        sinks[name].name = name
        table.to(sinks[name])
    groups.to_view("groups")
    return app, sinks


def added(values):
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def batch(rows):
    """Return each step's rows, computed anew from all rows."""
    minutes = defaultdict(list)
    for row in rows:
        start = START + (row["at"] - START) // timedelta(minutes=10) * timedelta(minutes=10)
        minutes[row["k"], row["g"], start].append(row["v"])
    made = {"minutes": [(k, g, s, s + timedelta(minutes=10), len(v), added(v)) for (k, g, s), v in minutes.items()]}
    hours = defaultdict(list)
    for k, g, start, _, n, v in made["minutes"]:
        first = START + (start - START) // timedelta(minutes=30) * timedelta(minutes=30)
        for began in (first - timedelta(minutes=30), first):
            hours[k, began].append((g, n, v))
    made["hours"] = [
        (k, s, s + timedelta(hours=1), sum(n for _, n, _ in each), added(v for _, _, v in each),
         len({g for g, _, _ in each if g is not None}))
        for (k, s), each in hours.items()
    ]  # fmt: skip
    best = defaultdict(list)
    for row in made["hours"]:
        best[row[1]].append(row)
    made["best"] = [
        (*row, place) for group in best.values() for place, row in enumerate(sorted(group, key=_ranked)[:2], 1)
    ]
    made["places"] = made["best"]
    groups = defaultdict(list)
    for row in made["best"]:
        groups[row[0]].append(row)
    made["groups"] = [
        (k, len(each), sum(r[3] for r in each), max((r[4] for r in each if r[4] is not None), default=None),
         min(r[1] for r in each))
        for k, each in groups.items()
    ]  # fmt: skip
    return {name: Counter(tuple(_plain(v) for v in row) for row in rows) for name, rows in made.items()}


def _ranked(row):
    """Most rows first, then the greatest value, nulls last, then the least key, nulls first."""
    k, _, _, n, v, _ = row
    return (-n, v is None, -(v or 0), k is not None, k or "")


def _plain(value):
    return value.timestamp() if isinstance(value, datetime) else value


@settings(max_examples=examples(3))
@given(
    epochs=st.lists(st.lists(events, max_size=8), min_size=1, max_size=4),
    restarts=st.sets(st.integers(0, 3), max_size=1),
    shards=st.sampled_from([1, 2]),
)
def test_after_every_epoch_each_of_five_steps_is_the_batch_query(epochs, restarts, shards):
    """Nulls, ties, disorder, empty epochs, rebuilt caches; steps agree with each other at each epoch."""
    app, sinks = chain()
    assert app.explain().data["levels"] > 3
    sent = []
    with Driver(app, shards=shards) as driver:
        for number, rows in enumerate(epochs):
            if number in restarts:
                driver.restart()
            driver.send("t", *rows)
            driver.step()
            sent += rows
            expected = batch(sent)
            for name in STEPS:
                assert sinks[name].sum == expected[name], (name, number)
        driver.finish()
        for name in STEPS:
            assert sinks[name].sum == batch(sent)[name], name
        assert Counter(map(told, driver.view("groups"))) == batch(sent)["groups"]


QUERY = """
WITH minutes AS (SELECT k, g, window(at, '10 minutes') w, count(*) n, sum(v) v FROM t GROUP BY 1, 2, 3),
hours AS (
  SELECT k, window(w.start, '60 minutes', '30 minutes') h, sum(n) n, sum(v) v, count(DISTINCT g) gs
  FROM minutes GROUP BY 1, 2
),
best AS (
  SELECT * FROM (
    SELECT *, row_number() OVER (PARTITION BY h ORDER BY n DESC, v DESC NULLS LAST, k ASC NULLS FIRST) place FROM hours
  ) WHERE place <= 2
)
SELECT k, count(*) windows, sum(n) n, max(v) v, min(h.start) AS first FROM best GROUP BY k
"""


@pytest.mark.spark
@settings(max_examples=examples(2), deadline=None, suppress_health_check=list(HealthCheck))
@given(epochs=st.lists(st.lists(events, max_size=20), min_size=2, max_size=4))
def test_the_last_of_five_steps_is_the_batch_query_of_spark(spark, epochs):
    app, sinks = chain()
    kinds = [("k", pa.string()), ("g", pa.int32()), ("v", pa.int32()), ("at", pa.timestamp("us", tz="UTC"))]
    sent = []
    with Driver(app, shards=2) as driver:
        for rows in epochs:
            driver.send("t", *rows)
            driver.step()
            sent += rows
        spark.createDataFrame(pa.Table.from_pylist(sent, schema=pa.schema(kinds))).createOrReplaceTempView("t")
        assert sinks["groups"].sum == Counter(map(told, spark.sql(QUERY).toArrow().to_pylist()))


@pytest.mark.prove
def test_the_chain_runs_on_spark_as_it_does_in_process(spark):  # noqa: ARG001 -- the shared session
    """One scenario of three epochs on the other carrier, the batch query after each."""
    app, sinks = chain()
    sent = []
    with Driver(app, carrier="spark", shards=2) as driver:
        for epoch in range(3):
            rows = [
                {"k": "abé"[n % 3], "g": n % 4 or None, "v": n % 7 - 3, "at": START + timedelta(minutes=n * 37 % 290)}
                for n in range(epoch * 40, epoch * 40 + 40)
            ]
            driver.send("t", *rows)
            driver.step()
            sent += rows
            for name in STEPS:
                assert sinks[name].sum == batch(sent)[name], (name, epoch)

"""The law for windows of a calendar: the same months and days as in Spark, in a session of the zone."""

from __future__ import annotations

from datetime import UTC

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from playing import results

import headrace as hr
from batch_spark import quick_session
from budget import examples

pytestmark = pytest.mark.spark

SCHEMA = "k string, v int, at timestamp"
EVERY = {"n": "count(*)", "total": "sum(v)", "hi": "max(v)", "kinds": "count(distinct v)", "all_v": "collect_list(v)"}
ZONES = ["Europe/Paris", "America/Sao_Paulo", "Asia/Beirut", "America/Havana", "Asia/Kathmandu", "Pacific/Apia", "UTC"]
MINUTE = 60_000
CHANGES = [1_774_746_000_000, 1_541_300_400_000, 1_680_127_200_000, 1_762_059_600_000, 1_325_239_200_000]
"""Instants, in milliseconds, at which clocks are set in Paris, São Paulo, Beirut, Havana and Apia."""

times = st.one_of(
    st.builds(lambda change, minute: change + minute * MINUTE, st.sampled_from(CHANGES), st.integers(-2000, 2000)),
    st.integers(0, 2_000_000_000).map(lambda second: second * 1000),
)
rows = st.fixed_dictionaries(
    {"k": st.sampled_from(["a", "b", None]), "v": st.one_of(st.none(), st.integers(-5, 5)), "at": times}
)
DAY = "cast(cast({0} AS date) AS timestamp)"  # date_trunc('day') takes the second of two midnights, a cast the first
WINDOWS = {
    "1 day": (lambda **o: hr.tumbling("1 day", **o), DAY.format("at"), "1 DAY"),
    "1 week": (lambda **o: hr.tumbling("1 week", **o), "date_trunc('week', at)", "7 DAY"),
    "1 month": (lambda **o: hr.tumbling("1 month", **o), "date_trunc('month', at)", "1 MONTH"),
    "1 quarter": (lambda **o: hr.tumbling("1 quarter", **o), "date_trunc('quarter', at)", "3 MONTH"),
    "1 year": (lambda **o: hr.tumbling("1 year", **o), "date_trunc('year', at)", "12 MONTH"),
    "a day from the 15th": (
        lambda **o: hr.tumbling("1 month", offset="14 days", **o),
        "cast(cast(date_trunc('month', cast(at AS date) - INTERVAL 14 DAY) AS date) + INTERVAL 14 DAY AS timestamp)",
        "1 MONTH",
    ),
    "3 months every month": (
        lambda **o: hr.hopping("3 months", "1 month", **o),
        "explode(transform(array(0, 1, 2), i -> add_months(date_trunc('month', at), -i)::timestamp))",
        "3 MONTH",
    ),
}


@pytest.fixture(scope="module")
def zoned(spark):
    """Sessions of Spark, one a zone: the shared one stays in UTC."""
    made = {zone: quick_session(spark) for zone in ZONES}
    for zone, session in made.items():
        session.conf.set("spark.sql.session.timeZone", zone)
    return made


@pytest.mark.parametrize("name", WINDOWS)
@settings(max_examples=examples(2), deadline=None, suppress_health_check=list(HealthCheck))
@given(
    emit=st.sampled_from(["changes", "final"]),
    zone=st.sampled_from(ZONES),
    sent=st.lists(rows, min_size=1, max_size=25),
    sizes=st.lists(st.integers(1, 6), min_size=1, max_size=8),
)
def test_windows_of_a_calendar_are_those_of_spark(zoned, name, emit, zone, sent, sizes):
    make, start, length = WINDOWS[name]
    app = hr.App("calendar_law")
    window = make(grace="40000 days", timezone=zone)
    table = app.stream("t", SCHEMA, event_time="at").group_by("k").window(window, emit=emit).agg(**EVERY)
    ours = {_at(row): row for row in results(app, table, sent, sizes, emit=emit)}
    theirs = _batch(zoned[zone], sent, start, length)
    assert ours == {_at(row): row for row in theirs}
    assert len(ours) == len(theirs)


def _at(row):
    return row["k"], row["window_start"]


def _batch(session, sent, start, length):
    kinds = [("k", pa.string()), ("v", pa.int32()), ("at", pa.timestamp("us", tz="UTC"))]
    table = pa.Table.from_pylist([{**row, "at": row["at"] * 1000} for row in sent], schema=pa.schema(kinds))
    session.createDataFrame(table).createOrReplaceTempView("t")
    columns = ", ".join(f"{sql} AS {name}" for name, sql in EVERY.items()).replace(
        "collect_list(v)", "sort_array(collect_list(v))"
    )
    end = f"cast(cast(window_start AS date) + INTERVAL {length} AS timestamp)"
    windowed = f"SELECT *, {start} AS window_start FROM t"
    made = session.sql(
        f"SELECT k, window_start, {end} AS window_end, {columns} FROM ({windowed}) GROUP BY k, window_start"
    )
    return [
        {**row, **{name: row[name].astimezone(UTC) for name in ("window_start", "window_end")}}
        for row in made.toArrow().to_pylist()
    ]

"""What people did in a shop: 144 sessions of half an hour's rest, counted here from the file alone."""

from __future__ import annotations

import json
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from replaying import cuts, replay, send

import headrace as hr
from budget import examples
from headrace.testing import Driver

pytestmark = pytest.mark.spark

GAP = 30 * 60 * 1000
EVENTS = 862


@pytest.fixture(scope="session")
def people(data):
    """Each person's events in order: (time in ms, what, article)."""
    lines = (data / "otto_sessions" / "train.jsonl").read_text().splitlines()
    kept = [json.loads(line) for line in lines]
    return {each["session"]: [(e["ts"], e["type"], e["aid"]) for e in each["events"]] for each in kept}


@pytest.fixture(scope="session")
def clicks(people):
    """All events in the order of their times, as they would come."""
    rows = [{"person": who, "at": ts * 1000, "kind": what, "article": aid}
            for who, events in people.items() for ts, what, aid in events]  # fmt: skip
    kinds = {"person": pa.int64(), "at": pa.timestamp("us", tz="UTC"), "kind": pa.string(), "article": pa.int64()}
    return pa.Table.from_pylist(sorted(rows, key=lambda row: row["at"]), schema=pa.schema(list(kinds.items())))


@pytest.fixture(scope="session")
def sessions(people):
    """Sessions by the gaps between a person's events: one, and another after each gap above half an hour."""
    made = []
    for who, events in people.items():
        times = sorted(ts for ts, _, _ in events)
        ends = [at for at, (one, other) in enumerate(pairwise(times), 1) if other - one > GAP]
        for first, last in zip([0, *ends], [*ends, len(times)], strict=True):
            span = range(times[first], times[last - 1] + 1)
            articles = {aid for ts, _, aid in events if ts in span}
            orders = sum(what == "orders" for ts, what, _ in events if ts in span)
            made.append((who, times[first], times[last - 1] + GAP, last - first, len(articles), orders))
    return sorted(made)


def app_of(emit, grace):
    app = hr.App("shop")
    rows = app.stream("clicks", "person bigint, at timestamp, kind string, article bigint", event_time="at")
    grouped = rows.group_by("person").window(hr.session("30 minutes", grace=grace), emit=emit)
    made = {"n": "count(*)", "articles": "count(distinct article)", "orders": "count_if(kind = 'orders')"}
    grouped.agg(**made).named("sessions").to_view("sessions")
    return app


def shown(view):
    def ms(time):
        return round(time.timestamp() * 1000)

    return [(r["person"], ms(r["window_start"]), ms(r["window_end"]), r["n"], r["articles"], r["orders"]) for r in view]


def test_the_count_of_the_gaps_and_of_the_batch_are_one(people, sessions, clicks, spark):
    """Three ways: 20 people and 124 gaps, the sessions made of them, and Spark's own session windows."""
    gaps = sum(b[0] - a[0] > GAP for events in people.values() for a, b in pairwise(events))
    assert (len(people), gaps, len(sessions), sum(each[3] for each in sessions)) == (20, 124, 144, EVENTS)
    spark.createDataFrame(clicks).createOrReplaceTempView("clicks")
    query = "SELECT person, count(*) FROM clicks GROUP BY person, session_window(at, '30 minutes')"
    assert spark.sql(query).count() == 144


@settings(max_examples=examples(2), deadline=None, suppress_health_check=list(HealthCheck))
@given(ends=cuts(EVENTS), emit=st.sampled_from(["changes", "final"]))
def test_144_sessions_however_they_are_cut(clicks, sessions, ends, emit):
    with Driver(app_of(emit, "0 seconds"), shards=2) as driver:
        replay(driver, "clicks", clicks, ends)
        assert driver.late("sessions") == []
        assert shown(driver.view("sessions")) == sessions


@settings(max_examples=examples(2), deadline=None, suppress_health_check=list(HealthCheck))
@given(order=st.permutations(range(EVENTS)), ends=cuts(EVENTS), emit=st.sampled_from(["changes", "final"]))
def test_144_sessions_in_any_order_of_arrival(clicks, sessions, order, ends, emit):
    with Driver(app_of(emit, "100 days"), shards=2) as driver:
        replay(driver, "clicks", clicks.take(pa.array(order)), ends)
        assert shown(driver.view("sessions")) == sessions


@pytest.mark.parametrize("emit", ["changes", "final"])
def test_144_sessions_on_both_carriers(drive, clicks, sessions, emit):
    driver = drive(app_of(emit, "1 day"))
    for at in range(0, EVENTS, 300):
        send(driver, "clicks", clicks.slice(at, 300))
        driver.step()
    driver.finish()
    assert shown(driver.view("sessions")) == sessions

"""The law: the sum of a table's deltas over any cut of the input equals the batch query over the same input."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from playing import Deltas, play, results

import headrace as hr
from budget import examples, matrix
from headrace.testing import Driver

pytestmark = pytest.mark.spark

SCHEMA = "k string, v int, x double, d decimal(10,2), s string, at timestamp"
EVERY = {
    "n": "count(*)",
    "nv": "count(v)",
    "total": "sum(v)",
    "mean": "avg(v)",
    "lo": "min(v)",
    "hi": "max(v)",
    "sd": "stddev(v)",
    "vp": "var_pop(x)",
    "sx": "sum(x)",
    "sdec": "sum(d)",
    "mdec": "avg(d)",
    "lo_s": "min(s)",
    "hi_s": "max(s)",
    "kinds": "count(distinct s)",
    "dsum": "sum(distinct v)",
    "any_": "bool_or(v > 3)",
    "odd": "count_if(v % 2 = 1)",
    "share": "round(sum(v) / count(*), 6)",
    "all_s": "sort_array(collect_list(s))",
    "set_s": "sort_array(collect_set(s))",
    "middle": "median(v)",
    "parts": "percentile(x, array(0.0, 0.1, 0.5, 1.0))",
    "above": "percentile_cont(0.3) within group (order by d desc)",
    "one_of": "percentile_disc(0.4) within group (order by v)",
    "one_above": "percentile_disc(0.4) within group (order by d desc)",
    "often": "mode() within group (order by s)",
    "often_v": "mode() within group (order by v desc) filter (where v <> 2)",
}
APPROXIMATE = {"mean", "sd", "vp", "sx", "share"}

values = st.one_of(st.none(), st.integers(-5, 5))
rows = st.fixed_dictionaries(
    {
        "k": st.sampled_from(["a", "b", "é😀", "", None]),
        "v": values,
        "x": st.one_of(st.none(), st.sampled_from([0.0, -0.0, 1.5, -2.25, 0.1, 1e10, -1e10])),
        "d": st.one_of(st.none(), st.decimals(-99, 99, places=2)),
        "s": st.one_of(st.none(), st.sampled_from(["x", "y", "😀", ""])),
        "at": st.integers(0, 40).map(lambda minute: 1_767_225_600_000 + minute * 60_000),
    }
)
inputs = st.lists(rows, min_size=1, max_size=25)
cuts = st.lists(st.integers(1, 6), min_size=1, max_size=8)


def run(app, sent, sizes, *, shards=2):
    """Send rows cut into epochs of the given sizes; return the driver's views."""
    with Driver(app, shards=shards) as driver:
        play(driver, sent, sizes)
        driver.run()
        return {name: driver.view(name) for name in driver.views()}


def frame(spark, sent):
    prepared = [{**row, "at": row["at"] * 1000} for row in sent]
    kinds = [("k", pa.string()), ("v", pa.int32()), ("x", pa.float64()), ("d", pa.decimal128(10, 2)),
             ("s", pa.string()), ("at", pa.timestamp("us", tz="UTC"))]  # fmt: skip
    spark.createDataFrame(pa.Table.from_pylist(prepared, schema=pa.schema(kinds))).createOrReplaceTempView("t")


def batch(spark, query):
    return spark.sql(query).toArrow().to_pylist()


def same(ours, theirs, keys):
    def order(row):
        return repr([(row[key] is not None, row[key]) for key in keys])

    ours, theirs = sorted(ours, key=order), sorted(theirs, key=order)
    assert [list(row) for row in ours] == [list(row) for row in theirs]
    assert len(ours) == len(theirs), (ours, theirs)
    for mine, other in zip(ours, theirs, strict=True):
        for name, value in mine.items():
            expected = other[name]
            if isinstance(value, float) and isinstance(expected, float):
                assert value == pytest.approx(expected, rel=1e-9, abs=1e-6, nan_ok=True), (name, mine, other)
            else:
                assert value == expected, (name, mine, other)


@settings(max_examples=examples(6), deadline=None, suppress_health_check=list(HealthCheck))
@given(sent=inputs, sizes=cuts)
def test_a_group_is_the_same_however_the_input_is_cut(spark, sent, sizes):
    app = hr.App("law")
    table = app.stream("t", SCHEMA, event_time="at").group_by("k").agg(**EVERY)
    table.to_view("out")
    deltas = Deltas()
    table.to(deltas)
    ours = run(app, sent, list(sizes))["out"]
    frame(spark, sent)
    columns = ", ".join(f"{sql} AS {name}" for name, sql in EVERY.items())
    same(ours, batch(spark, f"SELECT k, {columns} FROM t GROUP BY k"), ["k"])
    assert {row for row, weight in deltas.sum.items() if weight} == {repr(row) for row in ours} or _nan(ours)


def _nan(rows):
    return any(value != value for row in rows for value in row.values())  # noqa: PLR0124


SECOND = {
    "groups": "count(*)",
    "total": "sum(hi)",
    "lo": "min(hi)",
    "hi2": "max(s)",
    "sd": "stddev(nv)",
    "mean": "avg(hi)",
    "kinds": "count(distinct hi)",
    "list_": "sort_array(collect_list(s))",
    "sx": "sum(sx)",
    "last": "max_by(nv, hi)",
}


@settings(max_examples=examples(6), deadline=None, suppress_health_check=list(HealthCheck))
@given(sent=inputs, sizes=cuts)
def test_an_aggregate_of_an_aggregate_withdraws_what_changed(spark, sent, sizes):
    """Groups change their key, empty out and come back; minima go away."""
    app = hr.App("law2")
    first = (
        app.stream("t", SCHEMA, event_time="at")
        .group_by("k")
        .agg(n="count(*)", nv="count(v)", hi="max(v)", s="max(s)", sx="sum(x)")
    )
    second = first.group_by("n").agg(**SECOND)
    second.to_view("second")
    deltas = Deltas()
    second.to(deltas)
    ours = run(app, sent, list(sizes))["second"]
    frame(spark, sent)
    columns = ", ".join(f"{sql} AS {name}" for name, sql in SECOND.items() if name != "last")
    inner = "SELECT k, count(*) n, count(v) nv, max(v) hi, max(s) s, sum(x) sx FROM t GROUP BY k"
    last = "max_by(nv, struct(hi, nv)) FILTER (WHERE hi IS NOT NULL) AS last"
    same(ours, batch(spark, f"SELECT n, {columns}, {last} FROM ({inner}) GROUP BY n"), ["n"])


def cumulating(size, step, offset=0):
    """Return the windows of a row that grow by `step`, as Spark's SQL; all in minutes."""
    start = f"timestamp_seconds(unix_seconds(at) - pmod(unix_seconds(at) - {offset * 60}, {size * 60}))"
    end = f"{start} + make_interval(0, 0, 0, 0, 0, i * {step}, 0)"
    ends = f"filter(sequence(1, {size // step}), i -> at < {end})"
    return f"explode(transform({ends}, i -> named_struct('start', {start}, 'end', {end})))"


WINDOWS = [
    (hr.tumbling("5 minutes", grace="10 days"), "window(at, '5 minutes')"),
    (
        hr.tumbling("7 minutes", grace="10 days", offset="2 minutes"),
        "window(at, '7 minutes', '7 minutes', '2 minutes')",
    ),
    (hr.hopping("10 minutes", "4 minutes", grace="10 days"), "window(at, '10 minutes', '4 minutes')"),
    (
        hr.hopping("6 minutes", "2 minutes", grace="10 days", offset="1 minute"),
        "window(at, '6 minutes', '2 minutes', '1 minute')",
    ),
    (hr.cumulating("12 minutes", "4 minutes", grace="10 days"), cumulating(12, 4)),
    (hr.cumulating("9 minutes", "3 minutes", grace="10 days", offset="7 minutes"), cumulating(9, 3, 7)),
]


@pytest.mark.parametrize(("window", "emit"), matrix(WINDOWS, ["changes", "final"], depth=1), ids=str)
@settings(max_examples=examples(2), deadline=None, suppress_health_check=list(HealthCheck))
@given(sent=inputs, sizes=cuts)
def test_windows_are_the_same_however_the_input_is_cut(spark, window, emit, sent, sizes):
    window, spark_window = window
    app = hr.App("law3")
    table = app.stream("t", SCHEMA, event_time="at").group_by("k").window(window, emit=emit).agg(**EVERY)
    ours = results(app, table, sent, sizes, emit=emit)
    frame(spark, sent)
    columns = ", ".join(f"{sql} AS {name}" for name, sql in EVERY.items())
    windowed = f"SELECT *, {spark_window} w FROM t"
    query = f"SELECT k, w.start AS window_start, w.end AS window_end, {columns} FROM ({windowed}) GROUP BY k, w"
    same(ours, batch(spark, query), ["k", "window_start"])


def test_decimal_means_are_exact():
    """The mean of a decimal has four more places, rounded half up, as in Spark."""
    app = hr.App("means")
    app.stream("t", "d decimal(10,2)").group_by().agg(m="avg(d)").to_view("out")
    with Driver(app) as driver:
        driver.send("t", {"d": Decimal("0.01")}, {"d": Decimal("0.02")}, {"d": Decimal("-0.10")})
        driver.run()
        assert driver.view("out") == [{"m": Decimal("-0.023333")}]

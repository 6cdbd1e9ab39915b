"""Sums of doubles over tables are those of the rows that are there: what was withdrawn leaves no trace."""

from __future__ import annotations

import math
import statistics
from fractions import Fraction

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from budget import examples
from headrace.engine.lowering import lower
from headrace.kernels.aggregates import exact, superaccumulator
from headrace.kernels.delta import Delta
from headrace.kernels.duck import Duck
from headrace.kernels.groups.merge import Merge
from headrace.kernels.groups.partial import Partial
from headrace.kernels.op import Context
from headrace.kernels.state.scanned import ScannedState
from headrace.testing import Driver

doubles = st.one_of(
    st.sampled_from([0.0, -0.0, 1.0, 1e16, -1e16, 1e308, -1e308, 5e-324, 0.1, 2.0**-1022, 2.0**62, 2.0**-81]),
    st.floats(-1000, 1000),
    st.floats(allow_nan=False, allow_infinity=False),
)
any_double = st.one_of(doubles, st.sampled_from([math.nan, math.inf, -math.inf]))


class Groups:
    """The kernels of one aggregate of a table, without an app around them."""

    def __init__(self, **results):
        app = hr.App("sums")
        app.table("t", "id bigint, k string, x double", key="id").group_by("k").agg(**results).to_view("out")
        levels = lower(app.plan(), 1).levels
        ops = [op for level in levels for op in level.ops]
        (self.partial,) = (op for op in ops if isinstance(op, Partial))
        (self.merge,) = (op for op in ops if isinstance(op, Merge))
        self.duck = Duck()
        superaccumulator.define(self.duck)
        self.state = ScannedState(self.duck, "sums", self.merge.tables(), None)
        self.state.create()
        self.now = {}

    def epoch(self, *tasks):
        """Run an epoch of rows that several tasks have; keep the results, of which none goes that is not there."""
        context = Context(duck=self.duck, opened=self.state)
        results = [self.partial.run([Delta(self.duck, [rows])], context) for rows in tasks]
        parts = zip(*([result.delta, *result.more] for result in results), strict=True)
        inputs = [Delta(self.duck, [table for tables in part for table in tables]) for part in parts]
        rows = [row for table in self.merge.run(inputs, context).delta for row in table.to_pylist()]
        for row in sorted(rows, key=lambda row: row["_weight"]):
            weight, _ = row.pop("_weight"), row.pop("_time")
            if weight < 0:
                assert repr(self.now.pop(row["k"])) == repr(row)
            else:
                assert self.now.setdefault(row["k"], row) is row
        self.duck.forget()
        return self.now


def changes(pairs, key="a"):
    """Change rows of doubles and weights."""
    xs, weights = ([pair[i] for pair in pairs] for i in (0, 1))
    made = {"k": pa.array([key] * len(xs), pa.string()), "x": pa.array(xs, pa.float64())}
    zeros = pa.array([0] * len(xs), pa.int64())
    return pa.table({"id": zeros, **made, "_weight": pa.array(weights, pa.int32()), "_time": zeros})


def nearest(xs):
    """The sum of doubles, rounded once."""
    if any(math.isnan(x) for x in xs) or {math.inf, -math.inf} <= set(xs):
        return math.nan
    if infinite := [x for x in xs if math.isinf(x)]:
        return infinite[0]
    whole = sum(map(Fraction, xs), Fraction(0))
    try:
        return whole.numerator / whole.denominator
    except OverflowError:
        return math.inf if whole > 0 else -math.inf


def alike(mine, theirs):
    """Whether two doubles are one, to the last bit; 0.0 and -0.0 are."""
    return mine == theirs or (math.isnan(mine) and math.isnan(theirs))


@settings(max_examples=examples(12))
@given(
    epochs=st.lists(st.lists(any_double, min_size=1, max_size=8), min_size=1, max_size=5),
    stay=st.lists(st.booleans(), min_size=1, max_size=8),
    tasks=st.integers(1, 2),
)
def test_a_sum_is_that_of_the_rows_that_are_there_rounded_once(epochs, stay, tasks):
    """After every epoch, whatever the doubles are; what comes in one epoch goes in the next, in another order."""
    groups, kept, leaving = Groups(s="sum(x)", m="avg(x)", n="count(x)"), [], []
    for came in [*epochs, []]:
        pairs = [(x, -1) for x in reversed(leaving)] + [(x, 1) for x in came]
        kept += [x for i, x in enumerate(came) if stay[i % len(stay)]]
        leaving = [x for i, x in enumerate(came) if not stay[i % len(stay)]]
        if not pairs:
            continue
        now = groups.epoch(*(changes(pairs[task::tasks]) for task in range(tasks))).get("a")
        there = [*kept, *leaving]
        assert (now is not None) == bool(there)
        if now is not None:
            assert now["n"] == len(there)
            assert alike(now["s"], nearest(there)), (now, there)
            assert alike(now["m"], nearest(there) / len(there))
    groups.duck.close()


def test_ten_million_changes_leave_nothing():
    """Rows come in one cut and go in another: a group is gone, and where a row stays its sum is the row."""
    groups = Groups(s="sum(x)")
    sql = (
        "SELECT 0::BIGINT AS id, CASE WHEN i % 2 = 0 THEN 'a' ELSE 'b' END AS k, "
        "(hash(i)::DOUBLE / 1e9 - 9e9) * pow(10, i % 7) AS x, {w}::INTEGER AS _weight, 0::BIGINT AS _time "
        "FROM range({start}, {end}) t(i)"
    )
    groups.epoch(changes([(0.1, 1)], "b"))
    half = 5_000_000
    for start in range(0, half, half // 2):
        groups.epoch(groups.duck.arrow(sql.format(w=1, start=start, end=start + half // 2)))
    for start in reversed(range(0, half, half // 5)):
        assert "a" in groups.now
        assert groups.now["b"]["s"] != 0.1
        groups.epoch(groups.duck.arrow(sql.format(w=-1, start=start, end=start + half // 5)))
    assert groups.now == {"b": {"k": "b", "s": 0.1}}
    groups.epoch(changes([(0.1, -1), (-0.0, 1)], "b"))
    assert repr(groups.now["b"]["s"]) == "0.0"
    groups.epoch(changes([(-0.0, -1)], "b"))
    assert groups.now == {}
    groups.duck.close()


SPREAD = {"v": "var_pop(x)", "s": "stddev(x)", "n": "count(x)"}
near_each_other = st.tuples(st.sampled_from([0.0, 1.0, -1e6, 1e9, 1e-6]), st.lists(st.floats(-1, 1), max_size=6))


@settings(max_examples=examples(10))
@given(kept=near_each_other, gone=st.lists(doubles.filter(lambda x: abs(x) < 1e140), max_size=6))
def test_a_variance_is_that_of_the_rows_that_are_there(kept, gone):
    """To nine digits, and none is below 0: also where rows went that were far from the others."""
    middle, apart = kept
    there = [middle + x for x in apart]
    groups = Groups(**SPREAD)
    groups.epoch(changes([(x, 1) for x in [*gone, *there, 5.0]]))
    groups.epoch(changes([(x, -1) for x in [*reversed(gone), 5.0]]))
    if not there:
        assert groups.now == {}
    else:
        now = groups.now["a"]
        mean = sum(map(Fraction, there)) / len(there)
        exact_ = float(sum((Fraction(x) - mean) ** 2 for x in there) / len(there))
        least = max(middle**2, 1e-300) * 2.0**-90  # less is nothing beside the values' squares
        assert now["v"] >= 0
        assert now["v"] == pytest.approx(exact_, rel=1e-9, abs=least)
        assert (now["s"] is None) == (len(there) == 1)
    groups.duck.close()


def test_the_variance_of_equal_values_is_zero():
    groups = Groups(**SPREAD)
    for x in (0.1, 1 / 3, 123456.789, 1e100, -1e-100):
        groups.epoch(changes([(x, 1)] * 7 + [(1e3, 1)]))
        groups.epoch(changes([(1e3, -1)]))
        assert (groups.now["a"]["v"], groups.now["a"]["s"]) == (0.0, 0.0), x
        groups.epoch(changes([(x, -1)] * 7))
    assert groups.now == {}
    groups.duck.close()


def test_a_table_of_one_and_ten_to_the_sixteenth():
    """The sum of what is left, for doubles and floats, whole and distinct; NaN and infinity go with their rows."""
    app = hr.App("sums")
    table = app.table("t", "id int, x double, f float", key="id")
    results = {"s": "sum(x)", "m": "avg(x)", "d": "sum(distinct x)", "f": "sum(f)", "v": "var_pop(x)"}
    table.group_by().agg(**results).to_view("out")
    with Driver(app) as driver:
        driver.send("t", {"id": 1, "x": 1.0, "f": 0.1}, {"id": 2, "x": 1e16, "f": 1e30})
        driver.run()
        driver.delete("t", id=2)
        driver.run()
        left = {"s": 1.0, "m": 1.0, "d": 1.0, "f": 0.10000000149011612, "v": 0.0}
        assert driver.view("out") == [left]
        for strange, total in ((math.nan, math.nan), (math.inf, math.inf), (-math.inf, -math.inf)):
            driver.send("t", {"id": 3, "x": strange, "f": strange})
            driver.run()
            (row,) = driver.view("out")
            assert all(alike(row[name], total) for name in ("s", "m", "d", "f"))
            assert math.isnan(row["v"])
            driver.send("t", {"id": 4, "x": -strange, "f": 0.0})
            driver.run()
            assert math.isnan(driver.view("out")[0]["s"])
            driver.delete("t", id=3)
            driver.delete("t", id=4)
            driver.run()
            assert driver.view("out") == [left]


def test_the_mean_of_what_is_left_is_the_same_whatever_went(tmp_path):
    """What is kept survives a restart: parts and rest are read back from the state's files."""
    app = hr.App("sums")
    app.table("t", "id int, x double", key="id").group_by().agg(s="sum(x)", m="avg(x)").to_view("out")
    xs = [0.1, 1e300, -1e-300, 3.7e22, 2.5]
    with Driver(app, storage=tmp_path) as driver:
        driver.send("t", *({"id": i, "x": x} for i, x in enumerate(xs)))
        driver.run()
        driver.restart()
        driver.delete("t", id=1)
        driver.run()
        driver.restart()
        left = [xs[0], *xs[2:]]
        driver.send("t", {"id": 9, "x": 1.0})
        driver.run()
        assert driver.view("out") == [{"s": nearest([*left, 1.0]), "m": nearest([*left, 1.0]) / 5}]
        assert statistics.fmean([*left, 1.0]) == driver.view("out")[0]["m"]


def test_parts_hold_what_they_say():
    """A double is in hi and lo where they are enough; else in a bucket of the rest."""
    duck = Duck()
    superaccumulator.define(duck)
    made = exact.columns("c", "x", "1")
    shown = ", ".join(kept.partial for kept in exact.accumulators(made))
    for x, common in ((1.5, True), (1e13, True), (5e-9, True), (2.0**-81, True), (1e14, False), (1e-9, False)):
        source = exact.layered(f"(SELECT {x!r}::DOUBLE AS x)", made.layers)
        ((hi, lo, rest),) = duck.rows(f"SELECT {shown} FROM {source}")
        assert (rest is None) == common
        assert Fraction(hi, 2**18) + Fraction(lo, 2**81) == (Fraction(x) if common else 0)
        for each in rest or ():
            assert each["s"] * Fraction(2) ** (9 * each["b"]) == Fraction(x)
    duck.close()

"""Aggregates of numbers at the edge, as Spark has them: infinities, NaN alone, decimals of all their digits."""

from __future__ import annotations

import math
from decimal import Decimal

import pytest

import headrace as hr
from headrace.testing import Driver

INF, NAN = math.inf, math.nan


def aggregated(columns, rows, aggregates, *, table, cut):
    """Return the only group's aggregates; over a table another row has come and gone."""
    app = hr.App("strange")
    declared = f"id int, {columns}"
    source = app.table("t", declared, key="id") if table else app.stream("t", declared)
    source.group_by().agg(**aggregates).to_view("out")
    with Driver(app) as driver:
        if table:
            driver.send("t", {**rows[0], "id": -1})
            driver.step()
            driver.delete("t", id=-1)
        for i, row in enumerate(rows):
            driver.send("t", {**row, "id": i})
            if cut:
                driver.step()
        driver.run()
        (result,) = driver.view("out")
    return result


@pytest.mark.parametrize("table", [False, True], ids=["stream", "table"])
@pytest.mark.parametrize("cut", [False, True], ids=["once", "cut"])
@pytest.mark.parametrize(
    ("xs", "total"),
    [
        ([INF, 1.0, 2.0], INF),
        ([-INF, -INF], -INF),
        ([1.0, -INF, 3.0], -INF),
        ([INF, 1.0, -INF], NAN),
        ([NAN, 1.0], NAN),
    ],
    ids=str,
)
def test_a_sum_with_an_infinity_is_infinite(xs, total, cut, table):
    """In one epoch and cut into several, where rows only come and where they are withdrawn."""
    got = aggregated("x double", [{"x": x} for x in xs], {"s": "sum(x)", "m": "avg(x)"}, table=table, cut=cut)
    assert repr(got) == repr({"s": total, "m": total})


@pytest.mark.parametrize("table", [False, True], ids=["stream", "table"])
@pytest.mark.parametrize("x", [INF, -INF, NAN], ids=str)
def test_one_value_that_is_not_finite_has_no_variance(x, table):
    """As in Spark: NaN, where one finite value has 0."""
    spreads = {"v": "var_pop(x)", "s": "stddev_pop(x)", "slope": "regr_slope(1.0D, x)", "c": "regr_intercept(1.0D, x)"}
    got = aggregated("x double", [{"x": x}], spreads, table=table, cut=False)
    assert all(math.isnan(value) for value in got.values())
    finite = aggregated("x double", [{"x": 7.0}], spreads, table=table, cut=False)
    assert finite == {"v": 0.0, "s": 0.0, "slope": None, "c": None}


@pytest.mark.parametrize("table", [False, True], ids=["stream", "table"])
def test_equal_values_correlate_with_nothing(table):
    """Not with NaN or an infinity either: null, as in Spark."""
    for pairs in ([(1.0, NAN), (1.0, 2.0)], [(1.0, -INF), (1.0, 5.0)], [(1.0, 3.0), (1.0, 5.0)]):
        rows = [{"x": x, "y": y} for x, y in pairs]
        both = {"one": "corr(x, y)", "other": "corr(y, x)"}
        got = aggregated("x double, y double", rows, both, table=table, cut=False)
        assert got == {"one": None, "other": None}, pairs


@pytest.mark.parametrize("table", [False, True], ids=["stream", "table"])
@pytest.mark.parametrize(
    ("kind", "values", "mean"),
    [
        ("decimal(38,18)", ["8e15", "9e15", "9e15"], "8666666666666666.6666666666666666666667"),
        ("decimal(38,0)", ["4e33", "4e33", "5e33"], "4333333333333333333333333333333333.3333"),
        ("decimal(38,0)", ["-4e33", "-5e33"], "-4500000000000000000000000000000000.0000"),
        ("decimal(38,38)", [f"0.{'9' * 38}"], f"0.{'9' * 38}"),
        ("decimal(5,0)", ["1", "-2", "0"], "-0.3333"),
    ],
    ids=str,
)
def test_a_mean_of_decimals_needs_no_more_digits_than_it_has(kind, values, mean, table):
    """The total has the places of the values; only the mean has four more."""
    rows = [{"d": Decimal(value)} for value in values]
    got = aggregated(f"d {kind}", rows, {"m": "avg(d)"}, table=table, cut=True)
    assert got == {"m": Decimal(mean)}
    each = [{"d": Decimal(value)} for value in sorted(set(values))]
    of_each = aggregated(f"d {kind}", each, {"m": "avg(d)"}, table=table, cut=False)
    assert aggregated(f"d {kind}", rows, {"m": "avg(distinct d)"}, table=table, cut=False) == of_each


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("bigint", 2**63 - 1),
        ("bigint", -(2**63)),
        ("tinyint", 127),
        ("decimal(20,5)", Decimal("999999999999999.99999")),
        ("decimal(20,5)", Decimal("-999999999999999.99999")),
        ("decimal(38,38)", Decimal("0." + "9" * 38)),
        ("decimal(38,0)", Decimal("9" * 38)),
    ],
    ids=str,
)
def test_an_approximate_percentile_stays_within_its_type(kind, value):
    """It is computed in doubles, to which the greatest value of a type may be too near to the next one."""
    asked = {"one": "approx_percentile(x, 1.0)", "many": "approx_percentile(x, array(0.5))"}
    got = aggregated(f"x {kind}", [{"x": value}], asked, table=False, cut=False)
    assert got == {"one": value, "many": [value]}

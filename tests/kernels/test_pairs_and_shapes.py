"""Aggregates of pairs, of higher moments, of bits and of texts, where rows are withdrawn: nothing of them stays."""

from __future__ import annotations

import random
from fractions import Fraction

import pytest

import headrace as hr
from headrace.testing import Driver

RESULTS = {
    **{name: f"{name}(y, x)" for name in ("corr", "covar_pop", "covar_samp", "regr_count", "regr_avgx", "regr_avgy")},
    **{
        name: f"{name}(y, x)"
        for name in ("regr_sxx", "regr_syy", "regr_sxy", "regr_slope", "regr_intercept", "regr_r2")
    },
    "skewness": "skewness(x)",
    "kurtosis": "kurtosis(x)",
    "bit_and": "bit_and(n)",
    "bit_or": "bit_or(n)",
    "bit_xor": "bit_xor(n)",
    "texts": "listagg(s, '-') within group (order by n desc nulls first, id)",
    "once": "string_agg(distinct s, '/') within group (order by s desc)",
    "some": "listagg(n, '+') filter (where n > 2)",
}


def views(source, epochs):
    """Run epochs over a table or a stream, and give the view after each."""
    app = hr.App("pairs")
    schema = "id int, k string, x double, y double, n int, s string"
    rows = app.table("t", schema, key="id") if source == "table" else app.stream("t", schema)
    rows.group_by("k").agg(**RESULTS).to_view("v")
    with Driver(app, shards=2) as driver:
        for sent in epochs:
            for row in sent:
                if row.get("_deleted"):
                    driver.delete("t", id=row["id"])
                else:
                    driver.send("t", row)
            driver.step()
            yield [{name: repr(value) for name, value in row.items()} for row in driver.view("v")]


def rows(chance, numbers, *, scale):
    return [
        {
            "id": number,
            "k": chance.choice(["a", "b", None]),
            "x": chance.choice([None, chance.uniform(-1, 1) * scale, chance.randint(-3, 3) * 1.0]),
            "y": chance.choice([None, chance.gauss(0, 1), 1e9 + chance.random()]),
            "n": chance.choice([None, chance.randint(-5, 5)]),
            "s": chance.choice([None, "", "x", "é", "y"]),
        }
        for number in numbers
    ]


@pytest.mark.parametrize("scale", [1.0, 1e15])
def test_what_is_left_is_what_would_be_if_the_other_rows_had_never_been(scale):
    """To the last bit, whatever was there before, updates of rows included."""
    chance = random.Random(7)  # noqa: S311 -- test data
    stay, go = rows(chance, range(40), scale=1.0), rows(chance, range(100, 130), scale=scale)
    changed = [{**row, "x": 3.5, "n": 9, "s": "later"} for row in stay[:9]]
    gone = [{"id": row["id"], "_deleted": True} for row in go]
    *_, after = views("table", [go + stay[:20], stay[20:], changed + gone])
    (fresh,) = views("table", [[*changed, *stay[9:]]])
    assert after == fresh


def test_rows_that_only_come_give_the_same_however_they_are_cut():
    chance = random.Random(8)  # noqa: S311 -- test data
    sent = rows(chance, range(50), scale=1.0)
    *_, cut = views("stream", [sent[:1], sent[1:20], sent[20:]])
    (table,) = views("table", [sent])
    assert [row.keys() for row in cut] == [row.keys() for row in table]
    for mine, other in zip(cut, table, strict=True):
        for name in RESULTS:
            if name in ("skewness", "kurtosis"):
                assert float(mine[name]) == pytest.approx(float(other[name]), rel=1e-9)
            else:
                assert mine[name] == other[name], name


def test_a_correlation_far_from_zero_keeps_its_digits():
    """The means are a million times as large as the distances from them: naive sums of products keep no digit."""
    chance = random.Random(9)  # noqa: S311 -- test data
    pairs = [(1e9 + chance.random(), -3e8 + chance.random()) for _ in range(200)]
    sent = [{"id": i, "k": "a", "x": x, "y": y, "n": 1, "s": ""} for i, (x, y) in enumerate(pairs)]
    ((row,),) = views("table", [sent])
    xs, ys = ([Fraction(pair[i]) for pair in pairs] for i in (0, 1))
    dx, dy = ([value - sum(each) / 200 for value in each] for each in (xs, ys))
    xx, xy = sum(d * d for d in dx), sum(a * b for a, b in zip(dx, dy, strict=True))
    assert float(row["regr_slope"]) == pytest.approx(float(xy / xx), rel=1e-12)
    assert float(row["regr_sxx"]) == pytest.approx(float(xx), rel=1e-12)
    m3, m4 = (sum(d**power for d in dx) for power in (3, 4))
    assert float(row["skewness"]) == pytest.approx(float(m3) * 200**0.5 / float(xx) ** 1.5, rel=1e-9)
    assert float(row["kurtosis"]) == pytest.approx(float(200 * m4 / xx**2) - 3, rel=1e-9)

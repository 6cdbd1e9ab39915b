"""How sketches are called, and what is refused."""

from __future__ import annotations

import importlib.util

import pytest

import headrace as hr
from headrace.base.errors import InvalidPlan, PlanError
from headrace.expressions import sketches


def rows_of(*, table=False):
    app, schema = hr.App("shop"), "k string, user string, ms int, tags array<string>, at timestamp"
    if table:
        return app.table("rows", schema, key="k", event_time="at")
    return app.stream("rows", schema, event_time="at")


@pytest.mark.parametrize(
    ("text", "exact"),
    [
        ("approx_count_distinct(user)", "count(distinct user)"),
        ("approx_percentile(ms, 0.5)", "percentile(ms, …) or median(ms)"),
        ("percentile_approx(ms, 0.5, 100)", "percentile(ms, …) or median(ms)"),
        ("approx_top_k(user, 3)", '.group_by(…, "user").agg(n="count(*)") and then .group_by(…).top(3, "n")'),
    ],
)
def test_where_rows_are_withdrawn_the_exact_function_is_named(text, exact):
    """Of a table, and of a result that is corrected; of one that is final it is taken."""
    with pytest.raises(InvalidPlan, match="rows of its input are withdrawn") as refused:
        rows_of(table=True).group_by("k").agg(n=text)
    assert f"Ask for the exact answer: {exact};" in str(refused.value)
    window = hr.tumbling("1 minute", grace="0 seconds")
    counted = {"user": "max(user)", "ms": "max(ms)"}
    with pytest.raises(InvalidPlan, match="is a sketch"):
        rows_of().group_by("k").window(window).agg(**counted).group_by("k").agg(n=text)
    rows_of().group_by("k").window(window, emit="final").agg(**counted).named("one").group_by("k").agg(n=text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("approx_count_distinct()", "takes a value first"),
        ("approx_count_distinct(*)", "neither distinct nor *"),
        ("approx_count_distinct(distinct user)", "neither distinct nor *"),
        (
            "approx_count_distinct(user, 0.0001)",
            "the standard error of approx_count_distinct must be from 0.001 to 0.4",
        ),
        ("approx_count_distinct(user, ms)", "the standard error of approx_count_distinct must be a constant"),
        ("approx_count_distinct(user, 0.1, 2)", "takes at most 2 arguments, not 3"),
        ("approx_count_distinct(tags)", "takes numbers, text, booleans, dates and timestamps, not array<string>"),
        ("approx_percentile(ms)", "needs a fraction"),
        ("approx_percentile(ms, 1.5)", "the fraction of approx_percentile must be from 0 to 1, not 1.5"),
        ("approx_percentile(ms, -0.5)", "must be from 0 to 1, not -0.5"),
        ("approx_percentile(user, 0.5)", "takes a number, not string"),
        ("approx_percentile(ms, 0.5, 100000)", "the accuracy of approx_percentile must be from 1 to 20000"),
        ("approx_top_k(user, 0)", "the number of items of approx_top_k must be a whole number from 1"),
        ("approx_top_k(user, 2.5)", "a whole number"),
        ("approx_top_k(user, 100, 10)", "the number of tracked items of approx_top_k must be a whole number from 100"),
        ("approx_top_k(sum(ms))", "an aggregate cannot be inside approx_top_k"),
        ("approx_count_distinct(nobody)", 'no column "nobody"'),
    ],
)
def test_what_no_sketch_can_be_made_of_is_refused_where_it_stands(text, message):
    with pytest.raises(PlanError) as refused:
        rows_of().group_by("k").agg(n=text)
    assert message in str(refused.value)


def test_results_have_the_types_that_spark_gives_them():
    result = rows_of().group_by("k").agg(
        n="approx_count_distinct(tags[0])", p="approx_percentile(ms, 0.5)", q="approx_percentile(ms, array(0.5))",
        t="approx_top_k(ms)", half="approx_count_distinct(user) / 2",
    )  # fmt: skip
    assert [str(field.type) for field in result.node.schema][1:] == [
        "int64", "int32", "list<item: int32>", "list<item: struct<item: int32, count: int64>>", "double",
    ]  # fmt: skip


def test_without_the_package_it_says_what_to_install(monkeypatch):
    known = importlib.util.find_spec
    monkeypatch.setattr(sketches, "find_spec", lambda name: None if name == "datasketches" else known(name))
    with pytest.raises(PlanError, match="needs the package datasketches") as refused:
        rows_of().group_by("k").agg(n="approx_count_distinct(user)")
    assert "pip install datasketches" in str(refused.value)

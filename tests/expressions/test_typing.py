"""Types: what expressions have, in Spark's words, and that compiled expressions can be pickled."""

import pickle

import pytest
from adversaries import SCHEMA

from headrace.base.schema import parse, type_name
from headrace.expressions import aggregates, condition, scalar


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("b + h", "smallint"),
        ("i + l", "bigint"),
        ("i / j", "double"),
        ("i + f", "double"),
        ("m + i", "decimal(13,2)"),
        ("m + 1", "decimal(11,2)"),
        ("m * m", "decimal(21,4)"),
        ("m / m", "decimal(23,13)"),
        ("m % n", "decimal(14,6)"),
        ("m + d", "double"),
        ("s + i", "bigint"),
        ("coalesce(i, m)", "decimal(12,2)"),
        ("coalesce(s, i)", "bigint"),
        ("coalesce(null, i)", "int"),
        ("if(p, day, at)", "timestamp"),
        ("case when p then 1 else 2.5 end", "decimal(11,1)"),
        ("day - 1", "date"),
        ("day + interval 1 hour", "timestamp"),
        ("floor(m)", "decimal(9,0)"),
        ("round(m, 1)", "decimal(10,1)"),
        ("array(i, l)", "array<bigint>"),
        ("named_struct('a', i, 'b', array(s))", "struct<a:int,b:array<string>>"),
        ("1", "int"),
        ("3000000000", "bigint"),
        ("1.50", "decimal(3,2)"),
        ("1e3", "double"),
        ("5L", "bigint"),
        ("-2147483648", "int"),
        ("Pair.B", "string"),
    ],
)
def test_an_expression_has_the_type_that_spark_gives_it(text, kind):
    assert type_name(scalar(text, SCHEMA, step="typed").type) == kind


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("count(*)", "bigint"),
        ("count(distinct i, s)", "bigint"),
        ("count_if(i > 0)", "bigint"),
        ("sum(i)", "bigint"),
        ("sum(m)", "decimal(20,2)"),
        ("sum(w)", "decimal(38,10)"),
        ("sum(f)", "double"),
        ("avg(i)", "double"),
        ("mean(m)", "decimal(14,6)"),
        ("min(s)", "string"),
        ("max_by(s, at)", "string"),
        ("bool_and(p)", "boolean"),
        ("stddev(i)", "double"),
        ("collect_list(i)", "array<int>"),
        ("median(i)", "double"),
        ("percentile(m, 0.5)", "double"),
        ("percentile(i, array(0.1, 1))", "array<double>"),
        ("percentile_cont(0.25) within group (order by d desc)", "double"),
        ("percentile_disc(0.25) within group (order by i)", "double"),
        ("mode(s)", "string"),
        ("mode() within group (order by m)", "decimal(10,2)"),
        ("sum(m) / count(*)", "decimal(38,20)"),
        ("sum(i) / count(*)", "double"),
        ("round(avg(d), 2)", "double"),
    ],
)
def test_an_aggregate_has_the_type_that_spark_gives_it(text, kind):
    computed = aggregates({"x": text}, SCHEMA, parse("s string"), step="typed")
    assert type_name(computed.results[0][1].type) == kind


@pytest.mark.spark
def test_spark_agrees_on_the_types_of_aggregates(spark):
    texts = ["sum(i)", "sum(m)", "sum(w)", "sum(f)", "avg(m)", "avg(w)", "avg(i)", "min(day)", "max_by(s, at)"]
    texts += ["median(m)", "percentile(i, array(0.5))", "percentile_disc(0.5) within group (order by w)", "mode(day)"]
    texts += ["percentile_cont(0.5) within group (order by i)", "mode() within group (order by s desc)"]
    texts += ["count_if(p)", "any(p)", "stddev(m)", "var_pop(i)", "collect_set(s)", "sum(m) / count(*)", "sum(s)"]
    frame = spark.createDataFrame([], ", ".join(f"`{f.name}` {type_name(f.type)}" for f in SCHEMA))
    theirs = [field.dataType.simpleString() for field in frame.selectExpr(*texts).schema.fields]
    computed = aggregates(dict(zip(texts, texts, strict=True)), SCHEMA, parse("s string"), step="typed")
    assert [type_name(one.type) for _, one in computed.results] == theirs


def test_equal_calls_are_made_once():
    computed = aggregates(
        {"a": "sum(i) / count(*)", "b": "count(*)", "c": "SUM(I) + 1"}, SCHEMA, parse("s string"), step="x"
    )
    assert [call.function for call in computed.calls] == ["sum", "count"]
    assert [sorted(one.columns) for _, one in computed.results] == [["_a0", "_a1"], ["_a1"], ["_a0"]]


def test_a_filter_is_folded_into_the_arguments():
    computed = aggregates(
        {"a": "sum(i) filter (where p)", "b": "count(*) filter (where p)"}, SCHEMA, parse("s string"), step="x"
    )
    assert [call.arguments[0].sql for call in computed.calls] == [
        '(CASE WHEN "p" THEN "i" END)',
        '(CASE WHEN "p" THEN 1 END)',
    ]


def test_a_result_may_read_a_key_and_an_aggregate():
    computed = aggregates({"a": "upper(S) || count(*)"}, SCHEMA, parse("s string"), step="x")
    assert computed.results[0][1].columns == {"s", "_a0"}


def test_what_an_expression_becomes_can_be_pickled():
    computed = scalar("upper(s) || m", SCHEMA, step="x")
    assert pickle.loads(pickle.dumps(computed)) == computed  # noqa: S301 our own bytes
    many = aggregates({"a": "sum(m) / count(*)"}, SCHEMA, parse("s string"), step="x")
    assert pickle.loads(pickle.dumps(many)) == many  # noqa: S301 our own bytes


def test_an_expression_names_the_columns_that_it_reads():
    assert scalar("coalesce(I, pair.a) + 1", SCHEMA, step="x").columns == {"i", "pair"}
    assert condition("p and s is null", SCHEMA, step="x").columns == {"p", "s"}


def test_nested_calls_do_not_grow_without_bound():
    """What a translation uses twice is bound to a name: twenty levels of division stay short."""
    text = "d"
    for _ in range(20):
        text = f"(d / {text})"
    assert len(scalar(text, SCHEMA, step="x").sql) < 20_000

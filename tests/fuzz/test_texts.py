"""Whatever text or value a public call is given: it is taken, or refused by an error of ours, and soon."""

from __future__ import annotations

import time

import pytest
from fuzzing import SCHEMA, fault_of

import headrace as hr
from headrace.base.errors import HeadraceError, InternalError, InvalidExpression
from headrace.base.names import check_identifier, check_topic
from headrace.base.schema import parse, parse_type
from headrace.base.time import duration
from headrace.expressions import condition, scalar
from headrace.testing import Driver

EXPRESSIONS = ["1e", "1e+", "char(", "cast(name as char(", "map(null, n)", "1e400", "x ->", "\0", "'\ud800'", "9" * 400]


def seconds_of(read):
    began = time.process_time()
    read()
    return time.process_time() - began


@pytest.mark.parametrize("text", EXPRESSIONS, ids=ascii)
def test_a_text_that_is_no_expression_is_refused_by_name(text):
    with pytest.raises(HeadraceError) as error:
        scalar(text, SCHEMA, step="s")
    assert not isinstance(error.value, InternalError)


@pytest.mark.parametrize("text", ["select from select()", "from(orders.n)", "from (t)"])
def test_a_query_from_what_has_no_rows_is_refused_by_name(text):
    app = hr.App("empty")
    with pytest.raises(HeadraceError) as error:
        app.sql(text)
    assert not isinstance(error.value, InternalError)


DEEP = {
    "parentheses": lambda n: "(" * n + "n" + ")" * n,
    "calls": lambda n: "abs(" * n + "n" + ")" * n,
    "arrays": lambda n: "array(" * n + "n" + ")" * n,
    "signs": lambda n: "- " * n + "n",
    "cases": lambda n: "case when true then " * n + "n" + " end" * n,
    "types": lambda n: "cast(null as " + "array<" * n + "int" + ">" * n + ")",
    "sums": lambda n: " + ".join(["n"] * n),
    "texts": lambda n: " || ".join(["name"] * n),
}


@pytest.mark.parametrize("deep", DEEP.values(), ids=list(DEEP))
def test_a_text_that_nests_a_thousand_deep_is_refused_by_name_and_soon(deep):
    with pytest.raises(InvalidExpression, match="nests too deeply"):
        assert seconds_of(lambda: scalar(deep(1000), SCHEMA, step="s")) < 1
    with pytest.raises(InvalidExpression, match="nests too deeply"):
        scalar(deep(5000), SCHEMA, step="s")


def test_queries_schemas_and_types_that_nest_too_deeply_are_refused():
    app = hr.App("deep")
    app.stream("s", "n int")
    for read in (
        lambda: app.sql("select * from (" * 1000 + "select n from s" + ")" * 1000),
        lambda: app.sql(" union all ".join(["select n from s"] * 1000)),
        lambda: app.sql("select n from s where " + " and ".join(["n > 1"] * 1000)),
        lambda: parse("a " + "struct<a:" * 1000 + "int" + ">" * 1000),
        lambda: parse_type("array<" * 1000 + "int" + ">" * 1000),
    ):
        with pytest.raises(HeadraceError) as error:
            read()
        assert not isinstance(error.value, InternalError)


@pytest.mark.parametrize(("part", "between"), [("n", " + "), ("name", " || "), ("n > 1", " and ")])
def test_a_long_chain_is_read_in_linear_time(part, between):
    """It was quadratic: each level wrote all levels below it for an error that nobody saw."""
    read = condition if between == " and " else scalar

    def least(count):
        text = between.join([part] * count)
        return min(seconds_of(lambda: read(text, SCHEMA, step="s")) for _ in range(3))

    assert least(280) < 8 * least(70) + 0.05
    assert least(280) < 1


def test_a_long_chain_is_computed():
    app = hr.App("long")
    app.stream("s", "n bigint").select(x=" + ".join(["n"] * 250)).to_view("out")
    with Driver(app) as driver:
        driver.send("s", {"n": 2})
        driver.run()
        assert driver.view("out") == [{"x": 500}]


@pytest.mark.parametrize("text", ["1" * 5000 + " s", "9" * 40 + " weeks", "inf s", "²s", "", "1 second second"])
def test_a_duration_that_is_none_or_endless_is_refused(text):
    with pytest.raises(HeadraceError):
        duration(text)


NAMES = [
    *("..", ".", "../x", "a/b", "/a", "a\\b", "a\0b", "", " ", "a\n", "\xe9", "e\u0301", "\u212a", "\uff41", ".hidden"),
    *("-a", "~", None, 3, b"a", [], object(), "a" * 201, "\ud800", "a\u202eb"),
]


@pytest.mark.parametrize("name", NAMES, ids=range(len(NAMES)))
def test_no_name_leaves_its_folder(name, tmp_path):
    """Names become folders: they are letters, digits and a few signs, of ASCII alone."""
    with pytest.raises(HeadraceError):
        check_topic(name)
    with pytest.raises(HeadraceError):
        check_identifier(name, what="step")
    app, log = hr.App("names", storage=tmp_path / "s"), hr.Log(tmp_path / "log")
    rows = app.stream("t", "k string")
    for name_it in (
        lambda: hr.App(name),
        lambda: app.stream(name, "k string"),
        lambda: rows.to_topic(name),
        lambda: rows.to_view(name),
        lambda: rows.group_by("k").agg(n="count(*)").named(name),
        lambda: log.create_topic(name, "k string"),
        lambda: log.topic(name),
    ):
        with pytest.raises(HeadraceError):
            name_it()
    log.close()
    assert {path.name for path in tmp_path.iterdir()} <= {"log"}


@pytest.mark.parametrize("value", [3, 2.5, object()], ids=["int", "float", "object"])
def test_what_is_no_column_and_no_folder_is_refused_by_name(value):
    app = hr.App("values")
    for call in (
        lambda: hr.App("a", storage=value),
        lambda: app.stream("s", "k int", key=value),
        lambda: app.stream("s", "k string", private=value),
        lambda: app.table("u", "k int", key=value),
        lambda: app.stream("s", "k int").to_topic("out", key=value),
    ):
        with pytest.raises(HeadraceError):
            call()


SEEDS = range(0, 300, 20)


@pytest.mark.parametrize("first", SEEDS)
def test_mutated_texts_are_taken_or_refused_by_name(first):
    """`make prove` tries 15 000 more: scripts/fuzz_texts.py."""
    assert [fault for place in range(20) if (fault := fault_of(f"suite.{first + place}"))] == []

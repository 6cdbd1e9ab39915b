"""`app.function`: what may be declared, and how its calls are typed; everything else is refused at its line."""

from __future__ import annotations

import operator
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import headrace as hr
from headrace.base.errors import HeadraceError, InvalidFunction, InvalidName

ROWS = "k string, v int, d decimal(10,2), at timestamp"


class _Total:
    """A sum that cannot be taken back."""

    state = "total bigint"

    def init(self, count):
        return {"total": [0] * count}

    def add(self, groups, values):
        rows = pa.table({"g": groups, "v": values}).group_by("g", use_threads=False)
        return {"total": rows.aggregate([("v", "sum")])["v_sum"]}

    def merge(self, left, right):
        return {"total": pc.add(left["total"], right["total"])}

    def result(self, states):
        return states["total"]


class _Balance(_Total):
    """A sum that can."""

    def remove(self, left, right):
        return {"total": pc.subtract(left["total"], right["total"])}


def app_with(name="mine", fn=pc.negate, returns="int", **options):
    app = hr.App("shop")
    app.function(name, fn, returns=returns, **options)
    return app


def rows_of(app):
    return app.stream("orders", ROWS, event_time="at")


def message(error):
    return str(error.value)


# ---- what is declared ----


def test_a_function_has_the_type_that_was_declared():
    app = app_with("parts", pc.utf8_split_whitespace, "array<string>", takes="string")
    result = rows_of(app).select(p="parts(k)", first="parts(k)[0]", q="PARTS(v)")
    assert [str(kind) for kind in result.schema.types] == ["list<item: string>", "string", "list<item: string>"]


@pytest.mark.parametrize("fn", [pc.negate, partial(pc.add, 1), operator.neg, lambda x, _=None: x, print])
def test_anything_that_can_be_called_with_arrays_will_do(fn):
    assert rows_of(app_with(fn=fn)).select(x="mine(v)").columns == ["x"]


def test_arguments_are_cast_to_what_a_function_takes():
    result = rows_of(app_with(fn=pc.add, returns="double", takes="double, decimal(12, 2)"))
    assert result.select(x="mine(v, '1.5')").columns == ["x"]
    assert result.select(x="mine(null, d)").columns == ["x"]


TAKEN = {
    "a function of ours": ("upper", "Expressions have a function of this name", 'Call it "my_upper".'),
    "in any case": ("Upper", "Expressions have a function of this name", ""),
    "an aggregate of ours": ("sum", "Expressions have a function of this name", ""),
    "one of Spark's": ("xpath_string", "Spark has a function of this name", ""),
    "one that is random": ("rand", "Spark has a function of this name", ""),
    "a word": ("case", "It is a word of SQL.", 'Call it "my_case".'),
    "a type": ("interval", "It is a word of SQL.", ""),
}


@pytest.mark.parametrize(("name", "why", "hint"), TAKEN.values(), ids=list(TAKEN))
def test_a_name_hides_nothing(name, why, hint):
    with pytest.raises(InvalidFunction) as error:
        app_with(name)
    assert message(error).startswith(f'[INVALID_FUNCTION] "{name}" cannot be the name of a function of yours')
    assert why in message(error)
    assert hint in message(error)


def test_a_name_is_declared_once():
    app = app_with()
    with pytest.raises(InvalidFunction, match='the app has a function "MINE" already'):
        app.function("MINE", pc.negate, returns="int")
    with pytest.raises(InvalidName, match="of a function"):
        app.function("a-b", pc.negate, returns="int")


def without(method):
    """An aggregate that lacks something."""
    return type("Lacking", (_Total,), {method: None})


WRONG = {
    "no function": ({"fn": 3}, '"mine" is given 3, which is no function', "no init, no add, no merge, no result"),
    "a class": ({"fn": int}, "which is no function", "an object with state, init, add, merge and result"),
    "no arguments": ({"fn": lambda: None}, "takes no argument", "the result has its length"),
    "a keyword": ({"fn": lambda x, *, how: x}, "needs how as a keyword", ""),  # noqa: ARG005
    "a type": ({"returns": "strin"}, 'unknown type "strin"', 'Did you mean "string"?'),
    "no type": ({"returns": int}, "is no type", "DDL text"),
    "a type that it takes": ({"takes": "strin"}, 'unknown type "strin"', ""),
    "too many types": ({"fn": lambda x: x, "takes": "int, int"}, 'takes of "mine" has 2 type(s)', "1 to 1"),
    "no init": ({"fn": without("init")}, 'the aggregate "mine" has no method init', "init(count), add(groups, …)"),
    "no result": ({"fn": without("result")}, 'the aggregate "mine" has no method result', ""),
    "no state": ({"fn": without("state")}, "does not say what its state is", 'state = "n bigint, total double"'),
    "a wrong merge": (
        {"fn": type("Wrong", (_Total,), {"merge": lambda _, one: one})},
        'merge of the aggregate "mine" cannot be called with 2 argument(s)',
        "",
    ),
    "add of nothing": ({"fn": type("Wrong", (_Total,), {"add": lambda _, groups: groups})}, "takes no argument", ""),
    "an aggregate that draws": ({"fn": _Total, "deterministic": False}, "must be deterministic", "computed again"),
    "a class with arguments": (
        {"fn": type("Wrong", (_Total,), {"__init__": lambda _, __: None})},
        'the aggregate "mine" cannot be created',
        "Give an object: Wrong(…).",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("given", "what", "more"), WRONG.values(), ids=list(WRONG))
def test_what_cannot_be_a_function_is_refused(given, what, more):
    with pytest.raises(HeadraceError) as error:
        app_with(**given)
    assert what in message(error)
    assert more in message(error)


# ---- what is called ----

CALLS = {
    "too few": ("mine()", {"fn": lambda x, y=None: x}, "mine takes 1 to 2 arguments, not 0"),  # noqa: ARG005
    "too many": ("mine(v, v)", {"fn": lambda x: x}, "mine takes 1 argument, not 2"),
    "a type": ("mine(array(v))", {"takes": "int"}, "mine does not take (array<int>)"),
    "null": ("mine(null)", {}, "mine cannot be given null of type void"),
    "an interval": ("mine(interval 1 day)", {}, "of type interval day"),
    "distinct": ("mine(distinct v)", {}, ""),
    "a misspelt name": ("mines(v)", {}, 'Did you mean "mine"?'),
    "of another app": ("other(v)", {}, "app.function(name, fn, returns=…)"),
    "in a lambda": ("transform(array(v), x -> mine(x))", {}, "mine is a function of yours, which cannot be inside"),
    "a lambda": ("mine(x -> x)", {}, "not supported (Lambda)"),
    "an aggregate in a row": ("mine(v)", {"fn": _Total}, "mine is an aggregate"),
}


@pytest.mark.parametrize(("text", "options", "what"), CALLS.values(), ids=list(CALLS))
def test_a_call_that_cannot_be_is_refused_where_it_stands(text, options, what):
    rows = rows_of(app_with(**options))
    with pytest.raises(HeadraceError) as error:
        rows.select(x=text)
    assert 'step "orders_select"' in message(error)
    assert what in message(error)


GROUPED = {
    "distinct": ("mine(distinct v)", "mine does not take distinct"),
    "an aggregate in it": ("mine(sum(v))", "an aggregate cannot be inside mine"),
    "it in an aggregate": ("sum(mine(v))", "an aggregate cannot be inside sum"),
    "no key": ("mine(v) + v", '"v" is outside of an aggregate'),
    "the number of arguments": ("mine(v, v)", "mine takes 1 argument, not 2"),
    "a filter": ("mine(v) filter (where k)", "the filter is string, not boolean"),
}


@pytest.mark.parametrize(("text", "what"), GROUPED.values(), ids=list(GROUPED))
def test_an_aggregate_that_cannot_be_is_refused(text, what):
    rows = rows_of(app_with(fn=_Total, returns="bigint"))
    with pytest.raises(HeadraceError) as error:
        rows.group_by("k").agg(x=text)
    assert what in message(error)


def test_rows_that_are_withdrawn_need_remove():
    app = app_with(fn=_Total, returns="bigint")
    table = rows_of(app).group_by("k").agg(n="count(*)", v="sum(v)")
    with pytest.raises(HeadraceError) as error:
        table.group_by("n").agg(x="mine(v)")
    assert "mine cannot take rows away, and rows of its input are withdrawn" in message(error)
    assert "Give mine a method remove(left, right)" in message(error)
    final = rows_of(app).group_by("k").window(hr.tumbling("1 s", grace="0 s"), emit="final").agg(v="sum(v)")
    assert final.group_by("k").agg(x="mine(v)").named("whole").columns == ["k", "x"]
    app.function("balance", _Balance(), returns="bigint")
    assert table.group_by("n").agg(x="balance(v)").columns == ["n", "x"]


def test_what_is_not_the_same_each_time_stays_where_nothing_is_withdrawn():
    app = app_with("draw", pc.negate, "int", deterministic=False)
    rows = rows_of(app)
    assert rows.with_columns(x="draw(v)").group_by(y="draw(v)").agg(n="max(draw(v))").columns == ["y", "n"]
    table = rows.group_by("k").agg(v="max(v)")
    verbs = [
        lambda: table.with_columns(x="draw(v)"),
        lambda: table.where("draw(v) > 0"),
        lambda: table.group_by("v").agg(n="count(draw(v))"),
        lambda: rows.group_by("k").agg(x="draw(max(v))"),
    ]
    for verb in verbs:
        with pytest.raises(HeadraceError, match="draw is not deterministic, and rows of this step are withdrawn"):
            verb()
    with pytest.raises(HeadraceError, match="each branch computes the conditions again"):
        rows.branch(some="draw(v) > 0")
    final = rows.group_by("k").window(hr.tumbling("1 s", grace="0 s"), emit="final")
    assert final.agg(x="draw(max(v))").columns[-1] == "x"

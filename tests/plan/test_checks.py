"""What is refused when a step is declared: each rule of `plan/check.py` with its condition, and what the hint says."""

from __future__ import annotations

import inspect
from types import SimpleNamespace

import pyarrow as pa
import pytest

import headrace as hr
from headrace.base.errors import HeadraceError
from headrace.base.schema import parse
from headrace.expressions import aggregates, scalar
from headrace.expressions.user import UserFunction
from headrace.plan import check

SCHEMA = parse("id int, user string, amount double, tags array<string>, counts map<string,int>, at timestamp")
BOUNDS = parse("window_start timestamp, window_end timestamp")
DICE = UserFunction(
    name="dice", function=len, returns=pa.int32(), takes=None, least=0, most=0, deterministic=False, version=None
)
TOTAL = UserFunction(
    name="total",
    function=SimpleNamespace(),
    returns=pa.int32(),
    takes=None,
    least=1,
    most=1,
    deterministic=True,
    version=None,
    state=pa.schema([("n", pa.int32())]),
)


def drawn():
    return scalar("dice() + id", SCHEMA, step="s", functions={"dice": DICE})


def summed(text, **functions):
    return aggregates({"x": text}, SCHEMA, BOUNDS, step="s", functions=functions)


SESSION = hr.session("1 hour", grace="0 seconds")
REFUSED = {  # by rule: what it is given, the condition, and what the hint says
    "has_column": [(lambda: check.has_column("usr", SCHEMA, step="s"), "UNKNOWN_COLUMN", '"user"')],
    "named": [(lambda: check.named("id + 1", SCHEMA, step="s", verb="select"), "INVALID_EXPRESSION", "AS x")],
    "columns": [
        (lambda: check.columns(["id", "uid"], SCHEMA, step="s"), "UNKNOWN_COLUMN", '"id"'),
        (lambda: check.columns(["id", "id"], SCHEMA, step="s"), "INVALID_PLAN", "another name"),
    ],
    "event_time": [(lambda: check.event_time("user", SCHEMA, step="s"), "WRONG_TYPE", "timestamp")],
    "sent_time": [
        (lambda: check.sent_time("at", None, SCHEMA, step="s"), "INVALID_PLAN", "event_time="),
        (lambda: check.sent_time("user", "at", SCHEMA, step="s"), "WRONG_TYPE", "timestamp"),
    ],
    "groupable": [(lambda: check.groupable(["counts"], SCHEMA, step="s"), "WRONG_TYPE", "anything but a map")],
    "reserved_keys": [(lambda: check.reserved_keys(["_a0"], step="s"), "INVALID_PLAN", "group_by(")],
    "bounds": [
        (
            lambda: check.bounds(summed("max(at) < window_end"), ["user"], step="s"),
            "INVALID_PLAN",
            "Compute it from the result",
        )
    ],
    "private": [
        (lambda: check.private(["id"], SCHEMA, step="s"), "WRONG_TYPE", "string or binary"),
        (lambda: check.private({"user": "uid"}, SCHEMA, step="s"), "UNKNOWN_COLUMN", '"id"'),
    ],
    "not_sealed": [(lambda: check.not_sealed(["user"], {"user"}, step="s", role="a key"), "SEALED_COLUMN", "subject")],
    "no_sealed_input": [(lambda: check.no_sealed_input({"user"}, step="s", what="f"), "SEALED_COLUMN", "drop('user')")],
    "no_repeats": [
        (lambda: check.no_repeats(["a", "a"], step="s"), "INVALID_PLAN", "another name"),
        (lambda: check.no_repeats(["a", "A"], step="s"), "INVALID_PLAN", "another name"),
        (lambda: check.no_repeats(["_time"], step="s"), "INVALID_PLAN", ""),
    ],
    "require_deterministic": [
        (lambda: check.require_deterministic(drawn(), step="s", withdrawn=True), "NONDETERMINISTIC", "before the table")
    ],
    "branch_conditions": [(lambda: check.branch_conditions([drawn()], step="s"), "NONDETERMINISTIC", "with_columns")],
    "aggregation": [
        (
            lambda: check.aggregation(summed("total(id)", total=TOTAL), step="s", withdrawn=True, corrected=False),
            "INVALID_PLAN",
            "remove",
        ),
        (
            lambda: check.aggregation(summed("approx_count_distinct(id)"), step="s", withdrawn=True, corrected=False),
            "INVALID_PLAN",
            "count(distinct",
        ),
    ],
    "sessions": [(lambda: check.sessions(SESSION, step="s", withdrawn=True), "INVALID_PLAN", ".changes()")],
    "row_times": [
        (lambda: check.row_times(SESSION, SimpleNamespace(time_column=None), step="s"), "INVALID_PLAN", "event_time=")
    ],
    "ranked_window": [(lambda: check.ranked_window(SESSION, step="s"), "INVALID_PLAN", "aggregate first")],
}


def rules():
    """Return the names of the rules: the public functions of the file."""
    return {
        name
        for name, rule in inspect.getmembers(check, inspect.isfunction)
        if rule.__module__ == check.__name__ and not name.startswith("_")
    }


def test_every_rule_has_a_case_here():
    assert rules() - set(REFUSED) == set()


@pytest.mark.parametrize(
    ("ask", "condition", "hint"),
    [case for cases in REFUSED.values() for case in cases],
    ids=[f"{rule}-{i}" for rule, cases in REFUSED.items() for i in range(len(cases))],
)
def test_a_rule_refuses_with_its_condition_and_a_way_on(ask, condition, hint):
    with pytest.raises(HeadraceError) as error:
        ask()
    assert error.value.condition == condition
    assert hint in str(error.value).partition("\n")[2]


def test_what_is_allowed_comes_back():
    assert check.has_column("id", SCHEMA, step="s") == "id"
    assert check.columns(None, SCHEMA, step="s") == ()
    assert check.columns("id", SCHEMA, step="s") == ("id",)
    assert check.event_time(None, SCHEMA, step="s") is None
    assert check.private({"user": "id"}, SCHEMA, step="s") == (("user", "id"),)
    assert check.ranked_window(None, step="s") is None
    check.require_deterministic(drawn(), step="s", withdrawn=False)
    check.sessions(SESSION, step="s", withdrawn=False)
    check.row_times(None, SimpleNamespace(time_column=None), step="s")

"""Columns may be called as the kernels call their own; the few names that cannot be are refused where they are said."""

from __future__ import annotations

import pytest

import headrace as hr
from budget import matrix
from headrace.base.errors import InvalidPlan, InvalidSchema
from headrace.testing import Driver

KEYS = [
    "k0",
    "r0",
    "q0",
    "p0",
    "o_n",
    "o_row",
    "came",
    "_n",
    "_pane",
    "_last",
    "_first",
    "h_n",
    "s",
    "w",
    "g",
    "v0",
    "_all",
]
RESULTS = {
    "_a0": "count(*)",
    "_a1": "sum(x)",
    "_window": "round(avg(x), 6) + count(*)",
    "k1": "max(x)",
    "p1": "sort_array(collect_list(_upto))",
    "_result0": "median(d)",
    "r1": "stddev(x)",
}
WINDOWS = {
    "none": None,
    "tumbling": hr.tumbling("5 minutes", grace="1 day"),
    "hopping": hr.hopping("10 minutes", "5 minutes", grace="1 day"),
    "session": hr.session("5 minutes", grace="1 day"),
}


def outcome(keys, results, window, emit, *, table, simple):
    """The rows of an aggregate over such names, without the names."""
    app = hr.App("names")
    schema = ", ".join([*(f"`{key}` string" for key in keys), "id int, x double, d double, _upto int, at timestamp"])
    source = app.table("t", schema, key="id", event_time="at") if table else app.stream("t", schema, event_time="at")
    grouped = source.group_by(*keys)
    if window is not None:
        grouped = grouped.window(window, emit=emit)
    made = dict(list(results.items())[: 2 if simple else None])
    first = grouped.agg(**made)
    first.to_view("out")
    first.group_by(keys[0]).agg(n="count(*)").named("again").to_view("again")
    with Driver(app) as driver:
        for i, value in enumerate(["a", "b", "a", None, "a"]):
            at = f"2026-01-01T10:0{2 * i}:00Z"
            driver.send("t", {**dict.fromkeys(keys, value), "id": i % 4, "x": i / 2, "d": i, "_upto": i, "at": at})
            driver.step()
        driver.finish()
        return [*(list(row.values()) for row in driver.view("out")), [row["n"] for row in driver.view("again")]]


@pytest.mark.parametrize(
    ("window", "table", "simple"),
    matrix(
        WINDOWS, (False, True), (True, False), depth=1, without=lambda window, table, _: table and window == "session"
    ),
)
def test_names_of_the_kernels_are_names_like_any_others(window, table, simple):
    emit = "final" if simple and window != "none" else "changes"
    plain = [f"key_{i}" for i in range(len(KEYS))]
    named = {f"out_{i}": text for i, text in enumerate(RESULTS.values())}
    made = [
        outcome(*names, WINDOWS[window], emit, table=table, simple=simple)
        for names in ((KEYS, RESULTS), (plain, named))
    ]
    assert made[0] == made[1]
    assert len(made[0]) > 2


@pytest.mark.parametrize("name", ["_a0", "_A12", "_window", "_window_last", "_result3"])
def test_a_key_that_stands_beside_what_is_called_so_is_refused(name):
    stream = hr.App("names").stream("t", f"`{name}` string, v int")
    with pytest.raises(InvalidPlan, match=rf'groups by "{name}", a name that Headrace uses inside(?s:.*)="{name}"'):
        stream.group_by(name).agg(n="count(*)")
    assert stream.group_by(other=name).agg(n="count(*)").key == ("other",)


@pytest.mark.parametrize("name", ["_weight", "_time", "_headrace_sum0", "_Headrace_chunk"])
def test_a_column_of_headraces_own_is_refused(name):
    stream = hr.App("names").stream("t", "k string, v int")
    for verb in (
        lambda: hr.App("names").stream("t", f"`{name}` string"),
        lambda: stream.with_columns(**{name: "v"}),
        lambda: stream.group_by(**{name: "v"}),
        lambda: stream.group_by("k").agg(**{name: "count(*)"}),
        lambda: stream.group_by("k").top(1, "v", rank=name),
    ):
        with pytest.raises((InvalidPlan, InvalidSchema), match=r"Headrace uses itself|is reserved for Headrace"):
            verb()

"""`over`: what is refused, what stays bounded, crashes, fills, and what may follow."""

from __future__ import annotations

from types import SimpleNamespace

import disturbed
import pytest

import headrace as hr
from headrace.base.errors import InvalidPlan, InvalidTime, UnsupportedFunction
from headrace.dsl.stream_table import Stream, Table
from headrace.testing import Driver

SCHEMA = "k string, v int, at timestamp"


def row(k, v, second):
    return {"k": k, "v": v, "at": second * 1000}


def test_the_average_of_the_last_ten_is_a_stream():
    """Nexmark's q6: of each seller the average of the last ten prices, and the last row by seller as a table."""
    app = hr.App("q6", shards=2)
    closed = app.stream("closed", SCHEMA, event_time="at")
    means = closed.group_by("k").over(rows=10).agg(mean="avg(v)")
    assert isinstance(means, Stream)
    means.latest("k").select("k", "mean").to_view("means")
    with Driver(app, shards=2) as driver:
        driver.send("closed", *(row("ab"[n % 2], n, n) for n in range(40)))
        driver.finish()
        assert driver.view("means") == [{"k": "a", "mean": 29.0}, {"k": "b", "mean": 30.0}]


def test_of_final_rows_no_more_is_kept_than_later_ones_need():
    app = hr.App("bounded", shards=1)
    rows = app.stream("t", SCHEMA, event_time="at")
    rows.group_by("k").over(rows=4).agg(s="sum(v)").named("rows").to_view("rows")
    rows.group_by("k").over().agg(s="sum(v)").named("every").to_view("every")
    rows.group_by("k").over(range="5 seconds").agg(s="sum(v)").named("range").to_view("range")
    with Driver(app, shards=1) as driver:
        for start in range(0, 100, 20):
            driver.send("t", *(row("ab"[n % 2], 1, n) for n in range(start, start + 20)))
            driver.run()
        kept = {step: driver.counts(step)["state_rows"] for step in ("rows", "every", "range")}
        assert kept == {"rows": 1 + 2 * 3, "every": 1 + 2, "range": 1 + 5}
        assert driver.view("every")[-1]["s"] == 49


def app_of(emit):
    app = hr.App("crashing", shards=2)
    over = app.stream("t", SCHEMA, event_time="at", out_of_order="9 seconds").group_by("k")
    over.over(rows=3, emit=emit).agg(s="sum(v)", nr="row_number()", before="lag(v)").named("over").to_view("over")
    return app


@pytest.mark.parametrize(
    ("emit", "point"), disturbed.windowed_points("after_staging", "after_commit", without=disturbed.TOPICS)
)
def test_a_crash_leaves_no_trace(emit, point):
    """A run with crashes gives what one without gives."""
    epochs = disturbed.disorder(lambda k, second, v: row(k, v, max(second, 0)))
    seen = [
        disturbed.played(app_of(emit), epochs, step, lambda driver: driver.view("over"))
        for step in (disturbed.quietly, disturbed.crashing(point, (1, 3)))
    ]
    assert seen[0] == seen[1] != []


def test_a_step_below_a_table_is_filled_from_all_its_rows(tmp_path):
    def app_with(*, more):
        app = hr.App("fills", shards=2)
        table = app.table("t", SCHEMA, key="k", event_time="at")
        over = table.group_by().over(emit="changes").agg(s="sum(v)", after="lead(k)").named("over")
        over.to_view("over")
        if more:
            over.agg(most="max(s)").named("most").to_view("most")
        return app

    with Driver(app_with(more=False), storage=tmp_path) as driver:
        driver.send("t", row("a", 1, 1), row("b", 2, 2), row("c", 4, 3))
        driver.run()
        driver.send("t", row("a", 1, 9))
        driver.run()
        assert [(each["k"], each["s"], each["after"]) for each in driver.view("over")] == [
            ("a", 7, None),
            ("b", 2, "c"),
            ("c", 6, "a"),
        ]
    with Driver(app_with(more=True), storage=tmp_path) as driver:
        driver.run()
        assert driver.view("most") == [{"most": 7}]


def test_a_private_value_is_passed_on_and_not_computed_with():
    app = hr.App("private")
    people = app.stream("people", "id int, mail string, at timestamp", event_time="at", private={"mail": "id"})
    over = people.group_by("id").over().agg(n="count(*)")
    assert over.node.sealed == {"mail"}


REFUSED = {
    "a final table": (lambda on: on.table.group_by("k").over(), InvalidPlan, 'emit="changes"'),
    "two frames": (lambda on: on.stream.group_by("k").over(rows=1, range="1 hour"), InvalidPlan, "Call over twice"),
    "no rows": (lambda on: on.stream.group_by("k").over(rows=0), InvalidPlan, "rows=(10, 1)"),
    "rows that follow": (lambda on: on.stream.group_by("k").over(rows=(1, 2)), InvalidPlan, "no frame"),
    "a text": (lambda on: on.stream.group_by("k").over(rows="3"), InvalidPlan, "no frame"),
    "no duration": (lambda on: on.stream.group_by("k").over(range="soon"), InvalidTime, "soon"),
    "below zero": (lambda on: on.stream.group_by("k").over(range="-1 hour"), InvalidPlan, "below zero"),
    "another emit": (lambda on: on.stream.group_by("k").over(emit="late"), InvalidPlan, "final"),
    "nothing": (lambda on: on.stream.group_by("k").over().agg(), InvalidPlan, "computes nothing"),
    "a list": (lambda on: on.stream.group_by("k").over().agg(x="collect_list(v)"), UnsupportedFunction, "hr.sliding"),
    "distinct": (lambda on: on.stream.group_by("k").over().agg(x="count(distinct v)"), UnsupportedFunction, "distinct"),
    "a final lead": (lambda on: on.stream.group_by("k").over().agg(x="lead(v)"), InvalidPlan, "wait for ever"),
    "a name": (lambda on: on.stream.group_by("k").over().agg(v="sum(v)"), InvalidPlan, "twice"),
    "an offset": (lambda on: on.stream.group_by("k").over().agg(x="lag(v, -1)"), hr.HeadraceError, "lead"),
    "a default": (lambda on: on.stream.group_by("k").over().agg(x="lag(v, 1, array(1))"), hr.HeadraceError, "default"),
    "a place without order": (lambda on: on.stream.group_by("k").agg(x="lag(v)"), UnsupportedFunction, "over"),
    "times that are gone": (
        lambda on: on.table.drop("at").group_by("k").over(emit="changes"),
        InvalidPlan,
        "in which order they happened",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_makes_no_sense_is_refused(case):
    verb, error, message = REFUSED[case]
    app = hr.App("a")
    on = SimpleNamespace(
        stream=app.stream("s", SCHEMA, event_time="at"), table=app.table("t", SCHEMA, key="k", event_time="at")
    )
    with pytest.raises(error) as raised:
        verb(on)
    assert message in str(raised.value)


def test_results_that_are_corrected_are_a_table():
    rows = hr.App("a").stream("s", SCHEMA, event_time="at")
    table = rows.group_by("k").over(emit="changes").agg(n="row_number()")
    assert isinstance(table, Table)
    assert table.key is None

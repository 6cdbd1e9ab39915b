"""A changed program over a table: its rows are withdrawn by the time, and as the changes, that they came with."""

from __future__ import annotations

import pytest

import headrace as hr
from headrace.base.errors import PlanChanged
from headrace.testing import Driver

HOUR = hr.tumbling("1 hour", grace="1 day")
SIGNED = "sum(case when _change_type in ('insert', 'update_postimage') then v else -v end)"


def row(number, at, bt):
    return {"id": number, "u": "a", "v": 10**number, "at": f"2026-01-01 {at}:00:00", "bt": f"2026-01-01 {bt}:00:00"}


FIRST, SECOND = [row(0, 10, 19), row(1, 11, 18), row(2, 11, 11)], [row(3, 14, 16)]
GONE = row(1, 11, 18) | {"_deleted": True}


def app(build, time="at"):
    app = hr.App("times")
    columns = "id int, u string, v int, at timestamp, bt timestamp"
    build(app.table("t", columns, key="id", event_time=time, out_of_order="1 day"))
    return app


def play(app, storage, *rows):
    with Driver(app, storage=storage, shards=2) as driver:
        for each in rows:
            driver.send("t", each)
        driver.run()
        return sorted(tuple(sorted(map(str, each.items()))) for each in driver.view("v"))


BY_TIME = {
    "rows before a row": lambda t: t.group_by("u").over(emit="changes").agg(n="sum(v)").to_view("v"),
    "windows": lambda t: t.group_by("u").window(HOUR).agg(n="sum(v)", a="max(at)", b="max(bt)").to_view("v"),
    "tops of windows": lambda t: t.group_by("u").window(HOUR).top(1, "v").to_view("v"),
}


@pytest.mark.parametrize("build", BY_TIME.values(), ids=BY_TIME)
def test_another_event_time_of_a_table_leaves_no_row_where_the_old_one_put_it(tmp_path, build):
    """It was looked for by the new time, and not found: the row that was deleted stayed in the view."""
    play(app(build), tmp_path / "changed", *FIRST)
    changed = play(app(build, "bt"), tmp_path / "changed", *SECOND, GONE)
    assert changed == play(app(build, "bt"), tmp_path / "right", *FIRST, *SECOND, GONE)


def balance(where, name):
    def build(t):
        changes = (t.where(where) if where else t).changes()
        if name:
            changes.group_by("u").agg(n=SIGNED).named("balance").to_view(name)
        else:
            changes.to_topic("out")

    return app(build)


def test_what_is_summed_of_changes_is_so_of_the_same_rows(tmp_path):
    play(balance("v > 50", "v"), tmp_path, *FIRST)
    assert play(balance(None, "v"), tmp_path, *SECOND, GONE) == [("('n', 1101)", "('u', 'a')")]


def test_a_topic_of_changes_gets_no_delete_of_a_row_that_it_was_never_given(tmp_path):
    with Driver(balance("v > 50", None), storage=tmp_path) as driver:
        driver.send("t", *FIRST)
        driver.run()
    with pytest.raises(PlanChanged, match='the topic "out" has rows of another input'):
        Driver(balance(None, None), storage=tmp_path)


def test_a_condition_below_the_changes_and_a_column_more_above_them_pass(tmp_path):
    def build(more):
        def build(t):
            changes = (t.with_columns(more="v + 1") if more else t).changes()
            (changes.where("v > 50") if more else changes).select("id", "v").to_topic("out")

        return app(build)

    with Driver(build(more=False), storage=tmp_path) as driver:
        driver.send("t", *FIRST)
        driver.run()
    with Driver(build(more=True), storage=tmp_path) as driver:
        assert [entry.outcome for entry in driver.changes.changed] == ["passes"]

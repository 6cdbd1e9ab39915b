"""What the plan knows of the rows of a step without running anything: level, key, not null, time.

Tables of words and what follows from them; the words are those of `rows` (a stream) and `people` (a table).
"""

from __future__ import annotations

import pytest

import headrace as hr
from headrace.plan.nodes import ROW_TIME

ORDERS = "id int, user string, city string, amount int, at timestamp, tags array<string>"
MINUTE = hr.tumbling("1 minute", grace="5 seconds")


def sources():
    app = hr.App("shop")
    rows = app.stream("orders", ORDERS, event_time="at")
    people = app.table("people", "id string, city string, born timestamp", key="id", event_time="born")
    return app, rows, people


def step(words):
    """Return the last step that the words make, and the plan that it is in."""
    app, rows, people = sources()
    words(rows, people).named("last").to_view("v")
    plan = app.plan()
    return next(node for node in plan.nodes if plan.name(node) == "last"), plan


def totals(rows, *keys):
    return rows.group_by(*keys).agg(n="count(*)", most="max(amount)")


LEVELS = {
    "a stream": (lambda s, _: s, 0, False),
    "stateless steps": (lambda s, _: s.where("id > 1").select("id").union(s.select("id")), 0, False),
    "a table": (lambda _, t: t, 1, True),
    "a group": (lambda s, _: totals(s, "user"), 1, True),
    "all rows as one group": (lambda s, _: totals(s), 1, True),
    "a group of groups": (lambda s, _: totals(s, "user", "city").group_by("city").agg(n="sum(n)"), 2, True),
    "a finer group below a coarser one": (
        lambda s, _: totals(s, "user").group_by("user", "n").agg(k="count(*)"),
        1,
        False,
    ),
    "a group by a renamed key": (
        lambda s, _: totals(s, "user").select(who="user", n="n").group_by("who").agg(k="count(*)"),
        1,
        False,
    ),
    "a group by a computed key": (
        lambda s, _: totals(s, "user").select(who="upper(user)").group_by("who").agg(k="count(*)"),
        2,
        True,
    ),
    "a group below a function": (
        lambda s, _: totals(s, "user").changes().map_batches(len, "user string").group_by("user").agg(k="count(*)"),
        2,
        True,
    ),
    "a group below its changes": (
        lambda s, _: totals(s, "user").changes().group_by("user").agg(k="count(*)"),
        1,
        False,
    ),
    "dedupe by more than the group": (lambda s, _: s.dedupe("user", "id", within="1 hour"), 1, True),
    "late rows of windows": (lambda s, _: s.group_by("user").window(MINUTE).agg(n="count(*)").late, 0, False),
    "late rows of sessions": (
        lambda s, _: s.group_by("user").window(hr.session("1 hour", grace="0 seconds")).agg(n="count(*)").late,
        1,
        False,
    ),
    "a table with a table by their keys": (lambda s, t: totals(s, "user").join(t, on={"user": "id"}), 1, False),
    "a stream with a table": (lambda s, t: s.join(t, on={"user": "id"}, how="left"), 1, True),
    "the first rows of all, in one shard": (
        lambda s, _: totals(s, "user").group_by().top(3, by="n", rank="place"),
        2,
        True,
    ),
}


@pytest.mark.parametrize(("words", "level", "exchange"), LEVELS.values(), ids=LEVELS)
def test_an_exchange_is_where_rows_that_belong_together_may_be_apart(words, level, exchange):
    node, plan = step(words)
    assert (plan.level(node), plan.exchanged(node)) == (level, exchange)


def test_a_plan_lists_each_step_before_those_that_read_it():
    _, plan = step(lambda s, t: totals(s, "user").join(t, on={"user": "id"}, how="full"))
    places = {id(node): i for i, node in enumerate(plan.nodes)}
    assert all(places[id(up)] < places[id(node)] for node in plan.nodes for up in node.ups)
    assert plan.depth == max(plan.level(node) for node in plan.nodes)


KEYS = {
    "a stream": (lambda s, _: s, None, True),
    "a table": (lambda _, t: t, ("id",), False),
    "the last row of each key": (lambda s, _: s.latest("user", "city"), ("user", "city"), False),
    "a group": (lambda s, _: totals(s, "user"), ("user",), False),
    "one group": (lambda s, _: totals(s), (), False),
    "windows": (
        lambda s, _: s.group_by("user").window(MINUTE).agg(n="count(*)"),
        ("user", "window_start", "window_end"),
        False,
    ),
    "final results of windows": (
        lambda s, _: s.group_by("user").window(MINUTE, emit="final").agg(n="count(*)"),
        ("user", "window_start", "window_end"),
        True,
    ),
    "some rows of a table": (lambda _, t: t.where("city = 'Rome'"), ("id",), False),
    "a renamed key": (lambda _, t: t.select(who="id", city="city"), ("who",), False),
    "a table without its key": (lambda _, t: t.select("city"), None, False),
    "a key that is computed with": (lambda _, t: t.select(id="upper(id)"), None, False),
    "changes": (lambda _, t: t.changes(), None, True),
    "ranked rows": (lambda s, _: s.group_by("city").top(3, by="amount", rank="n"), ("city", "n"), False),
    "first rows of a stream": (lambda s, _: s.group_by("city").top(3, by="amount"), None, False),
    "first rows of a table": (lambda s, _: totals(s, "user").group_by("n").top(3, by="most"), ("user",), False),
    "a union of tables": (lambda _, t: t.union(t.where("city = 'Rome'")), None, False),
    "an enriched stream": (lambda s, t: s.join(t, on={"user": "id"}, how="left"), None, True),
    "a table and one more column of it": (
        lambda s, t: totals(s, "user").join(t, on={"user": "id"}, how="left"),
        ("user",),
        False,
    ),
    "pairs of two tables": (
        lambda s, t: totals(s, "user").join(t.select(person="id", city="city"), on={"user": "city"}),
        ("user", "person"),
        False,
    ),
    "a full join by keys that may be null": (
        lambda s, _: totals(s, "user").join(s.latest("user"), on="user", how="full", where="n > 2"),
        None,
        False,
    ),
    "a full join by keys that are never null": (
        lambda _, t: t.select("id", "city").join(t.select("id", "born"), on="id", how="full"),
        ("id",),
        False,
    ),
    "rows of one table that another has": (
        lambda s, t: totals(s, "user").join(t, on={"user": "id"}, how="semi"),
        ("user",),
        False,
    ),
}


@pytest.mark.parametrize(("words", "key", "append_only"), KEYS.values(), ids=KEYS)
def test_a_row_of_a_table_is_identified_by_its_key(words, key, append_only):
    node, _ = step(words)
    assert (node.key, node.append_only) == (key, append_only)


NOT_NULL = {
    "a stream": (lambda s, _: s, set()),
    "the key of a topic that is a table": (lambda _, t: t, {"id"}),
    "the key of a stream's last rows": (lambda s, _: s.latest("user"), set()),
    "a condition": (lambda s, _: s.where("user is not null and amount > 2"), {"user"}),
    "two conditions": (lambda s, _: s.where("user is not null").where("not city is null"), {"user", "city"}),
    "one of two": (lambda s, _: s.where("user is not null or city is not null"), set()),
    "a condition on a value": (lambda s, _: s.where("upper(user) is not null"), set()),
    "a field of a struct": (
        lambda s, _: s.with_columns(city="named_struct('user', id)").where("city.user is not null"),
        set(),
    ),
    "a text with a quote in it": (lambda s, _: s.where("city <> 'L''Aquila' and user is not null"), {"user"}),
    "renamed": (lambda s, _: s.where("user is not null").select(who="user", more="upper(user)"), {"who"}),
    "a group": (lambda s, _: totals(s.where("user is not null"), "user", "city"), {"user"}),
    "windows": (
        lambda s, _: s.group_by("user").window(MINUTE).agg(n="count(*)"),
        {"window_start", "window_end"},
    ),
    "a position": (lambda s, _: s.group_by("city").top(3, by="amount", rank="n"), {"n"}),
    "an inner join": (lambda s, t: totals(s, "user").join(t, on={"user": "id"}), {"user", "id"}),
    "a left join": (lambda s, t: totals(s, "user").join(t, on={"user": "id"}, how="left"), set()),
    "a right join": (lambda s, t: totals(s, "user").join(t, on={"user": "id"}, how="right"), {"id"}),
    "a full join of one key": (
        lambda _, t: t.select("id", "city").join(t.select("id", "born"), on="id", how="full"),
        {"id"},
    ),
}


@pytest.mark.parametrize(("words", "columns"), NOT_NULL.values(), ids=NOT_NULL)
def test_the_plan_knows_which_columns_are_never_null(words, columns):
    assert step(words)[0].not_null == columns


TIMES = {
    "a stream": (lambda s, _: s, ROW_TIME),
    "a table": (lambda _, t: t, "born"),
    "some rows of it": (lambda _, t: t.where("city = 'Rome'"), "born"),
    "renamed": (lambda _, t: t.select(birth="born"), "birth"),
    "computed with": (lambda _, t: t.select(born="born + interval 1 day"), None),
    "left out": (lambda _, t: t.select("id"), None),
    "last rows": (lambda s, _: s.latest("user"), "at"),
    "a group": (lambda s, _: totals(s, "user"), None),
    "windows": (lambda s, _: s.group_by("user").window(MINUTE).agg(n="count(*)"), ROW_TIME),
    "first rows of a table": (lambda _, t: t.group_by("city").top(2, by="born"), "born"),
    "a union of one time": (lambda _, t: t.union(t.where("city = 'Rome'")), "born"),
    "changes": (lambda _, t: t.changes(), ROW_TIME),
}


@pytest.mark.parametrize(("words", "column"), TIMES.values(), ids=TIMES)
def test_the_plan_knows_which_column_has_the_time_of_a_row(words, column):
    assert step(words)[0].time_column == column


def test_a_corrected_time_is_the_time_of_a_row():
    """The time of the device is kept in a column of another name."""
    app = hr.App("shop")
    rows = app.stream("orders", "id int, at timestamp, sent timestamp", event_time="at", sent_time="sent")
    rows.latest("id").named("last").to_view("v")
    node = next(node for node in app.plan().nodes if node.name == "last")
    assert node.time_column == "at"
    assert "at_uncorrected" in node.schema.names


def watermark_inputs(words):
    """Return the names of the steps that the watermark of the last step depends on."""
    node, plan = step(words)
    return [plan.name(up) for up in node.watermark_inputs]


def test_the_watermark_of_a_step_depends_on_all_its_inputs():
    assert watermark_inputs(lambda s, t: s.group_by("user").agg(n="count(*)").join(t, on={"user": "id"})) == [
        "orders_agg_by_user",
        "people_table",
    ]


def test_the_watermark_of_a_lookup_depends_on_its_stream_alone():
    """Changes of the table trigger no output, so a quiet table does not hold the stream back."""
    assert watermark_inputs(lambda s, t: s.join(t, on={"user": "id"}, how="left")) == ["orders"]


def test_the_watermark_of_late_rows_is_that_of_the_step_s_inputs():
    """They are passed on as they arrive: the hold of the step does not delay them."""
    assert watermark_inputs(lambda s, _: s.group_by("user").window(MINUTE).agg(n="count(*)").late) == ["orders"]

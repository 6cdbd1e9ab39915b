"""Handles are immutable, verbs are judged where they are said, and names follow from what feeds a step."""

from __future__ import annotations

import dataclasses

import pytest

import headrace as hr
from headrace.base.errors import DuplicateStep, HeadraceError, InvalidName, UnknownColumn

SCHEMA = "user string, price double, tags array<string>, at timestamp"


def orders(topic="orders", app=None):
    return (app or hr.App("shop")).stream(topic, SCHEMA, event_time="at")


def counted(rows, *keys):
    return rows.group_by(*keys).agg(n="count(*)")


# ---- immutable ----


def test_every_verb_makes_a_new_handle_and_leaves_the_old_one():
    rows = orders()
    before = (rows.name, rows.columns, repr(rows))
    result = [
        rows.where("price > 1"),
        rows.select("user"),
        rows.with_columns(x="price + 1"),
        rows.drop("price"),
        rows.rename(who="user"),
        rows.explode("tags", "tag"),
        rows.map_batches(lambda table: table, "user string"),
        rows.union(rows),
        rows.named("mine"),
        counted(rows, "user"),
        *rows.branch(cheap="price < 1").values(),
    ]
    assert (rows.name, rows.columns, repr(rows)) == before
    assert len({id(each.node) for each in [rows, *result]}) == len(result) + 1


def test_a_node_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        orders().where("price > 1").node.name = "other"


def test_a_window_says_nothing_to_the_group_it_was_made_of():
    grouped = orders().group_by("user")
    windowed = grouped.window(hr.tumbling("1 s", grace="0 s"), emit="final")
    assert grouped.agg(n="count(*)").columns == ["user", "n"]
    assert windowed.agg(n="count(*)").columns == ["user", "window_start", "window_end", "n"]
    assert (grouped._group.emit, windowed._group.emit) == ("changes", "final")


def test_a_sink_belongs_to_the_app_and_not_to_the_handle():
    app = hr.App("shop")
    rows = orders(app=app)
    assert rows.to_view("v") is None
    rows.where("price > 1").to_view("w")
    assert [sink.name for sink in app.plan().sinks] == ["view:v", "view:w"]


def test_describing_an_app_touches_no_disk(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    app = hr.App("shop")
    rows = orders(app=app)
    counted(rows, "user").to_view("v")
    str(app.explain())
    assert not list(tmp_path.iterdir())


# ---- judged where they are said ----

LINES = {
    "where": lambda rows: rows.where("prise > 1"),
    "select": lambda rows: rows.select("prise"),
    "group_by": lambda rows: rows.group_by("prise"),
    "agg": lambda rows: rows.group_by("user").agg(n="sum(prise)"),
    "union": lambda rows: rows.union(rows.drop("price")),
    "explode": lambda rows: rows.explode("price", "x"),
    "to_view": lambda rows: rows.to_view("no view"),
    "named": lambda rows: rows.named("no step"),
    "branch": lambda rows: rows.branch(a="price"),
}


@pytest.mark.parametrize("verb", LINES.values(), ids=list(LINES))
def test_a_verb_is_judged_at_the_line_that_says_it(verb):
    """Nothing waits for the start: the trace ends in the line of the program."""
    with pytest.raises(HeadraceError) as error:
        verb(orders())
    ours = [entry for entry in error.traceback if str(entry.path) == __file__]
    assert ours[-1].lineno + 1 == verb.__code__.co_firstlineno
    assert error.value.what


def test_a_refused_sink_is_not_kept():
    app = hr.App("shop")
    rows = orders(app=app)
    rows.to_view("v")
    counted(rows, "user").to_view("a")
    for verb in (lambda: rows.to_view("v"), lambda: counted(rows.where("price > 1"), "user").to_view("b")):
        with pytest.raises(HeadraceError):
            verb()
    assert [sink.name for sink in app.plan().sinks] == ["view:v", "view:a"]


def test_columns_are_those_before_the_step():
    rows = orders()
    result = rows.with_columns(price="price * 2", twice="price + price")
    assert result.columns == ["user", "price", "tags", "at", "twice"]
    with pytest.raises(UnknownColumn):
        rows.with_columns(a="price", b="a")
    assert rows.rename(user="price", price="user").columns == ["price", "user", "tags", "at"]
    assert rows.select("*", "price * 2 AS twice", more="price").columns[-2:] == ["twice", "more"]


def test_any_column_name_works_as_a_keyword():
    rows = orders()
    names = {"name": "user", "emit": "price", "on": "price", "self": "user", "columns": "user", "😀 x": "price"}
    assert rows.select(**names).columns == list(names)
    assert rows.with_columns(**names).columns[-6:] == list(names)
    assert rows.rename(self="user").columns[0] == "self"
    assert rows.branch(self="price > 1")["self"].columns == rows.columns
    result = rows.group_by(name="user", emit="price").agg(window="count(*)", on="max(price)", self="min(at)")
    assert result.columns == ["name", "emit", "window", "on", "self"]


# ---- names ----


def test_a_stateful_name_is_made_of_sources_verb_and_keys():
    rows = orders()
    assert rows.name == "orders"
    assert counted(rows, "user").name == "orders_agg_by_user"
    assert counted(rows, "user", "at").name == "orders_agg_by_user_at"
    assert counted(rows).name == "orders_agg"
    assert counted(orders("my-orders.v2"), "user").name == "my_orders_v2_agg_by_user"
    assert counted(orders("2026"), "user").name == "_2026_agg_by_user"


def test_stateless_steps_between_rename_no_state():
    rows = orders()
    ways = [
        rows,
        rows.where("price > 1"),
        rows.where("price > 1").with_columns(x="price").drop("tags"),
        rows.explode("tags", "tag"),
        rows.branch(cheap="price < 1")["cheap"],
        rows.where("price > 1").where("price < 9").named("mine"),
    ]
    assert {counted(way, "user").name for way in ways} == {"orders_agg_by_user"}


def test_all_sources_are_in_the_name():
    app = hr.App("two")
    one, two = (app.stream(name, "k string") for name in ("one", "two"))
    assert counted(one.union(two), "k").name == "one_two_agg_by_k"
    assert counted(one.union(two, one), "k").name == "one_two_agg_by_k"


def test_equal_stateless_names_are_numbered_for_display():
    app = hr.App("shop")
    rows = orders(app=app)
    rows.where("price > 1").to_view("a")
    rows.where("price > 2").to_view("b")
    rows.where("price > 3").where("price > 4").to_view("c")
    plan = app.plan()
    assert sorted(plan.names.values()) == ["orders", *(f"orders_where{end}" for end in ("", "_2", "_3", "_4"))]


def test_a_given_name_wins_and_is_put_right_after_the_verb():
    rows = orders()
    table = counted(rows, "user").named("by_user")
    assert table.name == "by_user"
    assert table.where("n > 1").name == "by_user_where"
    assert rows.where("price > 1").named("paid").select("user").name == "paid_select"
    windowed = rows.group_by("user").window(hr.tumbling("1 s", grace="0 s")).agg(n="count(*)").named("w")
    assert windowed.late.name == "w_late"
    with pytest.raises(InvalidName, match="is not allowed as the name of a step"):
        rows.named("no-name")


def test_two_stateful_steps_of_one_name_are_refused_but_one_may_go_to_two_places():
    app = hr.App("shop")
    rows = orders(app=app)
    table = counted(rows, "user")
    table.to_view("a")
    table.to_topic("b")
    table.where("n > 1").to_view("c")
    with pytest.raises(DuplicateStep) as error:
        counted(rows, "user").to_view("d")
    assert 'two stateful steps are called "orders_agg_by_user"' in str(error.value)
    assert '.named("another_name")' in str(error.value)
    counted(rows, "user").named("other").to_view("d")
    assert [app.plan().name(node) for node in app.plan().stateful()] == ["orders_agg_by_user", "other"]


def test_a_table_knows_its_key():
    table = counted(orders(), "user")
    assert table.key == ("user",)
    assert table.rename(who="user").key == ("who",)
    assert table.select("n").key is None
    with pytest.raises(HeadraceError, match=r"Keep the key's columns in \.select"):
        table.select("n").to_topic("x")
    with pytest.raises(HeadraceError, match="needs the key"):
        table.select("n").changes()
    windowed = orders().group_by("user").window(hr.tumbling("1 s", grace="0 s")).agg(n="count(*)")
    assert windowed.key == ("user", "window_start", "window_end")

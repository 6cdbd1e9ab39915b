"""Where joins run: rows that may match are brought into one shard with as few exchanges as possible."""

from __future__ import annotations

import headrace as hr


def app_of():
    app = hr.App("placed")
    orders = app.table("orders", "id int, buyer int, amount int", key="id")
    users = app.table("users", "id int, id_of_city int", key="id")
    return app, orders, users


def placed(app, joined):
    """The level of the join, and which of its sides are moved."""
    joined.named("joined").to_view("v")
    explained = app.explain()
    arrows = [line.strip() for line in explained.mermaid.splitlines() if line.endswith(" joined")]
    level = next(step["level"] for step in explained.data["steps"] if step["name"] == "joined")
    return level, ["exchange" in arrow for arrow in arrows]


def test_sides_that_lie_alike_are_not_moved():
    app, orders, users = app_of()
    assert placed(app, orders.join(users, on="id")) == (1, [False, False])


def test_only_the_side_that_lies_otherwise_is_moved():
    app, orders, users = app_of()
    assert placed(app, orders.join(users, on={"buyer": "id"})) == (2, [True, False])


def test_a_part_of_the_columns_will_do_for_both():
    """By buyer alone the left side lies already: the right one is sent there by the column that answers to it."""
    app, orders, users = app_of()
    sums = orders.group_by("buyer").agg(first="min(id)")
    assert placed(app, sums.join(users, on={"buyer": "id", "first": "id_of_city"})) == (2, [False, False])


def test_a_step_below_on_the_same_columns_stays():
    app, orders, users = app_of()
    joined = orders.join(users, on={"buyer": "id"}, how="left")
    joined.group_by("buyer").agg(n="count(*)").named("counted").to_view("n")
    assert next(step["exchange"] for step in app.explain().data["steps"] if step["name"] == "counted") is False


def test_a_full_join_by_columns_of_two_names_lies_nowhere():
    """A row of one side alone has null in the other's column, so neither tells its shard."""
    app, orders, users = app_of()
    joined = orders.join(users, on={"buyer": "id"}, how="full")
    joined.group_by("buyer").agg(n="count(*)").named("counted").to_view("n")
    assert next(step["exchange"] for step in app.explain().data["steps"] if step["name"] == "counted") is True
    assert placed(app, orders.join(users, on="id", how="full")) == (1, [False, False])

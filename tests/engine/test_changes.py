"""A table read as the stream of the changes of its rows."""

from __future__ import annotations

import pytest

import headrace as hr
from headrace.testing import Driver

UPDATED = ["update_preimage", "update_postimage"]


def kinds(app, changes, steps):
    """The kinds of changes of each step, in the order in which they come out."""
    changes.to_topic("out")
    with Driver(app, shards=4) as driver:
        seen = []
        for topic, row in steps:
            before = len(driver.read("out")) if seen else 0
            driver.send(topic, *row)
            driver.run()
            seen.append([each["_change_type"] for each in driver.read("out")[before:]])
    return seen


def tables():
    app = hr.App("changes")
    orders = app.table("orders", "id int, buyer int", key="id")
    buyers = app.table("buyers", "buyer int, name string", key="buyer")
    return app, orders, buyers


JOINED = {
    "a join": lambda orders, buyers: orders.join(buyers, on="buyer"),
    "a join without what it was joined by": lambda orders, buyers: orders.join(buyers, on="buyer").drop("buyer"),
    "first rows of groups": lambda orders, _: orders.group_by("buyer").top(3, "id asc"),
}


@pytest.mark.parametrize("of", JOINED)
def test_a_row_that_moves_to_another_shard_is_updated(of):
    """Both halves are told apart by the key, and the row lies where another column says."""
    app, orders, buyers = tables()
    steps = [("buyers", [{"buyer": i, "name": str(i)} for i in range(8)])] if "join" in of else []
    steps += [("orders", [{"id": 1, "buyer": i}]) for i in range(8)]
    seen = kinds(app, JOINED[of](orders, buyers).changes(), steps)
    assert seen[-8:] == [["insert"], *[UPDATED] * 7]


def test_changes_of_a_full_join_by_columns_of_two_names():
    app, orders, buyers = tables()
    joined = orders.where("buyer is not null").join(buyers.rename(who="buyer"), on={"buyer": "who"}, how="full")
    steps = [("orders", [{"id": 1, "buyer": 5}]), ("buyers", [{"buyer": 5, "name": "a"}])]
    steps += [("buyers", [{"buyer": 5, "name": "b"}])]
    assert kinds(app, joined.changes(), steps) == [["insert"], ["delete", "insert"], UPDATED]


def test_a_key_may_have_any_name():
    app = hr.App("changes")
    goods = app.table("goods", "gross_weight int, n int", key="gross_weight")
    steps = [("goods", [{"gross_weight": 1, "n": 1}]), ("goods", [{"gross_weight": 1, "n": 2}])]
    assert kinds(app, goods.changes(), steps) == [["insert"], UPDATED]

"""Handles of one app share its registry: functions, sources and sinks; steps of two apps are never in one plan."""

from __future__ import annotations

import pytest

import headrace as hr
from headrace.base.errors import HeadraceError

SCHEMA = "id string, n int, at timestamp"


class Shop:
    """An app with a stream and a table."""

    def __init__(self):
        self.app = hr.App("shop")
        self.rows = self.app.stream("rows", SCHEMA, event_time="at")
        self.table = self.app.table("items", "id string, n int", key="id")


FOREIGN = {
    "stream join stream": lambda ours, other: ours.rows.join(other.rows, on="id", within="1 s"),
    "stream join table": lambda ours, other: ours.rows.join(other.table, on="id"),
    "table join table": lambda ours, other: ours.table.join(other.table, on="id"),
    "stream union stream": lambda ours, other: ours.rows.union(other.rows),
    "table union table": lambda ours, other: ours.table.union(other.table),
    "sql": lambda ours, other: ours.app.sql("select id from others", others=other.table),
}


@pytest.mark.parametrize("verb", FOREIGN.values(), ids=list(FOREIGN))
def test_a_step_of_another_app_is_refused(verb):
    with pytest.raises(HeadraceError, match=r"is no stream( or table)? of this app"):
        verb(Shop(), Shop())


@pytest.mark.parametrize("verb", FOREIGN.values(), ids=list(FOREIGN))
def test_a_step_of_the_same_app_is_taken(verb):
    shop = Shop()
    assert verb(shop, shop).columns


def test_what_is_no_step_is_refused():
    shop = Shop()
    for verb in (lambda: shop.rows.join("items", on="id"), lambda: shop.table.union(None), lambda: shop.rows.union(3)):
        with pytest.raises(HeadraceError, match="of this app"):
            verb()


def test_a_function_is_known_to_handles_that_are_there_already():
    shop = Shop()
    paid = shop.rows.where("n > 0")
    shop.app.function("twice", lambda n: n, returns="int", takes="int")
    assert paid.select(x="twice(n)").columns == ["x"]
    with pytest.raises(HeadraceError, match="twice"):
        Shop().rows.select(x="twice(n)")


def test_a_query_knows_the_sources_of_its_own_app_only():
    shop = Shop()
    hr.App("two").stream("clicks", SCHEMA)
    assert shop.app.sql("select id from items").key == ("id",)
    with pytest.raises(HeadraceError, match="clicks"):
        shop.app.sql("select id from clicks")


def test_sinks_of_all_handles_are_in_one_plan():
    shop = Shop()
    shop.rows.where("n > 0").to_view("a")
    shop.table.to_topic("b")
    assert [sink.name for sink in shop.app.plan().sinks] == ["view:a", "topic:b"]
    assert repr(shop.app) == "<App shop: 2 sinks, storage .headrace>"

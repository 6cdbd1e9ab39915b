"""`kafka.topic(…)` in an app whose own topics are elsewhere: read with `source=`, written with `.to`."""

from __future__ import annotations

import json

import pytest
import writing

import headrace as hr
from headrace.base.errors import InvalidArgument, InvalidPlan, UnknownColumn
from headrace.connect import kafka
from headrace.testing import Driver


def orders(app, broker, **more):
    """Count and sum the orders of each customer, to a topic of the cluster; big ones to another."""
    stream = app.stream("orders", "id int, who string, price int, at timestamp", event_time="at", key="id")
    totals = stream.group_by("who").agg(n="count(*)", total="sum(price)")
    totals.to(kafka.topic(broker.address, "totals", partitions=2))
    stream.where("price > 50").to(kafka.topic(broker.address, "big", key="who", partitions=2, **more))
    totals.to_view("totals")
    return app


def rows(start, end):
    return [{"id": n, "who": f"w{n % 3}", "price": n, "at": f"2026-01-01 00:00:{n % 60:02}"} for n in range(start, end)]


def current(broker):
    """Return the rows of the table that the changelog describes, as a reader of committed records sees it."""
    found = {}
    for part in writing.records(broker, "totals").values():
        for record in part:
            found[record["_key"]] = None if record["value"] is None else json.loads(record["value"])
    return sorted((row["who"], row["n"], row["total"]) for row in found.values() if row is not None)


def test_an_app_with_topics_of_its_own_writes_to_a_cluster(broker):
    with Driver(orders(hr.App("shop"), broker)) as driver:
        driver.send("orders", *rows(0, 60))
        driver.run()
        driver.send("orders", *rows(60, 90))
        driver.run()
        view = sorted((row["who"], row["n"], row["total"]) for row in driver.view("totals"))
    assert current(broker) == view
    assert writing.ids(broker, "big") == list(range(51, 90))


def test_a_topic_that_is_read_and_one_that_is_written(broker):
    source = writing.opened(writing.sink(broker, "in"))
    source.publish(0, {"in": writing.rows(*range(10))})
    app = hr.App("copy")
    stream = app.stream("in", "id int, text string", source=kafka.topic(broker.address, "in"), format="json", key="id")
    stream.where("id % 2 = 0").to(kafka.topic(broker.address, "even", key="id"))
    with Driver(app) as driver:
        driver.run()
        source.publish(1, {"in": writing.rows(10, 11, 12)})
        driver.run()
    source.close()
    assert writing.ids(broker, "even") == [0, 2, 4, 6, 8, 10, 12]


def test_a_cluster_that_is_named_by_two_addresses_is_refused(broker):
    app = hr.App("shop")
    stream = app.stream("orders", "id int, text string", key="id")
    stream.to(kafka.topic(broker.address, "some"))
    stream.to(kafka.topic(broker.address.replace("127.0.0.1", "localhost"), "more"))
    with pytest.raises(InvalidPlan, match="by two addresses"), Driver(app) as driver:
        driver.run()


def test_options_that_one_producer_cannot_have_are_refused(broker):
    app = hr.App("shop")
    stream = app.stream("orders", "id int, text string", key="id")
    stream.to(kafka.topic(broker.address, "some"))
    stream.to(kafka.topic(broker.address, "more", options={"compression.type": "zstd"}))
    with pytest.raises(InvalidPlan, match=r"different options: compression\.type"), Driver(app):
        pass


@pytest.mark.parametrize(
    "wrong", [{"partitions": 0}, {"partitions": "2"}, {"key": 5}, {"group": 5}, {"options": {"linger.ms": 5}}]
)
def test_arguments_of_the_wrong_type_are_refused_at_the_call(wrong):
    with pytest.raises(InvalidArgument, match=next(iter(wrong))):
        kafka.topic("kafka://localhost:1", "orders", **wrong)
    with pytest.raises(InvalidPlan, match="has a name"):
        kafka.topic("kafka://localhost:1", "orders", group="")


def test_keys_that_do_not_fit_are_refused_where_the_program_says_them():
    app = hr.App("shop")
    stream = app.stream("orders", "id int, who string, price int")
    place = "kafka://localhost:1"
    with pytest.raises(UnknownColumn, match="whom"):
        stream.to(kafka.topic(place, "big", key="whom"))
    table = stream.group_by("who").agg(n="count(*)")
    with pytest.raises(InvalidPlan, match="have the table's key, who"):
        table.to(kafka.topic(place, "totals", key="n"))
    with pytest.raises(InvalidPlan, match="without a key"):
        table.select("n").to(kafka.topic(place, "totals"))
    with pytest.raises(InvalidPlan, match="too_large"):
        kafka.topic(place, "big", too_large="ignore")


def test_private_columns_are_refused_where_the_program_says_it():
    app = hr.App("shop")
    people = app.stream("people", "id int, name string", key="id", private={"name": "id"})
    with pytest.raises(InvalidPlan, match="private columns cannot be written"):
        people.to(kafka.topic("kafka://localhost:1", "people"))

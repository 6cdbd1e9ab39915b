"""Orders as their database's log changed them: 582 inserted, 225 updated, some to what they were, 23 deleted."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from replaying import batch, current, cuts, replay, same, send

import headrace as hr
from budget import examples
from headrace.testing import Driver

pytestmark = pytest.mark.spark

SCHEMA = (
    "id bigint, customer_name string, product_name string, quantity int, price decimal(10,2), order_date timestamp, "
    "status string, lsn bigint"
)
FACTS = {
    "orders": "count(*)",
    "customers": "count(distinct customer_name)",
    "total": "sum(quantity * price)",
    "mean": "avg(price)",
    "dearest": "max(price)",
    "first": "min(order_date)",
    "newest": "max_by(id, order_date)",
}
few = settings(max_examples=examples(2), deadline=None, suppress_health_check=list(HealthCheck))


def app_of():
    app = hr.App("orders")
    orders = app.table("orders", SCHEMA, key="id", partitions=2)
    orders.to_view("orders")
    orders.group_by("product_name", "status").agg(**FACTS).named("sales").to_view("sales")
    orders.select("id", "status").changes().to_topic("moves")
    return app


def check(spark, driver, now):
    same(driver.view("orders"), now.drop_columns(["_deleted"]).to_pylist())
    facts = ", ".join(f"{text} AS {name}" for name, text in FACTS.items())
    query = f"SELECT product_name, status, {facts} FROM orders GROUP BY product_name, status"
    same(driver.view("sales"), batch(spark, "orders", now, query))


@few
@given(ends=cuts(830, most=3))
def test_orders_and_sales_equal_the_batch_after_every_epoch(spark, orders, ends):
    with Driver(app_of(), shards=2) as driver:
        for first, last in zip([0, *ends], [*ends, orders.num_rows], strict=True):
            if last > first:
                send(driver, "orders", orders.slice(first, last - first))
            driver.step()
            check(spark, driver, current(orders, last, key="id"))


def test_orders_and_sales_on_both_carriers(drive, spark, orders):
    driver = drive(app_of())
    replay(driver, "orders", orders, [300, 301])
    check(spark, driver, current(orders, orders.num_rows, key="id"))
    moved = {}
    for row in driver.read("moves"):
        if row["_change_type"] in ("insert", "update_postimage"):
            assert moved.get(row["id"]) != row["status"], "a change that changes nothing is not published"
            moved[row["id"]] = row["status"]
        elif row["_change_type"] == "delete":
            assert moved.pop(row["id"]) == row["status"]
    assert moved == {row["id"]: row["status"] for row in driver.view("orders")}

"""The app that runs on the cluster: windows, a table, a join of both, a function of the user; a topic and two views."""

from __future__ import annotations

import os
import time

import pyarrow as pa
import pyarrow.compute as pc

import headrace as hr

PARTITIONS = 3
ORDERS = "id bigint, user int, amount bigint, at timestamp"
USERS = "user int, city string"


def slowly(amounts: pa.Array) -> pa.Array:
    """Add 1, taking some time: kills hit an epoch in the middle."""
    time.sleep(float(os.environ.get("SLOWLY", "0")))
    return pc.add(amounts, 1)


def hang_once(amounts: pa.Array) -> pa.Array:
    """Add 0; the first task that comes here hangs, as one on a broken machine does."""
    flag = os.environ.get("HANG_ONCE")
    if flag:
        try:
            os.close(os.open(flag, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return amounts
        time.sleep(3600)
    return amounts


def make(storage: str | None = None) -> hr.App:
    """Return the app."""
    app = hr.App("clustered", storage=storage or os.environ.get("CLUSTERED", ".headrace"), shards=4)
    app.function("slowly", slowly, returns="bigint")
    app.function("hang_once", hang_once, returns="bigint")
    orders = app.stream("orders", ORDERS, key="id", event_time="at", out_of_order="2 s", partitions=PARTITIONS)
    users = app.table("users", USERS, key="user", partitions=PARTITIONS)
    orders = orders.with_columns(more="hang_once(slowly(amount))")
    orders.group_by("user").window(hr.tumbling("10 s", grace="5 s"), emit="final").agg(
        n="count(*)", total="sum(more)"
    ).named("windows").to_topic("windows")
    totals = orders.group_by("user").agg(n="count(*)", total="sum(more)").named("totals")
    totals.to_view("totals")
    totals.join(users, on="user", how="left").named("known").group_by("city").agg(n="sum(n)", total="sum(total)").named(
        "cities"
    ).to_view("cities")
    return app


def orders(start: int, rows: int) -> pa.Table:
    """Return orders in time order."""
    ids = range(start, start + rows)
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "user": pa.array([i * 7919 % 97 for i in ids], pa.int32()),
            "amount": pa.array([i % 1000 for i in ids], pa.int64()),
            "at": pa.array([i * 1000 for i in ids], pa.timestamp("us", tz="UTC")),
        }
    )


USER_ROWS = [{"user": user, "city": f"city {user % 5}"} for user in range(90)]

if __name__ != "clustered":
    app = make()

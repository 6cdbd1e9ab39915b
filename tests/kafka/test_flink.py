"""Flink SQL reads a table that an app has written in Debezium's envelope."""

from __future__ import annotations

import json
import random
import subprocess
from decimal import Decimal
from pathlib import Path

import pytest
import writing

import headrace as hr
from headrace.connect import kafka
from headrace.testing import Driver

PROGRAM = Path(__file__).parent / "java" / "FlinkRows.java"
FLINK = tuple(
    f"org.apache.flink:flink-{name}:2.3.0"
    for name in ("clients", "connector-base", "table-api-java-bridge", "table-planner-loader", "table-runtime", "json")
)
CONNECTOR = "org.apache.flink:flink-sql-connector-kafka:4.0.1-2.0"
OPENED = tuple(f"--add-opens=java.base/java.{each}=ALL-UNNAMED" for each in ("util", "lang", "time", "util.concurrent"))
COLUMNS = "id INT, owner STRING, balance DECIMAL(12, 2), `at` TIMESTAMP_LTZ(6)"


@pytest.fixture
def flink(broker):
    """Return what a query gives that Flink runs over the topic "accounts", as a row and how often it is there."""
    from scripts.broker.jars import Unavailable, fetched, java

    try:
        jars = fetched(*FLINK, CONNECTOR)
    except Unavailable as reason:
        pytest.skip(f"no Flink: {reason}")

    def run(query):
        command = [str(java()), "-Xmx600m", "-XX:TieredStopAtLevel=1", *OPENED, "-cp", f"{jars}/*", str(PROGRAM)]
        asked = [broker.bootstrap, broker.topic("accounts"), COLUMNS, query]
        ran = subprocess.run([*command, *asked], capture_output=True, text=True, timeout=300, check=False)
        assert not ran.returncode, ran.stderr[-3_000:]
        rows = [line.split(" ", 2)[1:] for line in ran.stdout.splitlines() if line.startswith("ROW ")]
        return sorted((text, int(count)) for count, text in rows)

    return run


def changed(draw, driver):
    """Send inserts, updates and deletes of a few keys."""
    for _ in range(20):
        number = draw.randrange(12)
        if draw.random() < 0.25:
            driver.delete("source", id=number)
        else:
            balance = Decimal(draw.randrange(-10_000, 10_000)) / 100
            owner = draw.choice(["ann", 'b"ob', "cé", None])
            at = f"2026-01-31T10:00:{draw.randrange(60):02}.{draw.randrange(10**6):06}Z"
            driver.send("source", {"id": number, "owner": owner, "balance": balance, "at": at})
    driver.run()


def as_flink_writes(row):
    at = row["at"].strftime("%Y-%m-%dT%H:%M:%S.%f").rstrip("0").rstrip(".")
    return f"{row['id']}|{'null' if row['owner'] is None else row['owner']}|{row['balance']:.2f}|{at}Z"


@pytest.mark.prove
@pytest.mark.parametrize("way", ["connector", "topic of the app"])
def test_flink_reads_our_debezium_events_into_a_table_equal_to_ours(broker, flink, way):
    own = way == "topic of the app"
    app = hr.App("shop", topics=broker.address if own else None)
    source = app.table("source", "id int, owner string, balance decimal(12,2), at timestamp", key="id")
    accounts = source.where("balance > -50")
    if own:
        accounts.to_topic("accounts", format="debezium")
    else:
        accounts.to(kafka.topic(broker.address, "accounts", format="debezium", partitions=2))
    accounts.to_view("accounts")
    draw = random.Random(16)  # noqa: S311 -- seeded
    with Driver(app, shards=2) as driver:
        for _ in range(5):
            changed(draw, driver)
        rows = driver.view("accounts")
    assert flink("SELECT * FROM changes") == sorted((as_flink_writes(row), 1) for row in rows)
    totals = {}
    for row in rows:
        totals[row["owner"]] = totals.get(row["owner"], 0) + row["balance"]
    expected = sorted((f"{'null' if owner is None else owner}|{total:.2f}", 1) for owner, total in totals.items())
    assert flink("SELECT owner, SUM(balance) FROM changes GROUP BY owner") == expected
    ops = [json.loads(each["value"])["op"] for part in writing.records(broker, "accounts").values()
           for each in part if each["value"] is not None]  # fmt: skip
    assert set(ops) == {"c", "u", "d"}

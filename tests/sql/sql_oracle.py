"""All queries in one app, its tables and streams changing; and batch Spark over the rows of that moment."""

from __future__ import annotations

import math
import random
import re
from collections import Counter
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pyarrow as pa
import sqlglot
from sql_queries import STREAMS, TABLES, TIMED
from sqlglot import exp
from tpch import QUERIES, SCHEMAS, Shop

import headrace as hr
from batch_spark import quick_session
from headrace.base.schema import parse
from headrace.testing import Driver

CLICKS = "search_id string, url string, user string, at timestamp"
SEARCHES = "search_id string, query string, user string, at timestamp"
EVERY = {**QUERIES, **TABLES, **STREAMS}
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


class World:
    """An app with a view for each query, driven by random changes; all that is random comes from the seed."""

    def __init__(self, seed: int, queries=None) -> None:
        self.queries = dict(queries or EVERY)
        self.dice = random.Random(seed)  # noqa: S311 -- test data
        self.shop = Shop(seed)
        self.facts = {"clicks": [], "searches": []}
        self.now = BEGIN
        app = application(self.queries)
        self.read = {source.topic for source in app.plan().sources()}
        self.driver = Driver(app)

    def epoch(self) -> None:
        """Send what changed and run one epoch with it."""
        for table, changes in self.shop.changes().items():
            rows = [row if row is not None else deleted(table, key) for key, row in changes]
            if rows and table in self.read:
                self.driver.send(table, *rows)
        for topic, known in self.facts.items():
            new = [self._fact(topic) for _ in range(25)]
            known.extend(new)
            if topic in self.read:
                self.driver.send(topic, *new)
        self.driver.step()
        self.shop.change(30)

    def _fact(self, topic: str) -> dict:
        """Give a row that comes up to eight seconds too late."""
        self.now += timedelta(milliseconds=self.dice.randrange(1, 3_000))
        return {
            "search_id": self.dice.choice(["a", "b", "c", "d", None]),
            "url" if topic == "clicks" else "query": self.dice.choice(["x", "y", "z", None]),
            "user": self.dice.choice(["ann", "bob", "bot", None]),
            "at": self.now - timedelta(milliseconds=self.dice.randrange(8_000)),
        }

    def tables(self) -> dict[str, pa.Table]:
        """Give the rows of this moment: those of tables, and all of streams."""
        tables = {}
        for table, (ddl, _) in SCHEMAS.items():
            tables[table] = arrow(ddl, self.before[table])
        tables["clicks"] = arrow(CLICKS, self.facts["clicks"])
        tables["searches"] = arrow(SEARCHES, self.facts["searches"])
        return tables

    def step(self) -> None:
        """Run an epoch, and keep the rows that it has seen."""
        self.before = {table: list(rows.values()) for table, rows in self.shop.rows.items()}
        self.epoch()

    def close(self) -> None:
        """Stop the app."""
        self.driver.close()


def application(queries) -> hr.App:
    """Declare the tables and streams, and a view for each query."""
    app = hr.App("queries")
    for table, (ddl, key) in SCHEMAS.items():
        app.table(table, ddl, key=key)
    app.stream("clicks", CLICKS, event_time="at", out_of_order="10 seconds")
    app.stream("searches", SEARCHES, event_time="at", out_of_order="10 seconds")
    for name, text in queries.items():
        grace = "30 seconds" if name in TIMED else None
        app.sql(text, name=name, grace=grace).to_view(name)
    return app


def deleted(table: str, key: tuple) -> dict:
    """Give the record that deletes a row."""
    return {**dict(zip(SCHEMAS[table][1], key, strict=True)), "_deleted": True}


def arrow(ddl: str, rows: list[dict]) -> pa.Table:
    """Give rows as a table of a schema."""
    return pa.Table.from_pylist(rows, schema=parse(ddl))


def certain(text: str) -> str:
    """Return a query whose `limit` has one answer: rows that its order leaves equal are ordered by the whole row."""
    if not re.search(r"limit \d+\s*$", text):
        return text
    tree = sqlglot.parse_one(text, dialect="spark")
    ordered_by = {term.this.name for term in tree.args["order"].expressions}
    for item in tree.expressions:
        if item.alias_or_name not in ordered_by:
            tree = tree.order_by(exp.column(item.alias_or_name))
    return tree.sql(dialect="spark")


def differences(name: str, ours: list[dict], theirs: list[dict]) -> str:
    """Say how two results differ, or nothing."""
    if theirs and ours and list(ours[0]) != list(theirs[0]):
        return f"{name}: columns {list(ours[0])} against {list(theirs[0])}"
    one, other = Counter(map(plain, ours)), Counter(map(plain, theirs))
    if one == other:
        return ""
    more, less = list((one - other).elements()), list((other - one).elements())
    return f"{name}: {len(ours)} rows against {len(theirs)}; too many {more[:3]}, missing {less[:3]}"


def plain(row: dict) -> tuple:
    """Give a row as values that can be compared: doubles to 9 digits, sets in order, times in UTC."""
    return tuple(_plain(value) for value in row.values())


def _plain(value: object) -> object:
    if isinstance(value, Decimal):
        return ("decimal", value.normalize())
    if isinstance(value, float):
        return 0.0 if value == 0 else round(value, 9 - math.ceil(math.log10(abs(value))))
    if isinstance(value, list):
        return tuple(sorted(map(str, value)))
    if isinstance(value, datetime):
        return value.astimezone(UTC)
    return value


class Batch:
    """Batch Spark over the rows of a moment, in a session of its own that is quick with few rows."""

    def __init__(self, spark) -> None:
        self.spark = quick_session(spark)

    def load(self, tables: dict[str, pa.Table]) -> None:
        """Take the rows of a moment."""
        for name, rows in tables.items():
            self.spark.createDataFrame(rows).coalesce(1).createOrReplaceTempView(name)

    def rows(self, text: str) -> list[dict]:
        """Give what a query gives."""
        return self.spark.sql(certain(text)).toArrow().to_pylist()

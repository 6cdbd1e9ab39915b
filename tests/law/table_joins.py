"""Random joins of tables, run epoch by epoch, and the SQL that says what they are: one text for DuckDB and for Spark.

A case is made of a seed alone. All cases of one join are asked for in one query: the tables hold the current rows of
every case and epoch, told apart by a column `c`.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa

import headrace as hr
from headrace.testing import Driver, check_deltas

if TYPE_CHECKING:
    from collections.abc import Callable

LEFT = "id int, k int, n int, a string, at timestamp"
RIGHT = "id bigint, k int, m int, b string, at timestamp"
HOWS = ("inner", "left", "right", "full", "semi", "anti")
WHERES = {None: None, "n > m": "x.n > y.m", "n is null or m <> n": "x.n is null or y.m <> x.n"}
COUNTED = "SELECT c, k, count(*) AS w, max({0}) AS most FROM {1} GROUP BY c, k"


@dataclass(frozen=True)
class Shape:
    """Two tables and where they agree: as verbs, and as SQL over `l` and `r`."""

    tables: Callable
    left: str
    right: str
    on: dict[str, str]
    where: bool = True


def plain(app):
    return (
        app.table("l", LEFT, key="id", event_time="at").select("id", "k", "n", "a"),
        app.table("r", RIGHT, key="id", event_time="at").select("id", "k", "m", "b"),
    )


def bags(app):
    left, right = plain(app)
    return left.select("k", "n"), right.select("k", "m")


def counted(table, column):
    return table.group_by("k").agg(w="count(*)", most=f"max({column})")


def with_itself(app):
    left, _ = plain(app)
    return left, left


def back_to_its_input(app):
    left, _ = plain(app)
    return left, counted(left, "n")


def aggregates(app):
    left, right = plain(app)
    return counted(left, "n"), counted(right, "m")


def chained(app):
    left, right = plain(app)
    return left.join(right, on="id", how="full").select("id", "n", j="m"), right.select("k", "m")


def over_a_bag(app):
    left, right = bags(app)
    return left.join(right, on="k", how="left").select("k", "n"), right


L, R = "SELECT c, id, k, n, a FROM l", "SELECT c, id, k, m, b FROM r"
SHAPES = {
    "one key": Shape(plain, L, R, {"id": "id"}),
    "a foreign key": Shape(plain, L, R, {"k": "id"}),
    "a foreign key on the right": Shape(plain, L, R, {"id": "k"}),
    "many to many": Shape(plain, L, R, {"k": "k"}),
    "two columns": Shape(plain, L, R, {"k": "k", "a": "b"}),
    "bags": Shape(bags, "SELECT c, k, n FROM l", "SELECT c, k, m FROM r", {"k": "k"}),
    "itself": Shape(with_itself, L, L, {"k": "id"}, where=False),
    "an aggregate and its input": Shape(back_to_its_input, L, COUNTED.format("n", "l"), {"k": "k"}, where=False),
    "aggregates": Shape(aggregates, COUNTED.format("n", "l"), COUNTED.format("m", "r"), {"k": "k"}, where=False),
    "a join and a table": Shape(
        chained,
        "SELECT coalesce(l.c, r.c) AS c, coalesce(l.id, r.id) AS id, l.n, r.m AS j "
        "FROM l FULL JOIN r ON l.c = r.c AND l.id = r.id",
        "SELECT c, k, m FROM r",
        {"j": "k"},
    ),
    "a join of bags and a bag": Shape(
        over_a_bag,
        "SELECT l.c, l.k, l.n FROM l LEFT JOIN r ON l.c = r.c AND l.k = r.k",
        "SELECT c, k, m FROM r",
        {"k": "k"},
    ),
}


@dataclass(frozen=True)
class Join:
    """Which join a case is about."""

    shape: str
    how: str
    where: str | None

    @classmethod
    def every(cls):
        """Return all that there are."""
        return [
            cls(name, how, where)
            for name, shape in SHAPES.items()
            for how in HOWS
            for where in (WHERES if shape.where else (None,))
        ]

    def app(self):
        """Return the app and its joined table."""
        app, shape = hr.App("joins"), SHAPES[self.shape]
        left, right = shape.tables(app)
        same = all(one == other for one, other in shape.on.items())
        on = tuple(shape.on) if same else shape.on
        joined = left.join(right, on=on, how=self.how, where=self.where).named("joined")
        return app, joined

    def sql(self):
        """Return SQL for its rows, column by column as the verb gives them, after `c`."""
        shape = SHAPES[self.shape]
        _, joined = self.app()
        agree = [f"x.{one} = y.{other}" for one, other in shape.on.items()]
        more = [] if self.where is None else [f"({WHERES[self.where]})"]
        whole = self.how not in ("semi", "anti")
        columns = [f"{_origin(column, whole=whole)} AS {column.name}" for column in _given(joined)]
        c = "x.c" if self.how in ("inner", "left", "semi", "anti") else "coalesce(x.c, y.c)"
        return (
            f"SELECT {', '.join([f'{c} AS c', *columns])} "
            f"FROM ({shape.left}) x {self.how.upper()} JOIN ({shape.right}) y "
            f"ON {' AND '.join(['x.c = y.c', *agree, *more])}"
        )


def _given(joined):
    names = joined.columns
    return [column for column in joined.node.columns if column.name in names]


def _origin(column, *, whole):
    if whole and column.left is not None and column.right is not None:
        return f"coalesce(x.{column.left}, y.{column.right})"
    return f"x.{column.left}" if column.left is not None else f"y.{column.right}"


# ---- what is sent ----


@dataclass(frozen=True)
class Case:
    """What is sent, epoch by epoch, into a join: (topic, row) pairs, made of a seed."""

    seed: int
    join: Join
    epochs: tuple[tuple[tuple[str, dict], ...], ...]

    @classmethod
    def of(cls, seed, join=None):
        """Return the case of a seed."""
        draw = random.Random(seed)  # noqa: S311 -- a test is no secret
        join = join or draw.choice(Join.every())
        skewed, keys, wide = draw.random() < 0.3, draw.choice((2, 5, 9)), draw.random() < 0.5
        sent = [_change(draw, keys, skewed=skewed, wide=wide) for _ in range(draw.choice((6, 15, 40)))]
        epochs, at = [], 0
        while at < len(sent):
            size = draw.choice((1, 1, 2, 5, 12))
            epochs.append(tuple(sent[at : at + size]))
            at += size
        return cls(seed, join, tuple(epochs))


def _change(draw, keys, *, skewed, wide):
    topic = draw.choice("lr")
    row = {"id": draw.randint(1, keys), "at": 1_767_225_600_000 + 1000 * draw.randint(0, 50)}
    if draw.random() < 0.25:
        return topic, {**row, "_deleted": True}
    value, text = ("n", "a") if topic == "l" else ("m", "b")
    k = 1 if skewed and draw.random() < 0.5 else draw.choice([None, *range(1, keys + 1)])
    numbers = (0, 1, 2, 3, None) if wide else (0, 1, None)
    return topic, {**row, "k": k, value: draw.choice(numbers), text: draw.choice(("x", "", None))}


def current(sent):
    """The rows of both tables that are left when changes are applied one by one."""
    tables = {"l": {}, "r": {}}
    for topic, row in sent:
        tables[topic].pop(row["id"], None)
        if not row.get("_deleted"):
            tables[topic][row["id"]] = row
    return {topic: list(rows.values()) for topic, rows in tables.items()}


# ---- what comes out, and what should ----


def run(case, shards=2):
    """Run a case; return the rows after every epoch, which its deltas and its view agree on."""
    app, joined = case.join.app()
    joined.to_view("joined")
    checked = check_deltas(joined)
    names, made = joined.columns, []
    sides = {node.topic for node in joined.node.walk() if not node.ups}
    with Driver(app, shards=shards) as driver:
        for epoch in case.epochs:
            for topic, row in epoch:
                if topic in sides:
                    driver.send(topic, row)
            driver.step()
            rows = Counter(tuple(row[name] for name in names) for row in checked.rows)
            shown = Counter(tuple(row[name] for name in names) for row in driver.view("joined"))
            assert rows == shown, (case.seed, case.join)
            made.append(rows)
    return made


def expected(cases, ask):
    """Return for each case the rows after every epoch; `ask(tables, sql)` answers a query over tables `l` and `r`."""
    numbers, tables, sent_in = {}, {"l": [], "r": []}, defaultdict(list)
    for case in cases:
        sent = []
        for number, epoch in enumerate(case.epochs):
            sent += epoch
            c = len(numbers)
            numbers[case.seed, number] = c
            for topic, rows in current(sent).items():
                tables[topic] += [{"c": c, **row} for row in rows]
        sent_in[case.join].append(case)
    arrow = {
        "l": _arrow(tables["l"], [("k", pa.int32()), ("n", pa.int32()), ("a", pa.string())], pa.int32()),
        "r": _arrow(tables["r"], [("k", pa.int32()), ("m", pa.int32()), ("b", pa.string())], pa.int64()),
    }
    found = defaultdict(Counter)
    for join in sent_in:
        for row in ask(arrow, join.sql()):
            found[join, row[0]][tuple(row[1:])] += 1
    return {
        case.seed: [found[case.join, numbers[case.seed, number]] for number in range(len(case.epochs))]
        for case in cases
    }


def wrong(cases, ask, shards=2):
    """Return the cases whose rows are not those that SQL gives, with the first epoch where they are not."""
    should, found = expected(cases, ask), []
    for case in cases:
        for number, (ours, theirs) in enumerate(zip(run(case, shards), should[case.seed], strict=True)):
            if ours != theirs:
                found.append((case.seed, case.join, number, ours - theirs, theirs - ours))
                break
    return found


def _arrow(rows, columns, kind):
    schema = pa.schema([("c", pa.int32()), ("id", kind), *columns])
    return pa.Table.from_pylist([{name: row.get(name) for name in schema.names} for row in rows], schema=schema)


def ask_duckdb():
    """Return what answers with DuckDB."""

    def ask(tables, sql):
        with duckdb.connect() as connection:
            for name, table in tables.items():
                connection.register(name, table)
            return connection.execute(sql).fetchall()

    return ask


def ask_spark(spark):
    """Return what answers with Spark SQL; the tables are loaded once."""
    loaded = {}

    def ask(tables, sql):
        if loaded.get("tables") is not tables:
            for name, table in tables.items():
                spark.createDataFrame(table).createOrReplaceTempView(name)
                spark.table(name).cache()
            loaded["tables"] = tables
        return [tuple(row.values()) for row in spark.sql(sql).toArrow().to_pylist()]

    return ask


def random_case(seed):
    """Return the case of a seed."""
    return Case.of(seed)


def play(case):
    """Hold a case against DuckDB."""
    assert not (found := wrong([case], ask_duckdb())), found

"""Random queries over tables that change: made of a seed, run epoch by epoch, and held against DuckDB's batch answer.

`python scripts/random_sql.py` plays many.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from datetime import UTC, datetime
from decimal import Decimal

import duckdb
import pyarrow as pa
from query_grammar import DOMAINS, HOPS, SCHEMAS, Queries, as_batch, as_kept

import headrace as hr
from headrace.base.errors import HeadraceError, UnsupportedQuery
from headrace.base.schema import parse
from headrace.testing import Driver
from random_plays import Played, compare


class Rows:
    """The rows of the tables, and random changes of those that the app reads."""

    def __init__(self, dice: random.Random, read: set[str]) -> None:
        self.dice = dice
        self.read = read
        self.rows: dict[str, dict[tuple, dict] | list[dict]] = {
            name: {} if key else [] for name, (_, key) in SCHEMAS.items()
        }

    def change(self, driver: Driver) -> None:
        """Change some rows, the same ones whatever is read, and send what the app reads."""
        for name, (ddl, key) in SCHEMAS.items():
            for _ in range(self.dice.choice((0, 1, 2, 5))):
                row = {column: self._drawn(column, key or ()) for column in parse(ddl).names}
                gone = key is not None and self.dice.random() < 0.3
                self._keep(name, row, key, gone=gone)
                if name not in self.read:
                    continue
                if gone:
                    driver.delete(name, **{column: row[column] for column in key})
                else:
                    driver.send(name, row)

    def _keep(self, name: str, row: dict, key: tuple[str, ...] | None, *, gone: bool) -> None:
        rows = self.rows[name]
        if key is None:
            rows.append(row)
        elif gone:
            rows.pop(tuple(row[column] for column in key), None)
        else:
            rows[tuple(row[column] for column in key)] = row

    def tables(self) -> dict[str, pa.Table]:
        """Return the rows of this moment."""
        return {
            name: pa.Table.from_pylist(
                list(rows.values()) if isinstance(rows, dict) else rows, schema=parse(SCHEMAS[name][0])
            )
            for name, rows in self.rows.items()
        }

    def _drawn(self, column: str, key: tuple[str, ...]) -> object:
        if column not in (*key, "at") and self.dice.random() < 0.2:
            return None
        return self.dice.choice(DOMAINS.get(column, (0, 1, 2, 3, 5)))


def drawn(seed: int, number: int) -> list[str]:
    """Return random queries."""
    queries = Queries(_dice(seed))
    return [queries.query(queries.dice.choice((0, 1, 1, 2)))[0] for _ in range(number)]


def play(seed: int, texts: list[str], *, epochs: int) -> Played:
    """Keep a view for each query while its tables change, and compare it after every epoch until one is wrong."""
    played = Played()
    app = hr.App("queries")
    kept = _declared(app, texts, played)
    if not kept:
        return played
    try:
        with Driver(app) as driver:
            rows = Rows(_dice(seed + 1), {source.topic for source in app.plan().sources()})
            _compare(driver, kept, rows, epochs, played)
    except HeadraceError as error:
        played.wrong.append(f"{type(error).__name__}: {error}")
    played.wrong = [f"seed {seed}, {wrong}" for wrong in played.wrong]
    return played


def _dice(seed: int) -> random.Random:
    return random.Random(seed)  # noqa: S311 -- test data


def _declared(app: hr.App, texts: list[str], played: Played) -> dict[str, str]:
    """Declare the tables, and a view for each query that can be kept; return these by view."""
    for name, (ddl, key) in SCHEMAS.items():
        if key:
            app.table(name, ddl, key=key)
    for name in ("p", "q"):
        app.stream(name, SCHEMAS[name][0], event_time="at", out_of_order="1 day")
    d = app.stream("d", SCHEMAS["d"][0]).as_table()
    kept = {}
    for number, text in enumerate(texts):
        try:
            grace = {"grace": "1 day"} if "window(" in text or "interval" in text else {}
            app.sql(as_kept(text), name=f"q{number}", d=d, **grace).to_view(f"v{number}")
            kept[f"v{number}"] = text
        except UnsupportedQuery as error:
            played.refused[str(error).split("\n", maxsplit=1)[0][:200]] += 1
        except Exception as error:  # noqa: BLE001 -- it is what is looked for
            played.wrong.append(f"not kept: {text}\n  {type(error).__name__}: {error}")
    played.kept = len(kept)
    return kept


def _compare(driver: Driver, kept: dict[str, str], rows: Rows, epochs: int, played: Played) -> None:
    batch = duckdb.connect()
    batch.execute("SET TimeZone = 'UTC'; PRAGMA disable_optimizer")  # it cannot bind one in some thousand queries
    batch.execute(
        "CREATE MACRO bucket(t, minutes) AS to_timestamp(epoch_us(t) // (minutes * 60000000) * minutes * 60); "
        "CREATE TABLE hops AS SELECT size, every, to_minutes(unnest(range(0, size, every))) AS back "
        f"FROM (VALUES {', '.join(map(str, HOPS))}) AS t(size, every)"
    )
    asked = {view: as_batch(text) for view, text in kept.items()}

    def change() -> None:
        rows.change(driver)
        for name, table in rows.tables().items():
            batch.register(name, table)

    def answers(view: str, held: list[dict]) -> tuple[Counter, Counter]:
        ours = Counter(tuple(map(_plain, row.values())) for row in held)
        return ours, Counter(tuple(map(_plain, row)) for row in batch.execute(asked[view]).fetchall())

    compare(driver, kept, epochs, played, change=change, answers=answers)


def _plain(value: object) -> object:
    """Return a value that equals itself, whatever its type is called."""
    if isinstance(value, datetime):
        return value.astimezone(UTC).replace(tzinfo=None)
    if isinstance(value, Decimal):
        return value.normalize()
    return "NaN" if isinstance(value, float) and math.isnan(value) else value

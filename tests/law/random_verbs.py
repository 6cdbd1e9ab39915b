"""Random programs of verbs over tables that change: run epoch by epoch, and held against the same in plain Python.

`python scripts/random_verbs.py` plays many.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from typing import Any

from verb_grammar import Programs
from verb_steps import Step, TooManyPairs
from verb_values import DOMAINS, INT, LATEST, LONG, TABLES, TEXT, Row, hashed

import headrace as hr
from headrace.base.errors import HeadraceError
from headrace.testing import Driver
from random_plays import Played, compare

World = dict[str, list[Row]]
NAMED = re.compile(r"[.](join|agg|top|union)[(]")
"""Steps that get a name of their own."""
MANY = 100
"""Epochs of more rows have as many different keys and texts."""


class Rows:
    """The rows of the tables, and random changes of them; `most` in an epoch, of keys that are as many."""

    def __init__(self, dice: random.Random, read: set[str], most: int) -> None:
        self.dice, self.read, self.most = dice, read, most
        self.keyed: dict[str, dict[tuple, Row]] = {name: {} for name, (_, key) in TABLES.items() if key}
        self.bags: dict[str, list[Row]] = {name: [] for name, (_, key) in TABLES.items() if not key}

    def change(self, driver: Driver | None) -> None:
        """Change some rows, the same ones whatever is read, and send what the app reads."""
        for name, (columns, key) in TABLES.items():
            many = self.dice.choice((0, 1, self.most // 2, self.most))
            sent = [self._changed(name, columns, key) for _ in range(many)]
            if driver is not None and name in self.read and sent:
                driver.send(name, *sent)

    def _changed(self, name: str, columns: dict[str, str], key: tuple[str, ...] | None) -> Row:
        full = {*(key or ()), *(["at"] if name == LATEST else [])}
        row = {column: self._drawn(kind, null=column not in full) for column, kind in columns.items()}
        if key is None:
            self.bags[name].append(row)
            return row
        if name == LATEST:
            before = self.keyed[name].get(hashed(row, key))
            if before is None or row["at"] >= before["at"]:
                self.keyed[name][hashed(row, key)] = row
            return row
        self.keyed[name].pop(hashed(row, key), None)
        if self.dice.random() < 0.3:
            return {name: row[name] for name in key} | {"_deleted": True}
        self.keyed[name][hashed(row, key)] = row
        return row

    def world(self) -> World:
        """Return the rows of this moment."""
        return {name: list(rows.values()) for name, rows in self.keyed.items()} | {
            name: list(rows) for name, rows in self.bags.items()
        }

    def _drawn(self, kind: str, *, null: bool) -> Any:
        if null and self.dice.random() < 0.2:
            return None
        if kind in (INT, LONG) and self.most > MANY:
            return self.dice.randrange(self.most)
        if kind == TEXT and self.most > MANY:
            return f"x{self.dice.randrange(self.most)}"
        return self.dice.choice(DOMAINS[kind])


def play(seed: int, *, programs: int = 6, epochs: int = 4, most: int = 6, shards: int = 2) -> Played:
    """Keep views of random programs while their tables change; compare them after every epoch until one is wrong.

    `most`: how many rows of a table an epoch changes at most.
    """
    played, app, rows, worlds = Played(), hr.App("verbs"), Rows(_dice(seed + 1), set(), most), []
    for _ in range(epochs):
        rows.change(None)
        worlds.append(rows.world())
    try:
        views = _declared(app, _dice(seed), programs, played, worlds)
        with Driver(app, shards=shards) as driver:
            read = {source.topic for source in app.plan().sources()}
            _compare(driver, views, Rows(_dice(seed + 1), read, most), epochs, played)
    except Exception as error:  # noqa: BLE001 -- it is what is looked for
        played.wrong.append(f"{type(error).__name__}: {error}")
    played.wrong = [f"seed {seed}, {wrong}" for wrong in played.wrong]
    return played


def _dice(seed: int) -> random.Random:
    return random.Random(seed)  # noqa: S311 -- test data


def _declared(app: hr.App, dice: random.Random, programs: int, played: Played, worlds: list[World]) -> dict[str, Step]:
    """Declare the tables and the programs, and a view for each program; return the last steps by view."""
    space, drawn, views = _tables(app), Programs(dice), {}
    for number in range(programs):
        last = drawn.program(dice.choice((1, 2, 3, 4)))
        if _affordable(last, worlds) and _built(last, space, played):
            space[last.name].to_view(f"v{number}")
            views[f"v{number}"] = last
        drawn.steps = [step for step in drawn.steps if step.name in space]
    played.kept = len(views)
    return views


def _tables(app: hr.App) -> dict[str, Any]:
    """Return the names that the text of steps may use."""
    streams, tables = {}, {}
    for name, (columns, key) in TABLES.items():
        ddl = ", ".join(f"{column} {kind}" for column, kind in columns.items())
        if name == LATEST:
            tables[name] = app.stream(name, ddl, event_time="at", out_of_order="1 day").latest(*key)
        elif key:
            tables[name] = app.table(name, ddl, key=key)
        else:
            streams[name] = app.stream(name, ddl)
            tables[name] = streams[name].as_table()
    return {"streams": streams, "tables": tables}


def _affordable(step: Step, worlds: list[World]) -> bool:
    """Return whether no join before a step has too many pairs."""
    try:
        for world in worlds:
            step.rows(world)
    except TooManyPairs:
        return False
    return True


def _built(step: Step, space: dict[str, Any], played: Played) -> bool:
    """Run the text of a step and of those before it; return whether all could be."""
    if step.name in space:
        return True
    if not all(_built(up, space, played) for up in step.ups):
        return False
    try:
        made = eval(step.code, {}, space)  # noqa: S307 -- drawn by the grammar
        space[step.name] = made.named(step.name) if NAMED.search(step.code) else made
    except HeadraceError as error:
        played.refused[re.sub('"[^"]*"', "…", str(error).split("\n", maxsplit=1)[0])[:200]] += 1
        return False
    except Exception as error:  # noqa: BLE001 -- it is what is looked for
        played.wrong.append(f"not declared: {_text(step)}\n  {type(error).__name__}: {error}")
        return False
    if list(step.columns) != space[step.name].columns:
        played.wrong.append(f"other columns: {_text(step)}\n  {space[step.name].columns}, not {list(step.columns)}")
    return True


def _text(step: Step) -> str:
    return "\n  ".join(["", *step.lines()])


def _compare(driver: Driver, views: dict[str, Step], rows: Rows, epochs: int, played: Played) -> None:
    def answers(view: str, held: list[Row]) -> tuple[Counter, Counter]:
        names = list(views[view].columns)
        right = views[view].rows(rows.world())
        return Counter(hashed(row, names) for row in held), Counter(hashed(row, names) for row in right)

    texts = {view: _text(step) for view, step in views.items()}
    compare(driver, texts, epochs, played, change=lambda: rows.change(driver), answers=answers)

"""Random programs of verbs over tables that change: run epoch by epoch, and held against the same in plain Python.

`python scripts/random_verbs.py` plays many.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from verb_past import Change, Past, change
from verb_steps import Step, TooManyPairs
from verb_streams import TimedPrograms
from verb_values import DOMAINS, EVENTS, INT, LATEST, LONG, NOON, PARTITIONS, TABLES, TEXT, Row, hashed

import headrace as hr
from headrace.base.errors import HeadraceError
from headrace.testing import Driver, check_deltas
from random_plays import Played, compare

if TYPE_CHECKING:
    from collections.abc import Callable

World = dict[str, Any]
NAMED = re.compile(r"[.](join|agg|top|union|dedupe|suppress|changes)[(]|keep=")
"""Steps that get a name of their own."""
MANY = 100
"""Epochs of more rows have as many different keys and texts."""


class Rows:
    """Random changes of the tables and streams; `most` of one in an epoch, of keys that are as many."""

    def __init__(self, dice: random.Random, read: set[str], most: int) -> None:
        self.dice, self.read, self.most = dice, read, most
        self.changes: list[Change] = []
        self.number = self.epochs = 0
        self.ended = False

    def change(self, driver: Driver | None) -> None:
        """Change some rows, the same ones whatever is read, and send what the app reads."""
        for _ in range(2):
            for name in self.dice.sample(list(TABLES), len(TABLES)):
                columns, key = TABLES[name]
                many = self.dice.choice((0, 1, self.most // 4, self.most // 2))
                sent = [self._changed(name, columns, key) for _ in range(many)]
                self.number += 1
                partition = self.dice.randrange(PARTITIONS.get(name, 1))
                self.changes += [change(self.number, self.epochs, name, row, partition) for row in sent]
                if driver is not None and name in self.read and sent:
                    driver.send(name, *sent, partition=partition)
        self.epochs += 1

    def _changed(self, name: str, columns: dict[str, str], key: tuple[str, ...] | None) -> Row:
        full = {*(key or ()), *(["at"] if name == LATEST else [])}
        row = {column: self._drawn(kind, null=column not in full) for column, kind in columns.items()}
        if name in EVENTS:
            row["at"] = NOON + timedelta(seconds=self.epochs * 90 + self.dice.randrange(10) * 30)
        if key is not None and name != LATEST and self.dice.random() < 0.3:
            return {name: row[name] for name in (*key, *["at"] * (name in EVENTS))} | {"_deleted": True}
        return row

    def end(self, driver: Driver) -> None:
        """End the input."""
        driver.finish()
        self.ended = True

    def world(self) -> World:
        """Return the rows of this moment."""
        return Past(list(self.changes), self.epochs, self.ended).world()

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

    `most`: how many rows of a table an epoch changes at most. Apps of odd seeds run as many epochs as one that runs by
    itself, others until nothing moves.
    """
    played, app, rows, worlds = Played(), hr.App("verbs"), Rows(_dice(seed + 1), set(), most), []
    for _ in range(epochs):
        rows.change(None)
        worlds.append(rows.world())
    try:
        views = _declared(app, _dice(seed), programs, played, worlds)
        with Driver(app, shards=shards) as driver:
            read = {source.topic for source in app.plan().sources()}
            rest = partial(_rest, driver) if seed % 2 else None
            _compare(driver, views, Rows(_dice(seed + 1), read, most), epochs, played, rest)
    except Exception as error:  # noqa: BLE001 -- it is what is looked for
        played.wrong.append(f"{type(error).__name__}: {error}")
    played.wrong = [f"seed {seed}, {wrong}" for wrong in played.wrong]
    return played


def _dice(seed: int) -> random.Random:
    return random.Random(seed)  # noqa: S311 -- test data


def _declared(app: hr.App, dice: random.Random, programs: int, played: Played, worlds: list[World]) -> dict[str, Step]:
    """Declare the tables and the programs, and a view for each program; return the last steps by view."""
    space, drawn, views = _tables(app), TimedPrograms(dice), {}
    for number in range(programs):
        last = drawn.program(dice.choice((1, 2, 3, 4)))
        if _affordable(last, worlds) and _built(last, space, played):
            space[last.name].to_view(f"v{number}")
            if NAMED.search(last.code):  # others may share a name
                check_deltas(space[last.name], net=False)
            views[f"v{number}"] = last
        drawn.keep(space)
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
            timing = {"event_time": "at", "out_of_order": f"{EVENTS[name]} seconds",
                      "history": "1 hour"} if name in EVENTS else {}  # fmt: skip
            tables[name] = app.table(name, ddl, key=key, **timing)
        elif name in EVENTS:
            streams[name] = app.stream(name, ddl, event_time="at", out_of_order=f"{EVENTS[name]} seconds",
                                       partitions=PARTITIONS.get(name, 1))  # fmt: skip
        else:
            streams[name] = app.stream(name, ddl)
            tables[name] = streams[name].as_table()
    return {"streams": streams, "tables": tables, "hr": hr}


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


def _rest(driver: Driver) -> None:
    """Run epochs as an app does that runs by itself: until another would emit nothing."""
    driver.step()
    while not driver.caught_up:
        driver.step()


def _compare(driver: Driver, views: dict[str, Step], rows: Rows, epochs: int, played: Played,
             rest: Callable[[], None] | None) -> None:  # fmt: skip
    def answers(view: str, held: list[Row]) -> tuple[Counter, Counter]:
        names = list(views[view].columns)
        right = views[view].rows(now[0])
        return Counter(hashed(row, names) for row in held), Counter(hashed(row, names) for row in right)

    def changed() -> None:
        rows.change(driver)
        now[0] = rows.world()

    def ended() -> None:
        rows.end(driver)
        now[0] = rows.world()

    now = [rows.world()]
    texts = {view: _text(step) for view, step in views.items()}
    compare(driver, texts, epochs, played, change=changed, answers=answers, end=ended, rest=rest)

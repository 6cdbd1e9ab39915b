"""Random programs over tables that are changed on one storage: refused, or right for all rows from then on.

Views that something else than tables with keys leads to are compared as long as nothing of them changes.

`python scripts/random_upgrades.py` plays many.
"""

from __future__ import annotations

import random
import re
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from random_verbs import NAMED, Rows, _affordable, _tables
from verb_grammar import Programs
from verb_values import EVENTS, LOOSE, TABLES, hashed

import headrace as hr
from headrace.base.errors import HeadraceError, PlanChanged
from headrace.base.time import ManualClock
from headrace.testing import Driver
from random_plays import SHOWN, Played

if TYPE_CHECKING:
    from collections.abc import Container

    from verb_steps import Step

BAGS = tuple(name for name, (_, key) in TABLES.items() if not key and name not in EVENTS)
"""Streams that are read as tables: nothing keeps their rows, so what is new over one begins with those from then on."""
READ = (*(name for name, (_, key) in TABLES.items() if key), *BAGS)
OF_BAGS = re.compile(rf"tables\['[{''.join(BAGS)}]'\]")
VERBS = {
    "where(": "_where", "with_columns(": "_with", "select(": "_narrow", "agg(": "_aggregated", "top(": "_top",
    "join(": "_joined", "explode(": "_explode", "union(": "_union",
}  # fmt: skip


class TablePrograms(Programs):
    """Draws programs over tables without windows."""

    def _source(self) -> Step:
        shared = [step for step in self.steps if LOOSE not in step.columns.values()]
        if shared and self.dice.random() < 0.5:
            return self.dice.choice(shared)
        name = self.dice.choice(READ)
        return self._made(f"tables[{name!r}]", dict(TABLES[name][0]), lambda world: world[name])

    def another(self, step: Step) -> Step | None:
        """Return another step of the same verb and columns over the same step, or None where none was drawn."""
        verb = next((verb for word, verb in VERBS.items() if f".{word}" in step.code), None)
        if verb is None:
            return None
        for _ in range(20):
            drawn = getattr(self, verb)(step.ups[0])
            if drawn is not None and list(drawn.columns.items()) == list(step.columns.items()):
                return drawn
        return None


@dataclass
class Program:
    """The views of an app, by name their last steps; and by step the name that it has, and the one that it had."""

    views: dict[str, Step]
    drawn: TablePrograms
    names: dict[str, str] = field(default_factory=dict)
    was: dict[str, str] = field(default_factory=dict)

    def app(self, played: Played) -> tuple[hr.App, dict[str, Step]]:
        """Return the app, and its views that could be declared."""
        app, views = hr.App("changed"), {}
        space = _tables(app)
        for name in READ:
            space["tables"][name].to_view(f"all_{name}")
        for view, last in self.views.items():
            if self._built(last, space, played):
                space[last.name].to_view(view)
                views[view] = last
        return app, views

    def _built(self, step: Step, space: dict[str, Any], played: Played) -> bool:
        if step.name in space:
            return True
        if not all(self._built(up, space, played) for up in step.ups):
            return False
        try:
            made = eval(step.code, {}, space)  # noqa: S307 -- drawn by the grammar
            if NAMED.search(step.code):
                stateful = ".union(" not in step.code
                made = made.named(self.names.get(step.name, step.name),
                                  renamed_from=self.was.get(step.name) if stateful else None)  # fmt: skip
        except HeadraceError as error:
            played.refused[re.sub('"[^"]*"', "…", str(error).split("\n", maxsplit=1)[0])[:120]] += 1
            return False
        space[step.name] = made
        return True

    def change(self, dice: random.Random) -> None:
        """Change one thing."""
        dice.choice((self._drop, self._add, self._replace, self._replace, self._replace, self._rename, self._swap,
                     self._shuffle))(dice)  # fmt: skip

    def _steps(self) -> list[Step]:
        found: dict[str, Step] = {}

        def visit(step: Step) -> None:
            if step.name not in found:
                found[step.name] = step
                for up in step.ups:
                    visit(up)

        for last in self.views.values():
            visit(last)
        return list(found.values())

    def _drop(self, dice: random.Random) -> None:
        self.views.pop(dice.choice(list(self.views)))

    def _add(self, dice: random.Random) -> None:
        self.drawn.dice = dice
        self.views[f"v{len(self.drawn.steps)}"] = self.drawn.program(dice.choice((1, 2)))

    def _replace(self, dice: random.Random) -> None:
        self.drawn.dice = dice
        step = dice.choice(self._steps())
        other = self.drawn.another(step) if step.ups else None
        if other is not None:
            step.code, step.of, step.ups = other.code, other.of, other.ups

    def _stateful(self) -> list[str]:
        return [step.name for step in self._steps() if NAMED.search(step.code)]

    def _rename(self, dice: random.Random) -> None:
        if named := self._stateful():
            step = dice.choice(named)
            old, self.names[step] = self.names.get(step, step), f"n{dice.randrange(10**6)}"
            if dice.random() < 0.7:
                self.was[step] = old

    def _swap(self, dice: random.Random) -> None:
        if len(named := self._stateful()) > 1:
            one, two = dice.sample(named, 2)
            self.names[one], self.names[two] = self.names.get(two, two), self.names.get(one, one)

    def _shuffle(self, dice: random.Random) -> None:
        self.views = dict(dice.sample(list(self.views.items()), len(self.views)))


def program(seed: int, programs: int, worlds: list[dict], changes: tuple[int, ...] = ()) -> Program:
    """Return the program of a seed after changes, each of a seed and some of them; equal seeds give equal programs."""
    dice = _dice(seed)
    drawn = TablePrograms(dice)
    made = Program({f"w{number}": drawn.program(dice.choice((1, 2, 3))) for number in range(programs)}, drawn)
    for change in changes:
        by = _dice(change)
        for _ in range(by.choice((1, 1, 2, 3))):
            if made.views:
                made.change(by)
    made.views = {view: last for view, last in made.views.items() if _affordable(last, worlds)}
    return made


def play(seed: int, *, programs: int = 4, epochs: int = 2, starts: int = 4, most: int = 5) -> Played:
    """Start changed programs on one storage; compare all views after every epoch of those that are not refused."""
    played, accepted, worlds = Played(), (), []
    rows = Rows(_dice(seed + 1), set(), most)
    for _ in range(epochs * starts):
        rows.change(None)
        worlds.append(rows.world())
    right: dict[str, list[str]] = {}
    rows, clock = Rows(_dice(seed + 1), set(READ), most), ManualClock()
    with tempfile.TemporaryDirectory() as storage:
        for start in range(starts):
            wanted = _dice(seed * 100 + start).choice(((), (*accepted, seed * 100 + start))) if start else ()
            for changes in (wanted, accepted):
                try:
                    text = f"seed {seed}, start {start}, changes {accepted} to {changes}"
                    made = program(seed, programs, worlds, changes)
                    comparable = {
                        view: last.lines()
                        for view, last in made.views.items()
                        if not start or right.get(view) == last.lines() or not OF_BAGS.search(str(last.lines()))
                    }
                    driver = _opened(made, comparable, storage, clock, played)
                    if driver is not None:
                        _run(*driver, rows, epochs, played, text)
                        accepted, right = changes, comparable
                        break
                except Exception as error:  # noqa: BLE001 -- it is what is looked for
                    played.wrong.append(f"{text}: {type(error).__name__}: {error}")
                    return played
            else:
                played.wrong.append(f"{text}: it ran before, and is refused")
            if played.wrong:
                return played
    return played


def _dice(seed: int) -> random.Random:
    return random.Random(seed)  # noqa: S311 -- test data


def _opened(made: Program, comparable: Container[str], storage: str, clock: ManualClock,
            played: Played) -> tuple[Driver, dict[str, Step]] | None:  # fmt: skip
    """Return the app of a program with the views that are compared, or None where it is refused."""
    app, views = made.app(played)
    try:
        driver = Driver(app, storage=storage, shards=2, clock=clock)
    except PlanChanged as error:
        played.refused[re.sub('"[^"]*"|[0-9]+', "…", error.what)[:120]] += 1
        return None
    return driver, {view: last for view, last in views.items() if view in comparable}


def _run(driver: Driver, views: dict[str, Step], rows: Rows, epochs: int, played: Played, text: str) -> None:
    """Run epochs; compare the views before the first and after each."""
    with driver:
        said = driver.changes.lines()
        played.kept += len(views)
        for epoch in range(epochs + 1):
            if epoch:
                rows.change(driver)
            driver.run()
            world = rows.world()
            for view, last in views.items():
                names = list(last.columns)
                ours = Counter(hashed(row, names) for row in driver.view(view))
                theirs = Counter(hashed(row, names) for row in last.rows(world))
                played.answers += bool(theirs)
                if ours != theirs:
                    lines = "\n  ".join([*last.lines(), *said])
                    more, less = ours - theirs, theirs - ours
                    shown = f"too many {dict(list(more.items())[:SHOWN])}, missing {dict(list(less.items())[:SHOWN])}"
                    played.wrong.append(f"{text}, {view}, epoch {epoch}:\n  {lines}\n  {shown}")
            if played.wrong:
                return

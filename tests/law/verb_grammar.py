"""Random programs of verbs over tables: each step is Python text beside what it makes of rows, in plain Python.

Rows have values of every type, with nulls, NaN and -0.0; tables have keys or are bags. No part of the engine answers.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING

from verb_aggregates import aggregate
from verb_steps import Join, Step, Top
from verb_values import (
    CONSTANTS,
    EVENTS,
    INT,
    KINDS,
    LIST,
    LONG,
    LOOSE,
    MAP,
    ORDERED,
    PLAIN,
    STRUCT,
    TABLES,
    TEXT,
    VALUES,
    Expression,
    Row,
    compared,
    hashed,
    hidden,
)

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Sequence


@dataclass
class Programs:
    """Draws the steps of an app."""

    dice: random.Random
    steps: list[Step] = field(default_factory=list)
    names: count = field(default_factory=count)

    def program(self, deep: int) -> Step:
        """Return the last step of a chain of so many, which others of the app may share."""
        step = self._source()
        for _ in range(deep):
            step = self._next(step)
        if self.dice.random() < 0.3:
            step = self._aggregated(step, loose=True)
        return step

    def _source(self) -> Step:
        shared = [step for step in self.steps if LOOSE not in step.columns.values()]
        if shared and self.dice.random() < 0.4:
            return self.dice.choice(shared)
        name = self.dice.choice([name for name, (_, key) in TABLES.items() if key or name not in EVENTS])
        columns = dict(TABLES[name][0])
        if TABLES[name][1] is None and self.dice.random() < 0.3:
            return self._branch(name, columns)
        return self._made(f"tables[{name!r}]", columns, lambda world: world[name])

    def _branch(self, name: str, columns: dict[str, str], end: str = ".as_table()") -> Step:
        tests = [self.test(columns) for _ in range(2)]
        which = self.dice.choice((0, 1, 2))
        return self._made(
            f'streams[{name!r}].branch(one="{tests[0].sql}", two="{tests[1].sql}")[{("one", "two", None)[which]!r}]'
            f"{end}",
            columns,
            lambda world: [
                row
                for row in world[name]
                if next((at for at, test in enumerate(tests) if test.of(row) is True), 2) == which
            ],
        )

    def _next(self, step: Step) -> Step:
        if len(step.columns) > 9:
            step = self._narrow(step)
        verb = self.dice.choices(
            (self._where, self._with, self._narrow, self._renamed, self._joined, self._aggregated, self._top,
             self._union, self._explode),
            (3, 2, 1, 1, 5, 3, 3, 2, 1),
        )[0]  # fmt: skip
        return verb(step) or step

    def _made(self, code: str, columns: dict[str, str], of: Callable, *ups: Step) -> Step:
        step = Step(f"s{next(self.names)}", code, columns, of, ups)
        self.steps.append(step)
        return step

    def _named(self, step: Step, kinds: Sequence[str]) -> list[str]:
        return [name for name, kind in step.columns.items() if kind in kinds]

    # ---- rows ----

    def _where(self, step: Step) -> Step:
        test = self.test(step.columns)
        return self._made(
            f'{step.name}.where("{test.sql}")',
            step.columns,
            lambda world: [row for row in step.rows(world) if test.of(row) is True],
            step,
        )

    def _with(self, step: Step) -> Step:
        kind = self.dice.choice((*PLAIN, STRUCT, LIST))
        name = self.dice.choice([*step.columns, "n", "z"])
        value = self._nested(step.columns, kind) if kind in (STRUCT, LIST) else self._value(step.columns, kind)
        return self._made(
            f'{step.name}.with_columns({name}="CAST({value.sql} AS {kind})")',
            step.columns | {name: kind},
            lambda world: [row | {name: value.of(row)} for row in step.rows(world)],
            step,
        )

    def _narrow(self, step: Step) -> Step:
        names = self.dice.sample(list(step.columns), self.dice.randint(1, min(6, len(step.columns))))
        return self._made(
            f"{step.name}.select({', '.join(map(repr, names))})",
            {name: step.columns[name] for name in names},
            lambda world: [{name: row[name] for name in names} | hidden(row) for row in step.rows(world)],
            step,
        )

    def _renamed(self, step: Step) -> Step:
        old = self.dice.choice(list(step.columns))
        new = self.dice.choice([name for name in ("k", "v", "s", "g", "h") if name not in step.columns] or [old])
        return self._made(
            f'{step.name}.rename({new}="{old}")',
            {new if name == old else name: kind for name, kind in step.columns.items()},
            lambda world: [
                {new if name == old else name: value for name, value in row.items()} for row in step.rows(world)
            ],
            step,
        )

    def _explode(self, step: Step) -> Step | None:
        lists, numbers = self._named(step, (LIST,)), self._named(step, (INT,))
        if (not numbers and not lists) or "e" in step.columns:
            return None
        if lists and self.dice.random() < 0.6:
            name = self.dice.choice(lists)
            sql, of = name, lambda row: row[name] or ()
        else:
            if not numbers:
                return None
            name = self.dice.choice(numbers)
            sql, of = f"array({name}, 7)", lambda row: (row[name], 7)
        return self._made(
            f'{step.name}.explode("{sql}", "e")',
            step.columns | {"e": INT},
            lambda world: [row | {"e": each} for row in step.rows(world) for each in of(row)],
            step,
        )

    def _union(self, step: Step, other: Step | None = None) -> Step:
        other = other or self._source()
        kinds = self.dice.sample(KINDS, 3)
        kinds = [kind for kind in kinds if self._named(step, (kind,)) and self._named(other, (kind,))] or [INT]
        sides = []
        for side in (step, other):
            values = {f"c{i}": self._value(side.columns, kind, bare=True) for i, kind in enumerate(kinds)}
            given = ", ".join(f'{name}="CAST({value.sql} AS {kinds[int(name[1:])]})"' for name, value in values.items())
            sides.append(
                self._made(
                    f"{side.name}.select({given})",
                    {f"c{i}": kind for i, kind in enumerate(kinds)},
                    lambda world, side=side, values=values: [
                        {name: value.of(row) for name, value in values.items()} | hidden(row)
                        for row in side.rows(world)
                    ],
                    side,
                )
            )
        one, two = sides
        return self._made(
            f"{one.name}.union({two.name})", one.columns, lambda world: one.rows(world) + two.rows(world), one, two
        )

    # ---- joins ----

    def _joined(self, step: Step) -> Step | None:
        other = step if self.dice.random() < 0.1 else self._source()
        if self.dice.random() < 0.2:
            other = self._aggregated(step)
        elif self.dice.random() < 0.2:
            other = self._next(other)
        if len(other.columns) > 7:
            other = self._narrow(other)
        pairs = [
            (one, two)
            for one, kind in step.columns.items()
            for two, its in other.columns.items()
            if (kind == its and kind not in (LOOSE, MAP)) or {kind, its} == {INT, LONG}
        ]
        same = [pair for pair in pairs if pair[0] == pair[1]]
        if not pairs:
            return None
        on = [self.dice.choice(same if same and self.dice.random() < 0.5 else pairs)]
        on += [pair for pair in self.dice.sample(pairs, min(2, len(pairs)))
               if self.dice.random() < 0.3 and pair[0] != on[0][0] and pair[1] != on[0][1]][:1]  # fmt: skip
        how = self.dice.choice(("inner", "left", "right", "full", "full", "semi", "anti"))
        join = Join(step, other, tuple(on), how, f"_r{next(self.names)}")
        test = self.test(join.both) if self.dice.random() < 0.4 else None
        where = f', where="{test.sql}"' if test else ""
        text = repr(dict(on)) if any(one != two for one, two in on) else repr([a for a, _ in on])
        return self._made(
            f'{step.name}.join({other.name}, on={text}, how="{how}", suffix="{join.suffix}"{where})',
            step.columns if how in ("semi", "anti") else join.both,
            lambda world: join.rows(world, test.of if test else None),
            step,
            other,
        )

    # ---- groups ----

    def _keys(self, step: Step, least: int = 0) -> list[str]:
        fitting = [name for name, kind in step.columns.items() if kind not in (LOOSE, MAP)]
        return self.dice.sample(fitting, min(len(fitting), self.dice.choice((least, 1, 1, 1, 2))))

    def _aggregated(self, step: Step, *, loose: bool = False) -> Step:
        keys, drawn = self._keys(step), {}
        if self.dice.random() < 0.15:
            step = self._with(step)
            keys = self._keys(step)
        for name in self.dice.sample(("k", "v", "s", "a0", "a1", "a2"), self.dice.randint(1, 3)):
            if name not in keys:
                drawn[name] = aggregate(self, step.columns, loose=loose)
        drawn = drawn or {"a0": aggregate(self, step.columns, loose=loose)}
        given = ", ".join(f'{name}="{each.sql}"' for name, each in drawn.items())
        listed = ", ".join(map(repr, keys))

        def of(world: dict) -> list[Row]:
            groups = defaultdict(list)
            for row in step.rows(world):
                groups[hashed(row, keys)].append(row)
            return [
                {key: rows[0][key] for key in keys} | {name: each.of(rows) for name, each in drawn.items()}
                for rows in groups.values()
            ]

        columns = {key: step.columns[key] for key in keys} | {name: each.kind for name, each in drawn.items()}
        return self._made(f"{step.name}.group_by({listed}).agg({given})", columns, of, step)

    def _top(self, step: Step) -> Step | None:
        keys = self._keys(step)
        numbers = [key for key in keys if step.columns[key] in (INT, LONG)]
        of_key = self.dice.choice(numbers) if numbers and self.dice.random() < 0.4 else None
        number = self.dice.choice((1, 1, 2, 3))
        fitting = [name for name, kind in step.columns.items() if name not in keys and kind in ORDERED] or [
            name for name, kind in step.columns.items() if kind in ORDERED
        ]
        if not fitting:
            return None
        chosen = self.dice.sample(fitting, min(len(fitting), self.dice.choice((1, 1, 2))))
        order = [(name, self.dice.random() < 0.5, self.dice.choice((None, None, True, False))) for name in chosen]
        words = {None: "", True: " nulls first", False: " nulls last"}
        by = ", ".join(f"{name} {'desc' if down else 'asc'}{words[nulls]}" for name, down, nulls in order)
        ties = self.dice.choice(("row_number", "row_number", "rank", "dense_rank"))
        rank = "place" if self.dice.random() < 0.4 and "place" not in step.columns else None
        top = Top(step, tuple(keys), order, of_key or number, ties, rank)
        listed = ", ".join(map(repr, keys))
        more = (f', rank="{rank}"' if rank else "") + (f', ties="{ties}"' if ties != "row_number" else "")
        return self._made(
            f'{step.name}.group_by({listed}).top({of_key or number!r}, "{by}"{more})',
            step.columns | ({"place": INT} if rank else {}),
            top.rows,
            step,
        )

    # ---- expressions ----

    def number(self) -> int:
        """Return a small number."""
        return self.dice.choice((0, 1, 1, 2, 3))

    def column(self, columns: dict[str, str], kind: str) -> Expression | None:
        """Return a column of a kind, if there is one."""
        fitting = [name for name, its in columns.items() if its == kind]
        structs = [name for name, its in columns.items() if its == STRUCT and kind in (INT, TEXT)]
        lists = [name for name, its in columns.items() if its == LIST and kind == INT]
        if structs and (not fitting or self.dice.random() < 0.3):
            name, part = self.dice.choice(structs), "a" if kind == INT else "b"
            return Expression(f"{name}.{part}", lambda row: None if row[name] is None else row[name][part])
        if lists and (not fitting or self.dice.random() < 0.1):
            name = self.dice.choice(lists)
            return Expression(f"size({name})", lambda row: None if row[name] is None else len(row[name]))
        if not fitting:
            return None
        name = self.dice.choice(fitting)
        return Expression(name, lambda row: row[name])

    def _constant(self, kind: str) -> Expression:
        if kind not in CONSTANTS:
            return Expression(f"CAST(NULL AS {kind})", lambda _: None)
        text = self.dice.choice(CONSTANTS[kind])
        return Expression(text, lambda _: VALUES[text])

    def _value(self, columns: dict[str, str], kind: str, *, bare: bool = False) -> Expression:
        column = self.column(columns, kind) or self._constant(kind)
        draw = self.dice.random()
        if bare or draw < 0.4:
            return column
        other = self.column(columns, kind) or self._constant(kind)
        if draw < 0.6:
            return Expression(
                f"coalesce({column.sql}, {other.sql})",
                lambda row: other.of(row) if column.of(row) is None else column.of(row),
            )
        if draw < 0.8 or kind not in (INT, LONG):
            test = self.test(columns)
            return Expression(
                f"case when {test.sql} then {column.sql} else {other.sql} end",
                lambda row: column.of(row) if test.of(row) is True else other.of(row),
            )
        return Expression(
            f"{column.sql} % 3 + 1",
            lambda row: None if column.of(row) is None else int(math.fmod(column.of(row), 3)) + 1,
        )

    def _nested(self, columns: dict[str, str], kind: str) -> Expression:
        one = self._value(columns, INT)
        if kind == LIST:
            other = self._value(columns, INT)
            return Expression(f"array({one.sql}, {other.sql})", lambda row: [one.of(row), other.of(row)])
        text = self._value(columns, TEXT)
        return Expression(
            f"named_struct('a', {one.sql}, 'b', {text.sql})", lambda row: {"a": one.of(row), "b": text.of(row)}
        )

    def test(self, columns: dict[str, str]) -> Expression:
        """Return a condition."""
        draw = self.dice.random()
        kind = self.dice.choice([kind for kind in columns.values() if kind != LOOSE] or [INT])
        if kind in (STRUCT, LIST, MAP):
            draw = 0.3
        one = self.column(columns, kind) or self._constant(kind)
        if draw < 0.2:
            left, right = self.test(columns), self.test(columns)
            if draw < 0.1:
                return Expression(f"({left.sql} and {right.sql})", lambda row: _and(left.of(row), right.of(row)))
            return Expression(
                f"({left.sql} or {right.sql})",
                lambda row: _not(_and(_not(left.of(row)), _not(right.of(row)))),
            )
        if draw < 0.25:
            inner = self.test(columns)
            return Expression(f"not ({inner.sql})", lambda row: _not(inner.of(row)))
        if draw < 0.4:
            no = self.dice.random() < 0.5
            return Expression(f"{one.sql} is {'not ' * no}null", lambda row: (one.of(row) is None) != no)
        other = self.column(columns, kind) if self.dice.random() < 0.5 else None
        other = other or self._constant(kind)
        word = self.dice.choice(("=", "<", "<>", ">=", "<=>"))
        return Expression(f"{one.sql} {word} {other.sql}", lambda row: _meets(word, one.of(row), other.of(row)))


def _and(one: object, other: object) -> bool | None:
    return False if one is False or other is False else None if one is None or other is None else True


def _not(one: object) -> bool | None:
    return None if one is None else not one


def _meets(word: str, one: object, other: object) -> bool | None:
    found = compared(one, other)
    if word == "<=>":
        return found == 0
    if one is None or other is None:
        return None
    return {"=": found == 0, "<": found < 0, "<>": found != 0, ">=": found >= 0}[word]

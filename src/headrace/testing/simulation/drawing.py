"""Draws a case from a seed: a program that the app accepts, its input with disorder, and what happens to it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random
from typing import Any

from headrace.base.errors import HeadraceError
from headrace.testing.faults import POINTS
from headrace.testing.files import FAULTS
from headrace.testing.simulation.accidents import drawn
from headrace.testing.simulation.case import BOUNDED, COLUMNS, EVER, FIRST, Action, Case, Output, Step
from headrace.testing.simulation.shapes import DELAY, Shape
from headrace.testing.simulation.vocabulary import WORDS

MOST_TRIES, MOST_INPUTS = 60, 6
"""Of steps of a program, and of inputs of a step: a word that few inputs fit is to be drawn as well."""
SOURCES = {
    "s": ("stream", f'app.stream("s", SCHEMA, key="id", event_time="ts", out_of_order="{EVER}", partitions={{n}})'),
    "l": (
        "stream",
        f'app.stream("l", SCHEMA, key="id", event_time="ts", out_of_order="{DELAY} seconds", partitions=1)',
    ),
    "i": ("stream", 'app.stream("i", SCHEMA, key="id", event_time="ts", partitions={n})'),
    "t": ("table", f'app.table("t", SCHEMA, key="id", event_time="ts", out_of_order="{EVER}", partitions={{n}})'),
    "u": ("table", f'app.table("u", SCHEMA, key="id", event_time="ts", out_of_order="{EVER}", partitions=1)'),
}
"""A stream in any order, one with late rows, one in order, and two tables; how many partitions differs by the case."""


@dataclass(frozen=True)
class Size:
    """How large a case is: the least and the most of each."""

    sources: tuple[int, int]
    steps: tuple[int, int]
    rounds: tuple[int, int]


SIZES = {Size((1, 2), (1, 2), (1, 2)): 80, Size((1, 3), (2, 4), (2, 4)): 17, Size((1, 4), (1, 7), (2, 8)): 3}
"""Of a hundred cases so many. Most bugs show in a small one, which takes a tenth of the time of a large one."""


def draw(seed: int, *, accidents: bool = False) -> Case:
    """Return the case of a seed; with `accidents`, the same one with one or two of them more."""
    dice = Random(seed)  # noqa: S311 -- replayed from its seed
    size = dice.choices([*SIZES], [*SIZES.values()])[0]
    steps, shapes = _program(dice, size)
    outputs = _outputs(dice, steps, shapes)
    case = Case(tuple(steps), tuple(outputs), (), shards=dice.choice((1, 1, 2, 3)), seed=seed)
    case = needed(case)
    sources = [step.name for step in case.steps if step.name in SOURCES]
    case = replace(case, actions=tuple(_actions(dice, size, sources)))
    return replace(case, actions=drawn(case)) if accidents else case


def needed(case: Case) -> Case:
    """Return a case without the steps that no output shows."""
    used = {output.step for output in case.outputs}
    for step in reversed(case.steps):
        if step.name in used:
            used.update(step.inputs)
    return replace(case, steps=tuple(step for step in case.steps if step.name in used))


def _program(dice: Random, size: Size) -> tuple[list[Step], dict[str, Shape]]:
    partitions = dice.choice((1, 2))
    steps, shapes = [], {}
    for name in dice.sample([*SOURCES, BOUNDED], dice.randint(*size.sources)):
        if name == BOUNDED:
            given, shapes[name] = _bounded(dice)
            steps.append(given)
            continue
        kind, code = SOURCES[name]
        steps.append(Step(name, (), code.replace("{n}", str(partitions)), f"SELECT * FROM {name}_current"))
        shapes[name] = Shape(
            table=kind == "table",
            source=True,
            timed=True,
            records=kind == "table",
            late=name == "l",
            ordered=name == "i",
            key=("id",),
        )
    wanted, tries = len(steps) + dice.randint(*size.steps), 0
    built = Case(tuple(steps)).names()
    while len(steps) < wanted and tries < MOST_TRIES:
        tries += 1
        step, shape = _step(dice, f"x{len(steps)}", shapes)
        if step is None or shape is None:
            continue
        try:
            exec(step.line(), built)  # noqa: S102 -- our own text
        except HeadraceError:
            continue  # the app refuses it: so would a user have been
        steps.append(step)
        shapes[step.name] = replace(shape, key=built[step.name].node.key)
    return steps, shapes


def _bounded(dice: Random) -> tuple[Step, Shape]:
    """Return a table whose rows are in the program. They were there before any record: their place is -1."""
    drawn_rows = [row for row in _rows(dice, Clock(), "s") if row[4] is not None] or [(1, "a", 1, 1, FIRST)]
    rows = [(number, *row[1:]) for number, row in enumerate(drawn_rows, start=1)]
    timed = dice.random() < 0.5
    values = [dict(zip(COLUMNS, row, strict=True)) for row in rows]
    kinds = ("INT", "STRING", "INT", "BIGINT", "BIGINT")
    shown = ", ".join(
        "("
        + ", ".join(f"CAST({_literal(value)} AS {kind})" for value, kind in zip(_micros(row), kinds, strict=True))
        + ")"
        for row in rows
    )
    text = f"SELECT {', '.join(COLUMNS)}, CAST(-1 AS BIGINT) AS _seq, CAST(NULL AS BIGINT) AS _w "
    event_time = ', event_time="ts"' if timed else ""
    step = Step(
        BOUNDED,
        (),
        f'app.table("{BOUNDED}", SCHEMA, key="id"{event_time}, values={values!r})'.replace("{", "{{").replace(
            "}", "}}"
        ),
        text + f"FROM (VALUES {shown}) AS given({', '.join(COLUMNS)})",
    )
    return step, Shape(table=True, source=True, timed=timed, records=True, key=("id",))


def _micros(row: tuple[Any, ...]) -> tuple[Any, ...]:
    return (*row[:4], row[4] * 1000)


def _literal(value: Any) -> str:
    return "NULL" if value is None else repr(value)


def _step(dice: Random, name: str, shapes: dict[str, Shape]) -> tuple[Step | None, Shape | None]:
    word = dice.choice(WORDS)
    # what was made last is used rather than the sources again and again
    ordered = list(shapes)
    for _ in range(MOST_INPUTS):
        inputs = tuple(ordered[-1 - int(len(ordered) * dice.random() ** 1.6)] for _ in range(word.inputs))
        given = tuple(shapes[each] for each in inputs)
        if word.takes(given):
            code, sql, shape = word.draw(dice, given)
            return Step(name, inputs, code, sql), shape
    return None, None


def _outputs(dice: Random, steps: list[Step], shapes: dict[str, Shape]) -> list[Output]:
    used = {name for step in steps for name in step.inputs}
    outputs = []
    for step in steps:
        shape = shapes[step.name]
        leaf = step.name not in used
        if leaf or dice.random() < 0.3:
            outputs.append(Output(f"v_{step.name}", step.name, "view", shape.waits))
        may_be_a_topic = not shape.table or bool(shape.key)
        if may_be_a_topic and step.inputs and dice.random() < 0.4:
            outputs.append(Output(f"o_{step.name}", step.name, "topic", shape.waits))
        if shape.late_rows is not None:
            outputs.append(Output(f"late_{step.name}", step.name, "late", sql=shape.late_rows.format(*step.inputs)))
    return outputs


# ---- what happens ----


def _actions(dice: Random, size: Size, sources: list[str]) -> list[Action]:
    actions: list[Action] = []
    hours = Clock()
    crashes, durable = dice.random(), dice.random() < 0.3
    for _ in range(dice.randint(*size.rounds)):
        actions += [("send", name, _rows(dice, hours, name)) for name in sources if dice.random() < 0.75]
        actions.append(_epoch(dice, crashes, durable=durable))
        if dice.random() < 0.15:
            actions.append(("restart",))
        if dice.random() < 0.2:
            actions.append(("check",))
        hours.second += dice.choice((0, 3, 8, 25))
    return actions


def _crash(dice: Random) -> Action:
    return ("crash", dice.choice(POINTS))


def _fault(dice: Random) -> Action:
    return (
        "fault",
        int(dice.expovariate(1 / 25)),
        dice.choice(FAULTS),
        dice.choice(("epoch", "epoch", "epoch", "start")),
    )


def _power(dice: Random) -> Action:
    return ("power", int(dice.expovariate(1 / 25)), dice.randrange(1 << 30))


def _epoch(dice: Random, crashes: float, *, durable: bool) -> Action:
    if dice.random() < crashes:
        return dice.choice((_crash, _crash, _fault, _power if durable else _fault))(dice)
    if dice.random() < 0.15:
        return ("twice",)
    return ("step",)


class Clock:
    """Where event time is, that of the last row of the stream in order, and the ids that were given."""

    def __init__(self) -> None:
        self.second = 0
        self.last = FIRST
        self.ids = 0


def _rows(dice: Random, clock: Clock, source: str) -> tuple[tuple[Any, ...], ...]:
    """Return rows in the order of the columns, `at` in milliseconds; of a table also `(id, at)`: a delete."""
    rows: list[tuple[Any, ...]] = []
    for _ in range(dice.choice((1, 2, 3, 5, 9))):
        behind = dice.choice((0, 0, 0, 1, 4, 9, 40))
        at = FIRST + 1000 * max(0, clock.second + dice.randint(0, 6) - behind) + dice.choice((0, 0, 0, 1, 999))
        if source == "i":
            at = clock.last = max(at, clock.last)
        if source in "tu":
            number = dice.randint(1, 6)
            if dice.random() < 0.25:
                rows.append((number, at))
                continue
        elif rows and dice.random() < 0.1:
            rows.append(rows[-1])
            continue
        else:
            clock.ids += 1
            number = clock.ids
        value = dice.choice((None, -3, 0, 1, 2, 3, 7))
        when = None if source in "sl" and dice.random() < 0.02 else at
        rows.append((number, dice.choice(("a", "b", "é", "", None)), dice.choice((0, 1, 2, None)), value, when))
    return tuple(rows)

"""Lookups by their rules, change by change: what each row of the stream meets, and cases to hold against it."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass

import headrace as hr
from headrace.testing import Driver, check_deltas

LEFT = "id int, k int, g string, at timestamp"
RIGHT = "k int, g string, n int, since timestamp"
FIRST = 1_767_225_600_000
SECONDS = 10
GROUPS = ["a", "b", "", None]


@dataclass
class Case:
    """A lookup and its input: an epoch has `("l", k, g, second)`, `("r", k, g, n, second)`, `("d", k, second)`."""

    on: str
    how: str
    where: bool
    epochs: list[list[tuple]]
    restarts: frozenset[int] = frozenset()
    shards: int = 2


class Replayed:
    """The table's rows by key."""

    def __init__(self):
        self.rows = {}

    def epoch(self, part):
        """Return the rows that are there at each second of an epoch; the last are kept."""
        versions = {key: [(-1, row)] for key, row in self.rows.items()}
        for kind, key, *more in part:
            if kind == "l":
                continue
            before = versions.setdefault(key, [(-1, None)])
            row = (key, *more) if kind == "r" else None
            if row != before[-1][1]:  # else it changes nothing
                before.append((max(more[-1], before[-1][0]), row))
        at = {}
        for second in range(SECONDS):
            last = ([row for time, row in every if time <= second][-1] for every in versions.values())
            at[second] = [row for row in last if row]
        self.rows = {key: every[-1][1] for key, every in versions.items() if every[-1][1]}
        return at


def expected(case, part, first, there):
    """Return what comes out of an epoch: number, key, group and value of what each row met."""
    made = Counter()
    for nr, (kind, key, *more) in enumerate(part, first):
        if kind == "l":
            found = [row for row in there[more[-1]] if meets(case, (key, more[0]), row)]
            made.update((nr, *row[:3]) for row in found)
            if not found and case.how == "left":
                made[(nr, None, None, None)] += 1
    return made


def meets(case, asked, row):
    """Whether a row of the stream meets one of the table."""
    agree = asked[0] == row[0] if case.on == "k" else asked[1] is not None and asked[1] == row[1]
    return agree and (not case.where or (row[2] or 0) > 0 or asked[1] is None)


def app_of(case):
    """Return the app of a case; both keys keep their names."""
    app = hr.App("law")
    stream = app.stream("l", LEFT, event_time="at").rename(lk="k", lg="g")
    table = app.table("r", RIGHT, key="k", event_time="since")
    where = "n > 0 or lg is null" if case.where else None
    met = stream.join(table, on={f"l{case.on}": case.on}, how=case.how, where=where).named("met")
    met.to_topic("out")
    check_deltas(met)
    return app


def send(driver, part, first):
    """Send an epoch; rows of the stream are numbered."""
    stream, table = [], []
    for nr, (kind, key, *more) in enumerate(part, first):
        time = FIRST + more[-1] * 1000
        if kind == "l":
            stream.append({"id": nr, "k": key, "g": more[0], "at": time})
        elif kind == "r":
            table.append({"k": key, "g": more[0], "n": more[1], "since": time})
        else:
            table.append({"k": key, "since": time, "_deleted": True})
    driver.send("l", *stream)
    driver.send("r", *table)


def play(case):
    """Run a case and hold every epoch against the replay."""
    table, nr = Replayed(), 0
    with Driver(app_of(case), shards=case.shards) as driver:
        for number, part in enumerate(case.epochs):
            if number in case.restarts:
                driver.restart()
            send(driver, part, nr)
            driver.step()
            out = Counter((row["id"], row["k"], row["g"], row["n"]) for row in driver.read("out"))
            assert out == expected(case, part, nr, table.epoch(part)), f"epoch {number}"
            nr += len(part)
        driver.finish()
        assert driver.read("out") == [], "what the table does triggers nothing"


def random_case(seed):
    """Return a case that follows from a seed."""
    dice = random.Random(seed)  # noqa: S311 -- a seed that is repeated, no secret
    keys = dice.choice([3, 8])

    def one():
        key, group, second = dice.randint(1, keys), dice.choice(GROUPS), dice.randrange(SECONDS)
        kind = dice.choice("llrrd")
        if kind == "l":
            return ("l", dice.choice([key, key, None]), group, second)
        return ("r", key, group, dice.choice([0, 1, 2, None]), second) if kind == "r" else ("d", key, second)

    epochs = [[one() for _ in range(dice.randint(0, 14))] for _ in range(dice.randint(1, 6))]
    return Case(
        on=dice.choice("kg"),
        how=dice.choice(["inner", "left"]),
        where=dice.random() < 0.4,
        epochs=epochs,
        restarts=frozenset(n for n in range(len(epochs)) if dice.random() < 0.2),
        shards=dice.choice([1, 2, 3]),
    )

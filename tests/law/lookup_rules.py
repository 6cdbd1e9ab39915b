"""Lookups by their rule: records are taken in the order in which they were sent, whatever their event times."""

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
PARTITIONS = 2
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
    """A replay of all records, one after the other: the table's rows, and what each row of the stream met."""

    def __init__(self, case):
        self.case = case
        self.rows = {}
        self.nr = 0

    def epoch(self, part):
        """Return what comes out of some more records: number, key, group and value of what each row met."""
        made = Counter()
        for kind, key, *more in part:
            if kind == "r":
                self.rows[key] = (key, *more)
            elif kind == "d":
                self.rows.pop(key, None)
            else:
                found = [row for row in self.rows.values() if meets(self.case, (key, more[0]), row)]
                made.update((self.nr, *row[:3]) for row in found)
                if not found and self.case.how == "left":
                    made[(self.nr, None, None, None)] += 1
            self.nr += 1
        return made


def meets(case, asked, row):
    """Whether a row of the stream meets one of the table."""
    agree = asked[0] == row[0] if case.on == "k" else asked[1] is not None and asked[1] == row[1]
    return agree and (not case.where or (row[2] or 0) > 0 or asked[1] is None)


def app_of(case):
    """Return the app of a case; both keys keep their names."""
    app = hr.App("law")
    stream = app.stream("l", LEFT, event_time="at", partitions=PARTITIONS).rename(lk="k", lg="g")
    table = app.table("r", RIGHT, key="k", event_time="since", partitions=PARTITIONS)
    where = "n > 0 or lg is null" if case.where else None
    met = stream.join(table, on={f"l{case.on}": case.on}, how=case.how, where=where).named("met")
    met.to_topic("out")
    check_deltas(met)
    return app


def send(driver, part, first):
    """Send records one after the other, whatever their event times; rows of the stream are numbered."""
    for nr, (kind, key, *more) in enumerate(part, first):
        time = FIRST + more[-1] * 1000
        if kind == "l":
            driver.send("l", {"id": nr, "k": key, "g": more[0], "at": time}, partition=nr % PARTITIONS)
        elif kind == "r":
            driver.send("r", {"k": key, "g": more[0], "n": more[1], "since": time})
        else:
            driver.send("r", {"k": key, "since": time, "_deleted": True})


def published(driver):
    """Return what came out since the last call: number, key, group and value of what each row met."""
    return Counter((row["id"], row["k"], row["g"], row["n"]) for row in driver.read("out"))


def play(case):
    """Run a case and hold every epoch against the replay."""
    replayed, nr = Replayed(case), 0
    with Driver(app_of(case), shards=case.shards) as driver:
        for number, part in enumerate(case.epochs):
            if number in case.restarts:
                driver.restart()
            send(driver, part, nr)
            driver.step()
            assert published(driver) == replayed.epoch(part), f"epoch {number}"
            nr += len(part)
        driver.finish()
        assert published(driver) == Counter(), "what the table does triggers nothing"


def play_cut(case, limits):
    """Send all of a case at once; epochs of these numbers of rows, and the rest in one, give what the replay says."""
    records = [record for part in case.epochs for record in part]
    with Driver(app_of(case), shards=case.shards) as driver:
        send(driver, records, 0)
        for limit in limits:
            driver.step(limit=limit)
        driver.run()
        assert published(driver) == Replayed(case).epoch(records), f"limits {limits}"


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

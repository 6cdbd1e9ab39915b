"""Joins as of a time by their rules: all records are kept, each row looks for its version when its time has come."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field

import headrace as hr
from headrace.testing import Driver, check_deltas

LEFT = "id int, k int, day timestamp, at timestamp"
RIGHT = "k int, v int, since timestamp"
FIRST = 1_767_225_600_000
END = 1 << 50


@dataclass
class Case:
    """A join and its input: an epoch has `("l", k, day, second)`, `("r", k, v, second)`, `("d", k, second)`.

    No record of the table is further behind than `delay` and `grace`.
    """

    how: str
    grace: int
    delay: int
    history: int
    where: bool
    epochs: list[list[tuple]]
    restarts: frozenset[int] = frozenset()
    shards: int = 2


@dataclass
class Rules:
    """All records, and the rows that wait."""

    case: Case
    records: list[tuple] = field(default_factory=list)
    waiting: list[tuple] = field(default_factory=list)
    previous: int | None = None

    def epoch(self, part, first, watermark, reached):
        """Return what must come out of an epoch, each row with whether its version may be forgotten; what is late.

        Late is what is behind the watermark of the epoch before; what comes out is final by that which it reaches.
        """
        late, out = Counter(), {}
        for nr, (kind, key, *more) in enumerate(part, first):
            if kind != "l":
                self.records.append((key, more[-1], nr, more[0] if kind == "r" else None, kind == "r"))
            elif watermark is not None and self.late(more[0], more[-1], watermark):
                late[(nr, key, None)] += 1
                if self.case.how == "left":
                    out[nr] = (key, False, None, False)
            else:
                self.waiting.append((nr, key, more[0]))
        for row in list(self.waiting):
            nr, key, day = row
            if day is None or (reached is not None and day + self.case.grace < reached):
                self.waiting.remove(row)
                found, version = self.version(key, day)
                old = self.previous is not None and day is not None and day < self.horizon
                out[nr] = (key, found, version, old)
        self.previous = watermark
        return out, late

    def late(self, day, at, watermark):
        """Tell whether a row is behind, and no versions of its day are kept."""
        behind = watermark - self.case.grace
        return at < behind and (day is None or day < behind - self.case.history)

    @property
    def horizon(self):
        """The time before which versions have been dropped."""
        return self.previous - self.case.grace - self.case.history

    def version(self, key, day):
        """Return whether a row of the table was valid at a time, and its value."""
        known = [
            each for each in self.records if key is not None and day is not None and each[0] == key and each[1] <= day
        ]
        if not known:
            return False, None
        _, _, _, value, there = max(known, key=lambda each: each[1:3])
        met = there and (not self.case.where or (value or 0) > 1)
        return met, value if met else None


def app_of(case):
    """Return the app of a case."""
    app = hr.App("law")
    timing = {"out_of_order": f"{case.delay} s"}
    stream = app.stream("l", LEFT, event_time="at", **timing)
    table = app.table("r", RIGHT, key="k", event_time="since", history=f"{case.history} s", **timing)
    where = "v > 1" if case.where else None
    dated = stream.join(table, on="k", as_of="day", grace=f"{case.grace} s", how=case.how, where=where).named("dated")
    dated.to_topic("out")
    check_deltas(dated)
    return app


def instant(second):
    """Return a second as it is sent."""
    return None if second is None else FIRST + second * 1000


def seconds(watermark):
    """Return a watermark as a second."""
    return None if watermark is None else round(watermark.timestamp() - FIRST / 1000)


def send(driver, part, first):
    """Send an epoch; rows of the stream are numbered."""
    stream, table = [], []
    for nr, (kind, key, *more) in enumerate(part, first):
        if kind == "l":
            stream.append({"id": nr, "k": key, "day": instant(more[0]), "at": instant(more[1])})
        elif kind == "r":
            table.append({"k": key, "v": more[0], "since": instant(more[1])})
        else:
            table.append({"k": key, "since": instant(more[0]), "_deleted": True})
    driver.send("l", *stream)
    driver.send("r", *table)


def play(case):
    """Run a case and hold every epoch against the rules."""
    rules, nr, behind = Rules(case), 0, Counter()
    with Driver(app_of(case), shards=case.shards) as driver:
        for number, part in enumerate([*case.epochs, None]):
            if number in case.restarts:
                driver.restart()
            watermark = seconds(driver.watermark("dated"))
            if part is None:
                driver.run()  # what a watermark brings that nobody has worked with yet
                part = []  # noqa: PLW2901 -- the last epochs have no rows
                driver.finish()
                watermark = reached = END
            else:
                send(driver, part, nr)
                driver.step()
                reached = seconds(driver.watermark("dated"))
            out, late = rules.epoch(part, nr, watermark, reached)
            hold(case, out, driver.read("out"), number)
            behind += late
            nr += len(part)
        assert Counter((row["id"], row["k"], row["v"]) for row in driver.late("dated")) == behind


def hold(case, out, rows, number):
    """Hold what came out against the rules; where a version may be forgotten, nothing will do as well."""
    given = {row["id"]: (row["k"], row["v"], row["since"] is not None) for row in rows}
    assert len(given) == len(rows), f"epoch {number}: a row comes out twice"
    for nr, (key, found, value, old) in out.items():
        answers = [(key, value, True)] if found else []
        answers += [(key, None, False)] if not found or old else []
        assert nr in given or case.how == "inner", f"epoch {number}: a row is missing"
        assert given.get(nr, (key, None, False)) in answers, f"epoch {number}"
        if case.how == "inner" and nr in given:
            assert given[nr][2], f"epoch {number}: a row that met nothing"
    assert set(given) <= set(out), f"epoch {number}: a row whose time has not come"


def random_case(seed):
    """Return a case that follows from a seed."""
    dice = random.Random(seed)  # noqa: S311 -- a seed that is repeated, no secret
    keys, drift = dice.choice([1, 3]), dice.choice([2, 5, 20])
    grace, delay, history = (dice.choice(each) for each in ([0, 3, 10], [0, 4], [0, 0, 15]))
    epochs, newest = [], 0
    for number in range(dice.randint(1, 7)):
        part, least = [], newest - delay - grace
        for _ in range(dice.randint(0, 12)):
            now = number * drift + dice.randint(0, 10)
            key, since = dice.randint(1, keys), max(now - dice.choice([0, 0, 5, 15]), least, 0)
            kind = dice.choice("llrrd")
            if kind == "l":
                day = dice.choice([now, now, now - 8, now + 8, None])
                part.append(("l", dice.choice([key, key, key, None]), day, now))
            else:
                part.append(("r", key, dice.choice([None, 1, 2, 3]), since) if kind == "r" else ("d", key, since))
                newest = max(newest, since)
        epochs.append(part)
    return Case(
        how=dice.choice(["inner", "left"]),
        grace=grace,
        delay=delay,
        history=history,
        where=dice.random() < 0.3,
        epochs=epochs,
        restarts=frozenset(n for n in range(len(epochs)) if dice.random() < 0.2),
        shards=dice.choice([1, 2, 3]),
    )

"""Joins of two streams by their rules, row by row: what must come out of every epoch, and cases to hold against it."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field

import headrace as hr
from headrace.testing import Driver, check_deltas

SCHEMA = "k string, v int, at timestamp"
START = 1_767_225_600_000
SECOND = 1_000
KEYS = ["a", "a", "b", "é", None]
WHERE = "v <= v_right"


@dataclass
class Case:
    """A join and its input: rows are (key, value, second); an epoch has those of the left side and of the right."""

    how: str
    within: tuple[int, int]
    grace: int
    delay: int
    where: bool
    epochs: list[tuple[list[tuple], list[tuple]]]
    restarts: frozenset[int] = frozenset()
    shards: int = 2


@dataclass(eq=False)
class Row:
    """A row in time, and whether it has met one or has come out."""

    key: str | None
    value: int
    time: int
    met: bool = False
    out: bool = False


@dataclass
class Rules:
    """The rules, nothing ever forgotten: each new row meets all that are here."""

    case: Case
    sides: tuple[list[Row], list[Row]] = field(default_factory=lambda: ([], []))

    def epoch(self, came, watermark):
        """Return what comes out of an epoch, and what is late."""
        out, late, news = Counter(), Counter(), ([], [])
        for side in (0, 1):
            for key, value, time in came[side]:
                row = Row(key, value, time)
                if watermark is not None and time < watermark - self.case.grace:
                    late[shown(row, side)] += side == 0 or not self.one_sided
                    out[shown(row, side)] += self.preserves(side)
                else:
                    news[side].append(row)
        for left, right in self.pairs(news):
            if self.case.how == "semi":
                out[shown(left, 0)] += not left.met
            elif self.case.how != "anti":
                out[(left.key, left.value, left.time, right.value, right.time)] += 1
            left.met = right.met = True
        for side in (0, 1):
            self.sides[side].extend(news[side])
            for row in self.sides[side]:
                if self.over(row, side, watermark) and not (row.met or row.out):
                    row.out = True
                    out[shown(row, side)] += self.preserves(side)
        return +out, late

    def pairs(self, news):
        """Yield the pairs in which one is new."""
        yield from ((left, right) for left in news[0] for right in self.sides[1] + news[1] if self.meet(left, right))
        yield from ((left, right) for left in self.sides[0] for right in news[1] if self.meet(left, right))

    def meet(self, left, right):
        """Whether two rows meet."""
        low, high = self.case.within
        near = low <= right.time - left.time <= high
        return (
            left.key is not None
            and left.key == right.key
            and near
            and (not self.case.where or left.value <= right.value)
        )

    def over(self, row, side, watermark):
        """Whether the watermark is past a row's last possible partner."""
        low, high = self.case.within
        return watermark is not None and watermark > row.time + (high, -low)[side] + self.case.grace

    def preserves(self, side):
        """Whether rows of a side come out alone."""
        return self.case.how in (("left", "right")[side], "full", *(["anti"] if side == 0 else []))

    @property
    def one_sided(self):
        """Whether only left rows come out."""
        return self.case.how in ("semi", "anti")


END = 1 << 60


def shown(row, side):
    """Return a row alone as it comes out."""
    return (row.key, *((row.value, row.time, None, None) if side == 0 else (None, None, row.value, row.time)))


def app(case):
    """Return the app of a case."""
    made = hr.App("joins")
    delay = f"{case.delay} s"
    left, right = (made.stream(name, SCHEMA, event_time="at", out_of_order=delay) for name in "lr")
    where = WHERE if case.where else None
    within = tuple(f"{end} s" for end in case.within)
    both = left.join(right, on="k", within=within, how=case.how, grace=f"{case.grace} s", where=where).named("j")
    both.to_topic("out")
    check_deltas(both)
    return made


def second(time):
    """Return an instant as a number of seconds, as cases have them."""
    return None if time is None else round(time.timestamp() - START / SECOND)


def counted(rows):
    """Return rows of the app as the rules write them."""
    return Counter((r["k"], r["v"], second(r["at"]), r.get("v_right"), second(r.get("at_right"))) for r in rows)


def sent(rows):
    """Return rows of a case as they are sent."""
    return [{"k": key, "v": value, "at": START + time * SECOND} for key, value, time in rows]


def play(case):
    """Run a case and hold every epoch against the rules; at the end of the input nothing is kept."""
    rules, late = Rules(case), Counter()
    with Driver(app(case), shards=case.shards) as driver:
        for number, came in enumerate(case.epochs):
            if number in case.restarts:
                driver.restart()
            watermark = second(driver.watermark("j"))
            for side, rows in zip("lr", came, strict=True):
                driver.send(side, *sent(rows))
            driver.step()
            out, behind = rules.epoch(came, watermark)
            late += behind
            assert counted(driver.read("out")) == out, f"epoch {number}"
        driver.run()
        driver.finish()
        out, _ = rules.epoch(([], []), END)
        assert counted(driver.read("out")) == out, "at the end of the input"
        assert counted(driver.late("j")) == late
        assert driver.counts("j")["state_rows"] == 0


def random_case(seed):
    """Return a case that follows from a seed."""
    dice = random.Random(seed)  # noqa: S311 -- a seed that is repeated, no secret
    ends = sorted((dice.randint(-12, 12), dice.randint(-12, 12)))
    drift = dice.choice([0, 2, 6, 30])
    keys = KEYS if dice.random() < 0.7 else ["a"] * 19 + [None]

    def rows(epoch):
        made = [
            (dice.choice(keys), dice.randint(0, 3), epoch * drift + dice.randint(0, 30))
            for _ in range(dice.randint(0, 8))
        ]
        return made + made[: dice.choice([0, 0, 2])]

    epochs = [(rows(n), rows(n)) for n in range(dice.randint(1, 8))]
    return Case(
        how=dice.choice(["inner", "left", "right", "full", "semi", "anti"]),
        within=(ends[0], ends[1]),
        grace=dice.choice([0, 0, 3, 15]),
        delay=dice.choice([0, 4, 20]),
        where=dice.random() < 0.3,
        epochs=epochs,
        restarts=frozenset(n for n in range(len(epochs)) if dice.random() < 0.2),
        shards=dice.choice([1, 2, 3]),
    )

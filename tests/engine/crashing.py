"""The app that crashes: a stateless topic, a windowed topic, two views, late rows, and a step below a step.

With `joins` also tables, a join of every kind, and a ranking. Run as a program it processes what is there on Spark,
and is killed at a point: `crashing.py STORAGE POINT [deep] [spread] [beside]`; `deep`: not before a task has staged
results of its state; `spread`: no epoch is run by one task; `beside`: by a process beside the worker of its task.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import headrace as hr
from headrace.engine.operation import running
from headrace.testing.faults import Kill

ROWS = "id int, k string, v int, at timestamp"
ANSWERS = "id int, w int, at timestamp"
PRICES = "k string, price int, since timestamp"
JOINED = ("pairs", "priced", "valued", "worth")


def make(storage, *, joins=False):
    """Return the app."""
    app = hr.App("crashing", storage=storage, shards=2)
    rows = app.stream("t", ROWS, key="id", event_time="at", out_of_order="2 s", partitions=2)
    rows.with_columns(twice="v * 2").to_topic("plain", key="k")
    grouped = rows.group_by("k").window(hr.tumbling("10 s", grace="5 s"), emit="final")
    windows = grouped.agg(n="count(*)", total="sum(v)").named("windows")
    windows.to_topic("windows")
    windows.late.to_topic("late")
    totals = rows.group_by("k").agg(n="count(*)", total="sum(v)", kinds="count(distinct v)")
    totals.to_view("totals")
    totals.to_topic("totals")
    totals.group_by("n").agg(groups="count(*)", most="max(total)").named("sizes").to_view("sizes")
    if joins:
        join(app, rows, totals)
    return app


def join(app, rows, totals):
    """Add the four joins: near in time, with a table as it arrives and as of a time, of tables; and a ranking."""
    answers = app.stream("answers", ANSWERS, key="id", event_time="at", out_of_order="2 s", partitions=2)
    prices = app.table("prices", PRICES, key="k", event_time="since", out_of_order="2 s")
    rows.join(answers, on="id", within="1 s", how="full", grace="1 s").named("pairs").to_topic("pairs")
    rows.join(prices, on="k", how="left").named("priced").to_topic("priced")
    rows.join(prices, on="k", as_of="at", how="left", grace="1 s").named("valued").to_topic("valued")
    worth = totals.join(prices, on="k", how="full").named("worth")
    worth.to_topic("worth")
    worth.to_view("worth")
    worth.group_by().top(2, "total * price").named("best").to_view("best")


def first():
    """Rows in order, up to second 60, by topic."""
    return {
        "t": [{"id": i, "k": "abc"[i % 3], "v": i % 7, "at": i * 100} for i in range(600)],
        "answers": [answer(i) for i in range(0, 600, 2)],
        "prices": [price(i) for i in range(60)],
    }


def second():
    """More rows in order, and some that are far too late, by topic."""
    late = [{"id": 5000 + i, "k": "abc"[i % 3], "v": 1, "at": i * 900} for i in range(20)]
    return {
        "t": late + [{"id": 600 + i, "k": "abcd"[i % 4], "v": i % 5, "at": 60_000 + i * 100} for i in range(600)],
        "answers": [answer(i) for i in range(560, 1200, 2)],
        "prices": [price(i) for i in range(60, 120)],
    }


def answer(number):
    """Every fifth comes too late to meet its row."""
    return {"id": number, "w": number % 4, "at": number * 100 + (1500 if number % 5 == 0 else 300)}


def price(number):
    """A change a second; some delete, some are of no row."""
    key = {"k": "abcde"[number * 3 % 5], "since": number * 1000}
    return {**key, "_deleted": True} if number % 11 == 7 else {**key, "price": number % 13}


@dataclass(frozen=True)
class KillDeep(Kill):
    """Kills in a task behind an exchange, where results of state, joins among them, have been staged."""

    storage: Path
    epochs: frozenset[str]

    def __call__(self, point):
        """Come by a point."""
        staged = self.storage.glob("epochs/*/*.1.*.rows")
        if any(file.parent.name not in self.epochs for file in staged):
            super().__call__(point)


@dataclass(frozen=True)
class KillBeside(Kill):
    """Kills in a process beside a worker of Spark's: it, and the process of the app."""

    def __call__(self, point):
        """Come by a point."""
        if any("shard_processes" in word for word in sys.orig_argv):
            super().__call__(point)


if __name__ == "__main__":
    plain = running.settings
    storage, point, *how = sys.argv[1:]
    before = frozenset(folder.name for folder in Path(storage, "epochs").iterdir())
    kill = Kill(point, os.getpid(), f"{storage}.killed")

    def settings(app, *, shards):
        """Settings that kill."""
        fault = KillDeep(kill.point, kill.process, kill.marker, Path(storage), before) if "deep" in how else kill
        fault = KillBeside(kill.point, kill.process, kill.marker) if "beside" in how else fault
        made = plain(app, shards=shards)
        return replace(made, fault=fault, small=-1 if "spread" in how else made.small, beside="beside" in how)

    running.settings = settings
    with make(storage, joins=True).start() as started:
        started.await_caught_up()

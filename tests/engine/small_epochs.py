"""An app with three levels of state, and epochs for it of very different sizes."""

from __future__ import annotations

import headrace as hr
from headrace.base.time import SystemClock
from headrace.engine.epoch import Settings
from headrace.engine.pace import SMALL_ROWS

CARS = "id int, owner int, worth int"
TICKS = "car int, speed int, at timestamp"
SIZES = [3, 40, 5, 0, 60, 1, 2, 35, 50, 4]
"""Rows of each epoch and topic: with 20 at most to be small, some are and some are not."""


class Kept:
    """A sink that keeps the delta of each epoch as a bag."""

    def __init__(self, name):
        self.name, self.epochs = name, {}

    def write(self, epoch, rows):
        """Take an epoch's delta."""
        self.epochs[epoch] = sorted(map(repr, rows.drop_columns(["_time"]).to_pylist()))


def made(storage):
    """Return an app with three levels of state, scanned and looked up, and its sinks."""
    app = hr.App("small", storage=storage, shards=2)
    cars = app.table("cars", CARS, key="id", partitions=2)
    ticks = app.stream("ticks", TICKS, event_time="at", partitions=2)
    sinks = [Kept(name) for name in ("owners", "windows", "beside", "pairs")]
    owners = cars.group_by("owner").agg(n="count(*)", worth="sum(worth)").named("owners")
    owners.to(sinks[0])
    ticks.group_by("car").window(hr.tumbling("5 s", grace="1 s")).agg(n="count(*)", top="max(speed)").to(sinks[1])
    ticks.join(cars, on={"car": "id"}).to(sinks[2])
    cars.join(owners, on="owner").select("id", "owner", "n").to(sinks[3])
    return app, sinks


def feed(log, number, size):
    """Append an epoch's rows: cars that change and go, ticks in disorder."""
    if not size:
        return
    cars = [{"id": (7 * number + i) % 23, "owner": (i * number) % 5, "worth": 10 * i + number} for i in range(size)]
    ticks = [{"car": i % 9, "speed": i * number % 70, "at": 1_000 * number + 37 * (size - i)} for i in range(size)]
    log.topic("cars").append(cars)
    log.topic("ticks").append(ticks)


def played(engine, carrier, step):
    """Run an epoch for each of the sizes and return the commits."""
    commits = []
    for number, size in enumerate(SIZES):
        feed(engine.outside.log, number, size)
        commits.append(step(carrier))
    return commits


def settings(storage, small=SMALL_ROWS):
    return Settings(storage=storage, topics=None, shards=2, clock=SystemClock(), sync=False, partitions=2, small=small)

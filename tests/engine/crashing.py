"""The app that is killed: a stateless topic, a windowed topic, two views, late rows, and a step below a step.

Run as a program it processes what is there on Spark, and is killed at a point: `crashing.py STORAGE POINT`.
"""

from __future__ import annotations

import os
import sys
from dataclasses import replace

import headrace as hr
from headrace.engine import running
from headrace.testing.faults import Kill

SCHEMA = "id int, k string, v int, at timestamp"


def make(storage):
    """Return the app."""
    app = hr.App("crashing", storage=storage, shards=2)
    rows = app.stream("t", SCHEMA, event_time="at", out_of_order="2 s", partitions=2)
    rows.with_columns(twice="v * 2").to_topic("plain", key="k")
    grouped = rows.group_by("k").window(hr.tumbling("10 s", grace="5 s"), emit="final")
    windows = grouped.agg(n="count(*)", total="sum(v)").named("windows")
    windows.to_topic("windows")
    windows.late.to_topic("late")
    totals = rows.group_by("k").agg(n="count(*)", total="sum(v)", kinds="count(distinct v)")
    totals.to_view("totals")
    totals.to_topic("totals")
    totals.group_by("n").agg(groups="count(*)", most="max(total)").named("sizes").to_view("sizes")
    return app


def first():
    """Rows in order, up to second 60."""
    return [{"id": i, "k": "abc"[i % 3], "v": i % 7, "at": i * 100} for i in range(600)]


def second():
    """More rows in order, and some that are far too late."""
    late = [{"id": 5000 + i, "k": "abc"[i % 3], "v": 1, "at": i * 900} for i in range(20)]
    return late + [{"id": 600 + i, "k": "abcd"[i % 4], "v": i % 5, "at": 60_000 + i * 100} for i in range(600)]


if __name__ == "__main__":
    plain = running.settings

    def settings(app, *, shards):
        """Settings that kill."""
        kill = Kill(sys.argv[2], os.getpid(), f"{sys.argv[1]}.killed")
        return replace(plain(app, shards=shards), fault=kill)

    running.settings = settings
    with make(sys.argv[1]).start() as started:
        started.await_caught_up()

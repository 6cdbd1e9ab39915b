"""An app for tests that run, kill and start it as a program: `supervising.py STORAGE [in-process|spark] [RESTART]`."""

from __future__ import annotations

import sys
from pathlib import Path

import headrace as hr

ROWS = "k string, v int, at timestamp"


def make(storage, **options):
    """Return an app with a topic out, a table and windows."""
    app = hr.App("supervised", storage=storage, shards=2, **options)
    rows = app.stream("t", ROWS, event_time="at", partitions=1)
    rows.with_columns(twice="v * 2").to_topic("plain", key="k")
    rows.group_by("k").agg(n="count(*)", total="sum(v)").to_view("by_key")
    rows.group_by().agg(n="count(*)", total="sum(v)").named("whole").to_view("whole")
    windows = rows.group_by("k").window(hr.tumbling("1 s", grace="0 s"), emit="final").agg(n="count(*)").named("w")
    windows.to_topic("windows")
    return app


def rows_of(first, last):
    """Return rows in order of their event time."""
    return [{"k": "abc"[i % 3], "v": i, "at": i * 10} for i in range(first, last)]


def append(storage, rows):
    """Append rows in one go."""
    with hr.Log(Path(storage) / "log") as log:
        log.topic("t").append(rows)


def outputs(storage):
    """Return what everybody can see: rows of the topics, sorted, and the views."""
    app, seen = make(storage), {}
    with hr.Log(Path(storage) / "log") as log:
        for name in ("plain", "windows"):
            topic = log.topic(name)
            rows = [row for p, end in topic.end_offsets().items() for row in topic.read(p, 0, end).to_pylist()]
            seen[name] = sorted(repr([row[column] for column in topic.schema.names]) for row in rows)
    return seen | {name: app.view(name).to_pylist() for name in ("by_key", "whole")}


def total(storage):
    """Return how many rows the views show; they must agree."""
    app = make(storage)
    whole = app.view("whole").to_pylist()
    return whole[0]["n"] if whole else 0


if __name__ == "__main__":
    make(Path(sys.argv[1])).run(carrier=sys.argv[2], restart=sys.argv[3] if len(sys.argv) > 3 else None)

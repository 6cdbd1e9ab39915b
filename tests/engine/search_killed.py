"""An app that searches, and is killed by SIGKILL at a point: `search_killed.py STORAGE POINT`."""

from __future__ import annotations

import os
import sys
from dataclasses import replace

import headrace as hr
from headrace.engine.operation import running
from headrace.testing.faults import Kill


def make(storage):
    """Return the app."""
    app = hr.App("searching", storage=storage, shards=2)
    news = app.stream("news", "id int, body string")
    alerts = app.table("alerts", "name string, query string", key="name")
    met = news.search(alerts, text="body", query="query").named("mentions")
    met.to_topic("out")
    met.group_by("name").agg(n="count(*)").to_view("counts")
    return app


if __name__ == "__main__":
    plain = running.settings
    storage, point = sys.argv[1:]
    kill = Kill(point, os.getpid(), f"{storage}.killed")

    def settings(app, *, shards):
        """Settings that kill."""
        return replace(plain(app, shards=shards), fault=kill)

    running.settings = settings
    with make(storage).start(carrier="in-process") as started:
        started.await_caught_up()

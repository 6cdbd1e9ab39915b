"""Our side: an app on Spark from its start until it has caught up."""

from __future__ import annotations

import shutil
import time
from typing import TYPE_CHECKING

import headrace as hr
from bench.progress import Timing, processing
from bench.rows import OUT_OF_ORDER, SCHEMA, TOPIC

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from bench.rows import Rows
    from bench.setting import Setting
    from bench.sums import Sums
    from headrace.dsl import Stream, Table
    from headrace.engine.operation.running import Running
    from headrace.plan.nodes import Emit

AGGREGATES = {"n": "count(*)", "total": "sum(v)"}


def catch_up(setting: Setting, rows: Rows, window: hr.Window, sink: Sums, *, emit: Emit = "changes") -> Timing:
    """Count and sum by key and window, on a new storage, until all rows of the topic are processed."""
    return process(setting, rows, sink, lambda s: s.group_by("k").window(window, emit=emit).agg(**AGGREGATES))


def process(setting: Setting, rows: Rows, sink: Sums, steps: Callable[[Stream], Stream | Table]) -> Timing:
    """Run an app of these steps over the rows, on a new storage, until all rows of the topic are processed."""
    storage = setting.fresh("ours")
    app = hr.App("bench", storage=storage, topics=f"log:{rows.log}", shards=2)
    steps(app.stream(TOPIC, SCHEMA, event_time="at", out_of_order=OUT_OF_ORDER)).to(sink)
    return caught_up(setting, app, storage)


def caught_up(setting: Setting, app: hr.App, storage: Path) -> Timing:
    """Run an app until all rows of its topics are processed; its storage is removed."""
    began = time.perf_counter()
    running = app.start(setting.spark)
    try:
        running.await_caught_up(timeout=600)
        total = time.perf_counter() - began
    finally:
        running.stop()
        shutil.rmtree(storage, ignore_errors=True)
    return Timing(total, *processing(progress(running)))  # the last epoch is included only once the query has ended


def progress(running: Running) -> list:  # type: ignore[type-arg]
    """Return Spark's progress reports of the app's epochs."""
    return list(running._carrier.query.recentProgress)  # noqa: SLF001 -- there is no public way to an app's query

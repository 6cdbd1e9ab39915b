"""`cdc_latency`: from a commit in PostgreSQL to the changed view, at 500 transactions a second.

Each transaction writes its number into one row. A reader looks at the view again and again: each number that is there
for the first time, or has been passed, was late by the time since its commit. Expected: the median is at most twice
that of the tiny epoch, an epoch of 100 rows on Spark, which is measured in the same run.
"""

from __future__ import annotations

import statistics
import threading
import time
from typing import TYPE_CHECKING

from scripts.servers.packages import Unavailable

import headrace as hr
from bench import cdc_server, tiny_epoch
from bench.figure import Figure, Skipped, percentile
from headrace.connect import postgres

if TYPE_CHECKING:
    from scripts.servers.postgres import Postgres

    from bench.setting import Setting

RATE = 500
WARM_SECONDS, SECONDS, QUICK_SECONDS = 10, 30, 10
_RIVAL = "an epoch of 100 rows on Spark (tiny_epoch), median"


def run(setting: Setting) -> list[Figure | Skipped]:
    """Measure the tiny epoch, then latencies on Spark and in process."""
    try:
        with cdc_server.server(setting) as at:
            return _measured(setting, at)
    except Unavailable as reason:
        return [Skipped(bench="cdc_latency", rival=_RIVAL, reason=str(reason))]


def _measured(setting: Setting, at: Postgres) -> list[Figure | Skipped]:
    if not setting.spark_allowed:
        return [Skipped(bench="cdc_latency", rival=_RIVAL, reason="it needs Spark")]
    tiny = statistics.median(tiny_epoch.epochs_of_ours(setting, setting.runs(50, 25)))
    setting.say(f"tiny epoch: {tiny:.0f} ms")
    with cdc_server.connected(at) as sql:
        sql.execute("CREATE TABLE ticks (id int PRIMARY KEY, n bigint NOT NULL)")
        sql.execute("INSERT INTO ticks VALUES (1, 0)")
    figures: list[Figure | Skipped] = []
    for where, carrier in (("on Spark", None), ("in process", "in-process")):
        late = _latencies(setting, at, where.replace(" ", "_").lower(), carrier)
        for name, value in (("median", percentile(late, 0.5)), ("p99", percentile(late, 0.99))):
            setting.say(f"{where}, {name}: {value:.0f} ms")
            figures.append(
                Figure(
                    bench="cdc_latency",
                    what=f"commit to view at {RATE} transactions a second, {where}, {name} of {len(late):,}",
                    rival=_RIVAL,
                    ratio=value / tiny,
                    must="<= 2" if name == "median" else None,
                    ours=value,
                    theirs=tiny,
                    unit="ms",
                    runs=1,
                )
            )
    return figures


def _latencies(setting: Setting, at: Postgres, slot: str, carrier: str | None) -> list[float]:
    """Return the latency of each transaction, in milliseconds."""
    app = hr.App("late", storage=setting.fresh("late"), shards=1)
    app.table("ticks", source=postgres.table(at.url(), "ticks", slot=slot)).to_view("now")
    seconds = setting.runs(SECONDS, QUICK_SECONDS)
    committed: dict[int, float] = {}
    stop = threading.Event()
    with app.start(setting.spark) if carrier is None else app.start(carrier=carrier) as running:
        running.await_caught_up(120)
        writer = threading.Thread(target=_write, args=(at, committed, stop))
        first = _number(app) + 1
        writer.start()
        late: list[float] = []
        began, seen = time.perf_counter(), first - 1
        while (now := time.perf_counter()) < began + WARM_SECONDS + seconds:
            shown = _number(app)
            now = time.perf_counter()
            if now > began + WARM_SECONDS:
                late += [
                    (now - committed[number]) * 1000 for number in range(seen + 1, shown + 1) if number in committed
                ]
            seen = shown
            time.sleep(0.001)
        stop.set()
        writer.join()
        running.await_caught_up(120)
        last = max(committed)
        if _number(app) != last:
            raise AssertionError(f"the view ends at {_number(app)}, and the last commit was {last}")
    with cdc_server.connected(at) as sql:
        sql.execute("UPDATE ticks SET n = 0")
    return late


def _write(at: Postgres, committed: dict[int, float], stop: threading.Event) -> None:
    began, number = time.perf_counter(), 0
    with cdc_server.connected(at) as sql:
        while not stop.is_set():
            number += 1
            committed[number] = time.perf_counter()  # before the commit, which may be seen before its answer is here
            sql.execute("UPDATE ticks SET n = %s WHERE id = 1", [number])
            behind = began + number / RATE - time.perf_counter()
            if behind > 0:
                time.sleep(behind)


def _number(app: hr.App) -> int:
    rows = app.view("now").to_pylist()
    return int(rows[0]["n"]) if rows else 0

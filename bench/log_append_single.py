"""`log_append_single`: one record at a time, acknowledged after fsync, costs a fraction of an fsync.

Expected: the producer gathers what 8 threads send while it waits for the disk, so its speed depends on the processor
and not on the disk; SQLite pays an fsync for each row. The slower the disk, the greater the ratio.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any

from bench.figure import Figure, paired, same
from headrace.log import Log

if TYPE_CHECKING:
    from concurrent.futures import Future
    from pathlib import Path

    from bench.setting import Setting

THREADS = 8
WINDOW = 1_000  # unacknowledged records of a thread
ROWS = 400_000
ROWS_OF_SQLITE = 3_000
TEXT = "x" * 92  # and a bigint: 100 bytes


def run(setting: Setting) -> list[Figure]:
    """Measure both in turn."""
    rows, theirs = setting.rows(ROWS) // THREADS, setting.rows(ROWS_OF_SQLITE)
    runs = setting.runs(5, 2)
    setting.say(f"{rows * THREADS} records from {THREADS} threads; SQLite {theirs} rows; {runs} runs")
    _ours(setting.fresh("warm"), 2_000)
    took = []
    for number in range(runs):
        took.append((_ours(setting.fresh("log"), rows), _sqlite(setting.fresh("sqlite"), theirs)))
        setting.say(f"run {number}: {took[-1][0]:.0f} records/s, SQLite {took[-1][1]:.0f} rows/s")
    ours, sqlite = ([pair[side] for pair in took] for side in (0, 1))
    ratio, spread = paired(ours, sqlite)
    figure = Figure(
        bench="log_append_single",
        what=f"100-byte records one at a time from {THREADS} threads, {WINDOW} unacknowledged each, after fsync",
        rival="SQLite, WAL, synchronous=FULL, a row a transaction",
        ratio=ratio,
        spread=spread,
        must=">= 50",
        ours=sorted(ours)[runs // 2],
        theirs=sorted(sqlite)[runs // 2],
        unit="records/s",
        runs=runs,
    )
    return [figure]


def _ours(path: Path, rows: int) -> float:
    with Log(path) as log:
        topic = log.create_topic("a", "id bigint, text string")
        began = time.perf_counter()
        with log.producer(linger="5 ms", max_unacknowledged=THREADS * WINDOW) as producer:
            threads = [threading.Thread(target=_sender, args=(producer, number, rows)) for number in range(THREADS)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        took = time.perf_counter() - began
        total = rows * THREADS
        same("records acknowledged", topic.end_offsets(), {0: total})
    with Log(path) as log:
        ids = log.topic("a").read(0, 0, total).column("id").to_numpy()
        same("ids", sorted(ids.tolist()), list(range(total)))
    return total / took


def _sender(producer: Any, number: int, rows: int) -> None:
    """Send rows with at most `WINDOW` unacknowledged, and await every answer."""
    waiting: deque[Future[int]] = deque()
    send = producer.send
    for at in range(number * rows, (number + 1) * rows):
        if len(waiting) >= WINDOW:
            waiting.popleft().result()
        waiting.append(send("a", {"id": at, "text": TEXT}))
    for future in waiting:
        future.result()


def _sqlite(path: Path, rows: int) -> float:
    path.mkdir()
    database = sqlite3.connect(path / "rows.db", isolation_level=None)
    same("journal", database.execute("PRAGMA journal_mode=WAL").fetchone(), ("wal",))
    database.execute("PRAGMA synchronous=FULL")
    database.execute("CREATE TABLE a (id INTEGER, text TEXT)")
    began = time.perf_counter()
    for at in range(rows):
        database.execute("INSERT INTO a VALUES (?, ?)", (at, TEXT))
    took = time.perf_counter() - began
    same("rows of SQLite", database.execute("SELECT count(*) FROM a").fetchone(), (rows,))
    database.close()
    return rows / took

"""`cdc_snapshot`: the rows of a table of PostgreSQL into a topic, in chunks and without a lock, while a writer runs.

The rival is `COPY … TO STDOUT` of the same table to a pipe that is read and thrown away, while the same writer runs.
Expected: half of its speed. Each row must be in the topic with the value that it has in the end.
"""

from __future__ import annotations

import subprocess
import time
from typing import TYPE_CHECKING

from scripts.servers.packages import Unavailable

from bench import cdc_server
from bench.cdc_postgres import answer_of
from bench.cdc_server import TABLE
from bench.figure import Figure, Skipped, WrongAnswer, compare_times

if TYPE_CHECKING:
    from scripts.servers.postgres import Postgres

    from bench.setting import Setting

ROWS = 5_000_000
BLOCK = 100_000
PAUSE = 0.005
_SECONDS_LEFT = 60
_RIVAL = "COPY … TO STDOUT to psql, thrown away"


def run(setting: Setting) -> list[Figure | Skipped]:
    """Measure it in turn."""
    try:
        with cdc_server.server(setting) as at:
            return _measured(setting, at)
    except Unavailable as reason:
        return [Skipped(bench="cdc_snapshot", rival=_RIVAL, reason=str(reason))]


def _measured(setting: Setting, at: Postgres) -> list[Figure | Skipped]:
    rows = setting.rows(ROWS)
    with cdc_server.connected(at) as sql:
        for first in range(0, rows, BLOCK):
            cdc_server.insert(sql, first, min(BLOCK, rows - first))
        sql.execute(f"VACUUM ANALYZE {TABLE}")
    setting.say(f"the table has {rows:,} rows")
    ours, theirs = [], []
    for number in range(setting.runs(3, 2) + 1):
        with cdc_server.writing(at, rows, pause=PAUSE):
            theirs.append(_theirs(at))
        ours.append(_ours(setting, at, rows, f"snapshot_{number}"))
        setting.say(f"run {number}: ours {ours[-1]:.2f} s, theirs {theirs[-1]:.2f} s{'' if number else ' (warm-up)'}")
    what = f"snapshot of {rows:,} rows while a writer changes 200 a second"
    return [
        compare_times(
            "cdc_snapshot", what=what, rival=_RIVAL, must=">= 0.5", ours=ours[1:], theirs=theirs[1:], unit="s"
        )
    ]


def _ours(setting: Setting, at: Postgres, rows: int, slot: str) -> float:
    began = time.perf_counter()
    with cdc_server.capturing(at, slot, setting.fresh("ours"), None) as log:
        with cdc_server.writing(at, rows, pause=PAUSE):
            cdc_server.await_records(log, rows)
            took = time.perf_counter() - began
        with cdc_server.connected(at) as sql:
            expected = cdc_server.answer(sql)
        until = time.monotonic() + _SECONDS_LEFT
        while answer_of(log) != expected:
            if time.monotonic() > until:
                raise WrongAnswer(f"rows, sum, last change: ours is {answer_of(log)}, the table's is {expected}")
            time.sleep(0.1)
    with cdc_server.connected(at) as sql:
        sql.execute("SELECT pg_drop_replication_slot(%s)", [slot])
    return took


def _theirs(at: Postgres) -> float:
    command = at.command("psql", "-d", "postgres", "-q", "-c", f"COPY {TABLE} TO STDOUT")
    began = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began

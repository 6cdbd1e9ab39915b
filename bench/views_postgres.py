"""`views_postgres`: epochs applied to a view in PostgreSQL, and to the same view in SQLite, which is the rival.

A large epoch changes half of the rows and adds as many; a small one changes 100 rows of the table that is there then.
Both stores write durably as they are set up: SQLite syncs each epoch, the server of the bench has `fsync=off`. The
views are compared at the end. Expected: slower than SQLite, which has no server between; it has no target.
"""

from __future__ import annotations

import time
from contextlib import closing
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from scripts.servers.packages import Unavailable

from bench import cdc_server
from bench.figure import Figure, Skipped, compare_times, same
from headrace.connect.postgres.address import PostgresAddress
from headrace.connect.postgres.serving.store import PostgresViews
from headrace.views.sqlite import SqliteViews

if TYPE_CHECKING:
    from scripts.servers.postgres import Postgres

    from bench.setting import Setting
    from headrace.views.store import Views

ROWS = 1_000_000
SMALL, SMALL_EPOCHS = 100, 50
_RIVAL = "the same in SQLite"
_SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("amount", pa.float64())])


def run(setting: Setting) -> list[Figure | Skipped]:
    """Measure it in turn."""
    try:
        with cdc_server.server(setting) as at:
            return _measured(setting, at)
    except Unavailable as reason:
        return [Skipped(bench="views_postgres", rival=_RIVAL, reason=str(reason))]


def _measured(setting: Setting, at: Postgres) -> list[Figure | Skipped]:
    rows = setting.rows(ROWS)
    large: tuple[list[float], list[float]] = ([], [])
    small: tuple[list[float], list[float]] = ([], [])
    for number in range(setting.runs(5, 3) + 1):
        answers = []
        stores = (
            PostgresViews(PostgresAddress.parse(at.url()), "bench/1"),
            SqliteViews(setting.fresh("views") / "views.db"),
        )
        for side, views in enumerate(stores):
            with closing(views):
                views.reset()
                first, later = _applied(views, rows)
                answers.append(views.read("v"))
            setting.say(f"run {number}: {views.where.partition(':')[0][:20]} {first:.2f} s, {later * 1000:.1f} ms")
            if number:
                large[side].append(first)
                small[side].append(later * 1000)
        same("the views", *answers)
    named = [(f"an epoch of {rows:,} upserts", large, "s"), (f"an epoch of {SMALL} changed rows", small, "ms")]
    return [
        compare_times("views_postgres", what=what, rival=_RIVAL, must=None, ours=ours, theirs=theirs, unit=unit)
        for what, (ours, theirs), unit in named
    ]


def _applied(views: Views, rows: int) -> tuple[float, float]:
    """Return the seconds of a large epoch, and of a small one."""
    views.declare("v", _SCHEMA, ("id",))
    views.apply(0, {"v": _delta(np.arange(rows // 2), 0)})
    began = time.perf_counter()
    views.apply(1, {"v": _delta(np.arange(rows), 1)})
    large = time.perf_counter() - began
    began = time.perf_counter()
    for number in range(SMALL_EPOCHS):
        chosen = np.random.default_rng(number).choice(rows, min(SMALL, rows), replace=False)
        views.apply(2 + number, {"v": _delta(np.sort(chosen), 2 + number)})
    return large, (time.perf_counter() - began) / SMALL_EPOCHS


def _delta(ids: np.ndarray, epoch: int) -> pa.Table:
    names = pa.array([f"name {each % 1000}" for each in ids.tolist()])
    columns = [pa.array(ids), names, pa.array(ids * 0.5 + epoch), pa.array(np.ones(len(ids), np.int32))]
    return pa.table(columns, names=[*_SCHEMA.names, "_weight"])

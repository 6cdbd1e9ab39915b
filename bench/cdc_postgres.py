"""`cdc_postgres`: row changes from a replication slot of PostgreSQL into a topic.

A million changes wait in a slot: 600,000 inserts in transactions of 100 rows, 300,000 updates and 100,000 deletes in
transactions of 1,000. Copies of the slot are read in turn: by ours into a topic, decoded and durable, and by
`pg_recvlogical` into a file, which decodes nothing, and by Debezium Engine, whose time is without the start of its JVM.
The topic's rows, and those that Debezium's events leave, are compared with those of the table.

Expected: half of the speed of `pg_recvlogical`, and three times that of Debezium.
"""

from __future__ import annotations

import subprocess
import time
from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa
from scripts.servers.packages import Unavailable

from bench import cdc_debezium, cdc_server
from bench.cdc_server import PUBLICATION, TABLE
from bench.figure import Figure, Skipped, compare_times, same

if TYPE_CHECKING:
    import psycopg
    from scripts.servers.postgres import Postgres

    from bench.setting import Setting
    from headrace.log import Log

CHANGES = 1_000_000
SMALL, LARGE = 100, 1_000
_BASE = "base"
_RIVAL = "pg_recvlogical to a file, with the same plugin and publication"


def run(setting: Setting) -> list[Figure | Skipped]:
    """Measure it in turn."""
    try:
        with cdc_server.server(setting) as at:
            return _measured(setting, at)
    except Unavailable as reason:
        return [Skipped(bench="cdc_postgres", rival=_RIVAL, reason=str(reason))]


def _measured(setting: Setting, at: Postgres) -> list[Figure | Skipped]:
    with cdc_server.connected(at) as sql:
        sql.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", [_BASE])
        changes = _changes(sql, setting.rows(CHANGES))
        expected = cdc_server.answer(sql)
    setting.say(f"{changes:,} changes wait in the slot")
    missing = cdc_debezium.missing()
    ours, theirs, debeziums = [], [], []
    for number in range(setting.runs(5, 3) + 1):
        mine, rivals = _ours(setting, at, changes, expected), _theirs(setting, at)
        setting.say(f"run {number}: ours {mine:.2f} s, theirs {rivals:.2f} s{'' if number else ' (warm-up)'}")
        if number:
            ours.append(mine)
            theirs.append(rivals)
        if number and missing is None:
            debeziums.append(_debezium(setting, at, changes, expected))
    what = f"{changes:,} row changes from a slot into a topic"
    found = [compare_times("cdc_postgres", what=what, rival=_RIVAL, must=">= 0.5", ours=ours, theirs=theirs, unit="s")]
    if missing is not None:
        return [*found, Skipped(bench="cdc_postgres", rival=cdc_debezium.RIVAL, reason=missing)]
    against = {"rival": cdc_debezium.RIVAL, "must": ">= 3", "unit": "s"}
    return [*found, compare_times("cdc_postgres", what=what, ours=ours, theirs=debeziums, **against)]


def _changes(sql: psycopg.Connection, count: int) -> int:
    inserts, updates, deletes = count * 6 // 10, count * 3 // 10, count // 10
    for first in range(0, inserts, SMALL):
        cdc_server.insert(sql, first, min(SMALL, inserts - first))
    for first in range(0, updates, LARGE):
        sql.execute(
            f"UPDATE {TABLE} SET balance = balance + 1, changed = now() WHERE id >= %s AND id < %s",
            [first, min(first + LARGE, updates)],
        )
    for first in range(0, deletes, LARGE):
        sql.execute(f"DELETE FROM {TABLE} WHERE id >= %s AND id < %s", [first, min(first + LARGE, deletes)])
    return inserts + updates + deletes


def _ours(setting: Setting, at: Postgres, changes: int, expected: tuple[int, object]) -> float:
    slot = _copied(at)
    start = cdc_server.followed(at, slot)
    began, used = time.perf_counter(), time.process_time()
    with cdc_server.capturing(at, slot, setting.fresh("ours"), start) as log:
        cdc_server.await_records(log, changes)
        took = time.perf_counter() - began
        setting.say(f"ours: {time.process_time() - used:.2f} s of processor")
        same("records", sum(log.topic(TABLE).end_offsets().values()), changes)
        same("rows and their sum", answer_of(log), expected)
    _drop(at, slot)
    return took


def _theirs(setting: Setting, at: Postgres) -> float:
    slot, file = _copied(at), setting.fresh("theirs")
    with cdc_server.connected(at) as sql:
        (end,) = sql.execute("SELECT pg_current_wal_flush_lsn()::text").fetchone() or ("",)
    options = ["-o", "proto_version=1", "-o", f"publication_names={PUBLICATION}"]
    command = at.command(
        "pg_recvlogical", "-d", "postgres", "-S", slot, "--start", "-f", str(file), "-E", end, *options
    )
    began = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    took = time.perf_counter() - began
    if not file.stat().st_size:
        raise AssertionError("pg_recvlogical has written nothing")
    file.unlink()
    _drop(at, slot)
    return took


def _debezium(setting: Setting, at: Postgres, changes: int, expected: tuple[int, object]) -> float:
    slot = _copied(at)
    took, used = cdc_debezium.read(at, slot, setting.fresh("debezium"), changes, expected)
    setting.say(f"Debezium: {took:.2f} s, {used:.2f} s of processor")
    _drop(at, slot)
    return took


def _copied(at: Postgres) -> str:
    slot = f"copy_{time.monotonic_ns()}"
    with cdc_server.connected(at) as sql:
        sql.execute("SELECT pg_copy_logical_replication_slot(%s, %s)", [_BASE, slot])
    return slot


def _drop(at: Postgres, slot: str) -> None:
    with cdc_server.connected(at) as sql:
        while sql.execute("SELECT active FROM pg_replication_slots WHERE slot_name = %s", [slot]).fetchone() == (True,):
            time.sleep(0.05)
        sql.execute("SELECT pg_drop_replication_slot(%s)", [slot])


def answer_of(log: Log) -> tuple[int, object]:
    """Return how many rows the topic's table has, and the sum of their balances."""
    topic = log.topic(TABLE)
    parts = [
        batch
        for part, end in topic.end_offsets().items()
        for batch in topic.batches(part, 0, end, columns=["id", "balance", "_deleted", "_offset"])
    ]
    records = pa.Table.from_batches(parts)  # noqa: F841 -- DuckDB reads it by its name
    last = "SELECT arg_max(balance, _offset) AS balance, arg_max(_deleted, _offset) AS gone FROM records GROUP BY id"
    ((rows, total),) = duckdb.sql(f"SELECT count(*), coalesce(sum(balance), 0) FROM ({last}) WHERE NOT gone").fetchall()
    return rows, total

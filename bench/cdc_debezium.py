"""Debezium Engine as the rival of `cdc_postgres`: the same changes of the same slot, as lines of JSON in a file."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
from scripts.broker.jars import Unavailable, fetched, java

from bench.cdc_server import PUBLICATION
from bench.figure import same

if TYPE_CHECKING:
    from scripts.servers.postgres import Postgres

VERSION = "3.4.3.Final"
JARS = (
    f"io.debezium:debezium-embedded:{VERSION}",
    f"io.debezium:debezium-connector-postgres:{VERSION}",
    "org.slf4j:slf4j-simple:2.0.17",
)
RIVAL = f"Debezium Engine {VERSION}, JSON without schemas to a file"
PROGRAM = Path(__file__).parent / "DebeziumChanges.java"
SETTINGS = ("max.batch.size=8192", "max.queue.size=65536", "decimal.handling.mode=string")
"""Batches four times as large as by default: that is faster."""
MOST_SECONDS = 1800


def missing() -> str | None:
    """Return why there can be no Debezium on this machine, None if there can."""
    try:
        fetched(*JARS)
    except Unavailable as reason:
        return str(reason)
    return None


def read(at: Postgres, slot: str, file: Path, changes: int, expected: tuple[int, object]) -> tuple[float, float]:
    """Read a slot's changes into a file, and check them; return the seconds without JVM's start, and of processor."""
    quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"
    command = [str(java()), "-Xmx1g", quiet, "-cp", f"{fetched(*JARS)}/*", str(PROGRAM)]
    asked = [str(at.port), slot, PUBLICATION, str(file), str(changes), *SETTINGS]
    ran = subprocess.run([*command, *asked], capture_output=True, text=True, timeout=MOST_SECONDS, check=False)
    said = [line.split() for line in ran.stdout.splitlines() if line.startswith("TOOK ")]
    if not said:
        raise RuntimeError(f"Debezium has failed: {ran.stderr[-2000:]}")
    try:
        same("Debezium's rows and their sum", _answer(file, changes), expected)
    finally:
        file.unlink()
    return float(said[0][1]), float(said[0][2])


def _answer(file: Path, changes: int) -> tuple[int, object]:
    """Return how many rows the events leave, and the sum of their balances."""
    row = "STRUCT(id BIGINT, balance DECIMAL(12, 2))"
    columns = f"columns = {{op: 'VARCHAR', before: '{row}', after: '{row}'}}"
    events = f"read_json('{file}', format = 'newline_delimited', {columns})"
    changed = "coalesce(after.id, before.id) AS id, after.balance AS balance, op"
    numbered = f"SELECT {changed}, row_number() OVER () AS nth FROM {events}"
    last = f"SELECT arg_max(op, nth) AS op, last(balance ORDER BY nth) AS balance FROM ({numbered}) GROUP BY id"
    with duckdb.connect() as sql:
        sql.execute("SET preserve_insertion_order = true")
        (found,) = sql.execute(f"SELECT count(*) FROM {events}").fetchall()
        same("Debezium's events", found[0], changes)
        answer = f"SELECT count(*), coalesce(sum(balance), 0) FROM ({last}) WHERE op <> 'd'"
        ((rows, total),) = sql.execute(answer).fetchall()
    return rows, total

"""A PostgreSQL with a table, a slot full of changes, and a capture of it, for the benches `cdc_*`."""

from __future__ import annotations

import random
import threading
import time
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

import psycopg
from scripts.broker.servers import Servers
from scripts.servers.postgres import Postgres

from headrace.connect.capture.columns import captured
from headrace.connect.embedded import EmbeddedTopics
from headrace.connect.postgres.address import PostgresAddress
from headrace.connect.postgres.capture import CHUNK_ROWS, Capture
from headrace.connect.postgres.catalogue import described
from headrace.connect.postgres.position import Position, Progress
from headrace.connect.topics import TopicSpec
from headrace.log import Log

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from bench.setting import Setting

TABLE = "accounts"
PUBLICATION = "bench"
_CREATE = (
    f"CREATE TABLE {TABLE} (id bigint PRIMARY KEY, owner text NOT NULL, balance numeric(12, 2) NOT NULL, "
    "changed timestamptz NOT NULL, note text)"
)
_NOBODY_READS = 1 << 60


@contextmanager
def server(setting: Setting) -> Iterator[Postgres]:
    """Give a server with the empty table, started; it ends with the block.

    Raises:
        Unavailable: there can be none.

    """
    found = Postgres(Servers(setting.fresh("postgres"), shared=False), shared_buffers="512MB", max_wal_size="8GB")
    found.start()
    try:
        with connected(found) as sql:
            sql.execute(_CREATE)
            sql.execute(f"CREATE PUBLICATION {PUBLICATION} FOR TABLE {TABLE}")
        yield found
    finally:
        found.kill()


def connected(at: Postgres) -> psycopg.Connection:
    """Return a connection that commits each statement."""
    return psycopg.connect(at.url(), autocommit=True)


def insert(sql: psycopg.Connection, first: int, count: int) -> None:
    """Insert rows of about 100 bytes in one transaction."""
    sql.execute(
        f"INSERT INTO {TABLE} SELECT i, 'owner ' || i % 1000, i % 100000 / 100.0, now(), "
        f"'a note that says something about ' || i FROM generate_series({first}, {first + count - 1}) i"
    )


def answer(sql: psycopg.Connection) -> tuple[int, object]:
    """Return how many rows the table has, and the sum of their balances."""
    (found,) = sql.execute(f"SELECT count(*), coalesce(sum(balance), 0) FROM {TABLE}").fetchall()
    return found[0], found[1]


@contextmanager
def capturing(at: Postgres, slot: str, folder: Path, start: Position | None) -> Iterator[Log]:
    """Capture the table into the topic of its name until the block ends; its error is raised there.

    Args:
        at: the server.
        slot: the slot.
        folder: of a new log.
        start: where the capture begins; None: with a snapshot.

    """
    address = PostgresAddress.parse(at.url())
    with address.connected() as sql:
        table = described(sql, "public", TABLE)
    capture = Capture(address=address, slot=slot, publication=PUBLICATION, tables={TABLE: table}, chunk_rows=CHUNK_ROWS)
    stop, failure = threading.Event(), []
    with Log(folder) as log:
        store = EmbeddedTopics(log, partitions=2, fault=lambda point: None)  # noqa: ARG005 -- nothing happens there
        spec = TopicSpec(name=TABLE, schema=table.arrow, key=table.key, upserts=True)
        landing = store.shared_landing(
            slot,
            {TABLE: spec},
            feeds={TABLE: slot},
            limit=_NOBODY_READS,
            read=lambda topic: 0,  # noqa: ARG005
        )
        if start is not None:
            landing.append({}, position=start.to_bytes())

        def run() -> None:
            try:
                capture.run(landing, stop)
            except Exception as error:  # noqa: BLE001 -- raised by the caller
                failure.append(error)

        thread = threading.Thread(target=run)
        with closing(landing):
            thread.start()
            try:
                yield log
            finally:
                stop.set()
                thread.join()
    if failure:
        raise failure[0]


def followed(at: Postgres, slot: str) -> Position:
    """Return a position from which a capture follows a slot, without a snapshot."""
    with PostgresAddress.parse(at.url()).connected() as sql:
        table = described(sql, "public", TABLE)
        (system,) = sql.execute("SELECT system_identifier::text FROM pg_control_system()").fetchone() or ("",)
        (lsn,) = sql.execute(
            "SELECT confirmed_flush_lsn - '0/0'::pg_lsn FROM pg_replication_slots WHERE slot_name = %s", [slot]
        ).fetchone() or (0,)
    done = Progress(done=True, columns=tuple(captured(table.arrow)))
    return Position(system, int(lsn), {table.full_name: done})


def await_records(log: Log, count: int, *, seconds: float = 1800) -> None:
    """Wait until the topic has so many records."""
    until = time.monotonic() + seconds
    while sum(log.topic(TABLE).end_offsets().values()) < count:
        if time.monotonic() > until:
            raise TimeoutError(f"not {count} records after {seconds} seconds")
        time.sleep(0.005)


@contextmanager
def writing(at: Postgres, rows: int, *, pause: float) -> Iterator[Callable[[], int]]:
    """Update random rows beside the block, each in a transaction; gives how many so far."""
    stop, done, draw = threading.Event(), [0], random.Random(1)

    def write() -> None:
        with connected(at) as sql:
            while not stop.wait(pause):
                sql.execute(f"UPDATE {TABLE} SET changed = now() WHERE id = %s", [draw.randrange(rows)])
                done[0] += 1

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield lambda: done[0]
    finally:
        stop.set()
        thread.join()

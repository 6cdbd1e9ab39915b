"""PostgreSQL for tests: fixtures for every folder of tests. They skip, with the reason, where there can be none.

All processes of a run share the servers, which end with the last of them. Tests that use one are a group of xdist: a
slot waits for the transactions of the whole server, prepared ones included.
"""

from __future__ import annotations

import sys
import uuid
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from brokers import run_folder

if TYPE_CHECKING:
    from collections.abc import Iterator

    import psycopg
    from scripts.servers.postgres import Postgres

sys.path.append(str(Path(__file__).parents[1]))

SERVERS = {"postgres_of_the_run", "breakable_postgres_of_the_run"}
"""The fixtures of a whole run: which tests need a server shows by them."""


@dataclass(frozen=True)
class Database:
    """A database of its own for one test. `server` starts, stops, kills and restarts what it is in."""

    server: Postgres
    name: str

    @property
    def url(self) -> str:
        return self.server.url(self.name)

    def connect(self, **options) -> psycopg.Connection:
        """Return a connection that commits each statement unless it is told otherwise."""
        import psycopg

        return psycopg.connect(self.url, **{"autocommit": True} | options)

    def execute(self, *statements: str) -> None:
        """Run statements, each in a transaction of its own."""
        with self.connect() as sql:
            for each in statements:
                sql.execute(each)

    def query(self, statement: str, *parameters) -> list[tuple]:
        """Return the rows of a query."""
        with self.connect() as sql:
            return sql.execute(statement, parameters or None).fetchall()


def postgres_of(root: Path, kind: str) -> Postgres:
    """Return the run's server of a kind, started; skips the test if there can be none."""
    from scripts.broker.servers import shared
    from scripts.servers.packages import Unavailable
    from scripts.servers.postgres import Postgres

    server = Postgres(shared(root, kind))
    try:
        server.start()
    except Unavailable as reason:
        pytest.skip(f"no PostgreSQL: {reason}")
    return server


@contextmanager
def own_database(server: Postgres) -> Iterator[Database]:
    """Make a database, and remove it with the slots and prepared transactions that the test left in it."""
    import psycopg

    name = f"t{uuid.uuid4().hex[:8]}"
    with psycopg.connect(server.url(), autocommit=True) as sql:
        sql.execute(f"CREATE DATABASE {name}")
    yield Database(server, name)
    server.start()
    with psycopg.connect(server.url(name), autocommit=True) as sql:
        for (gid,) in sql.execute("SELECT gid FROM pg_prepared_xacts WHERE database = %s", [name]).fetchall():
            sql.execute(f"ROLLBACK PREPARED '{gid}'")
        left = sql.execute("SELECT slot_name, active_pid FROM pg_replication_slots WHERE database = %s", [name])
        for slot, process in left.fetchall():
            sql.execute("SELECT pg_terminate_backend(%s, 5000)", [process])
            sql.execute("SELECT pg_drop_replication_slot(%s)", [slot])
    with psycopg.connect(server.url(), autocommit=True) as sql:
        sql.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture(scope="session")
def postgres_of_the_run(tmp_path_factory):
    server = postgres_of(run_folder(tmp_path_factory), "postgres")
    yield server
    server.servers.leave()


@pytest.fixture(scope="session")
def breakable_postgres_of_the_run(tmp_path_factory):
    server = postgres_of(run_folder(tmp_path_factory), "breakable_postgres")
    yield server
    server.servers.leave()


@pytest.fixture
def database(postgres_of_the_run):
    """A database on a PostgreSQL that all tests of the run share: do not stop it."""
    with own_database(postgres_of_the_run) as made:
        yield made


@pytest.fixture
def breakable_database(breakable_postgres_of_the_run):
    """A database on a PostgreSQL that the test may stop, kill and restart; afterwards it is started again."""
    breakable_postgres_of_the_run.start()
    with own_database(breakable_postgres_of_the_run) as made:
        yield made

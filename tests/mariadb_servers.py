"""MariaDB for tests: fixtures for every folder of tests. They skip, with the reason, where there can be none.

All processes of a run share the servers, which end with the last of them. Tests that use one are a group of xdist: a
server has one log for all its databases.
"""

from __future__ import annotations

import sys
import uuid
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from brokers import run_folder

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pymysql
    from scripts.servers.mariadb import MariaDB

sys.path.append(str(Path(__file__).parents[1]))

SERVERS = {"mariadb_of_the_run", "breakable_mariadb_of_the_run"}
"""The fixtures of a whole run: which tests need a server shows by them. `lonely_schema` has one for a test alone."""


@dataclass(frozen=True)
class Schema:
    """A database of its own for one test. `server` starts, stops, kills and restarts what it is in."""

    server: MariaDB
    name: str

    @property
    def url(self) -> str:
        return self.server.url(self.name)

    def connect(self, **options) -> pymysql.Connection:
        """Return a connection that commits each statement unless it is told otherwise; `closing` closes it."""
        import pymysql

        login = {"host": "127.0.0.1", "port": self.server.port, "user": "root", "database": self.name}
        return pymysql.connect(**login | {"autocommit": True} | options)

    def execute(self, *statements: str) -> None:
        """Run statements in one session, each in a transaction of its own."""
        with closing(self.connect()) as sql, sql.cursor() as cursor:
            for each in statements:
                cursor.execute(each)

    def query(self, statement: str, *parameters) -> list[tuple]:
        """Return the rows of a query."""
        with closing(self.connect()) as sql, sql.cursor() as cursor:
            cursor.execute(statement, parameters or None)
            return list(cursor.fetchall())


def mariadb_of(root: Path, kind: str) -> MariaDB:
    """Return the run's server of a kind, started; skips the test if there can be none."""
    from scripts.broker.servers import shared
    from scripts.servers.mariadb import MariaDB
    from scripts.servers.packages import Unavailable

    pytest.importorskip("pymysql")
    server = MariaDB(shared(root, kind))
    try:
        server.start()
    except Unavailable as reason:
        pytest.skip(f"no MariaDB: {reason}")
    return server


@contextmanager
def own_schema(server: MariaDB) -> Iterator[Schema]:
    """Make a database, and remove it with the prepared transactions that the test left."""
    made = Schema(server, f"t{uuid.uuid4().hex[:8]}")
    Schema(server, "mysql").execute(f"CREATE DATABASE {made.name}")
    yield made
    server.start()
    server_wide = Schema(server, "mysql")
    for *_, gid in server_wide.query("XA RECOVER"):
        if made.name in (name := gid.decode()):
            server_wide.execute(f"XA ROLLBACK '{name}'")
    server_wide.execute(f"DROP DATABASE {made.name}")


@pytest.fixture(scope="session")
def mariadb_of_the_run(tmp_path_factory):
    server = mariadb_of(run_folder(tmp_path_factory), "mariadb")
    yield server
    server.servers.leave()


@pytest.fixture(scope="session")
def breakable_mariadb_of_the_run(tmp_path_factory):
    server = mariadb_of(run_folder(tmp_path_factory), "breakable_mariadb")
    yield server
    server.servers.leave()


@pytest.fixture
def schema(mariadb_of_the_run):
    """A database on a MariaDB that all tests of the run share: do not stop it, and set nothing globally."""
    with own_schema(mariadb_of_the_run) as made:
        yield made


@pytest.fixture
def breakable_schema(breakable_mariadb_of_the_run):
    """A database on a MariaDB that the test may stop, kill and restart; afterwards it is started again."""
    breakable_mariadb_of_the_run.start()
    with own_schema(breakable_mariadb_of_the_run) as made:
        yield made


@pytest.fixture
def lonely_schema(tmp_path):
    """A database on a MariaDB that this test alone has, for tests of the group of another server. It takes seconds."""
    server = mariadb_of(tmp_path, "lonely_mariadb")
    with own_schema(server) as made:
        yield made
    server.servers.leave()

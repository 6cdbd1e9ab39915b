"""The PostgreSQL of the tests: it decodes its log, keeps what was committed, and nothing of it is left behind."""

from __future__ import annotations

import signal

import psycopg
import pytest
from scripts.broker.servers import Servers
from scripts.servers.postgres import Postgres


def test_a_killed_server_comes_back_with_what_was_committed(breakable_database):
    """Kill -9 of all its processes is what the tests of capture rely on."""
    breakable_database.execute("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    breakable_database.server.kill()
    with pytest.raises(psycopg.OperationalError):
        breakable_database.connect()
    breakable_database.server.start()
    assert breakable_database.query("SELECT id FROM t") == [(1,)]


def test_a_slot_decodes_and_a_transaction_is_prepared(database):
    """What capture and two-phase commit need is switched on."""
    database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    database.query("SELECT pg_create_logical_replication_slot(%s, 'test_decoding')", f"{database.name}_slot")
    database.execute("BEGIN; INSERT INTO t VALUES (1); PREPARE TRANSACTION 'one'")
    assert database.query("SELECT gid FROM pg_prepared_xacts WHERE database = current_database()") == [("one",)]
    database.execute("COMMIT PREPARED 'one'")
    changes = database.query("SELECT data FROM pg_logical_slot_peek_changes(%s, NULL, NULL)", f"{database.name}_slot")
    assert [data for (data,) in changes if "INSERT" in data] == ["table public.t: INSERT: id[integer]:1"]


@pytest.mark.prove
def test_the_programs_come_from_packages_where_the_system_has_none(tmp_path, monkeypatch):
    """Debian's packages, unpacked into a folder of the user, are a whole server."""
    from scripts.servers import packages, postgres

    monkeypatch.setenv("HEADRACE_SERVERS", str(tmp_path / "cache"))
    packages.debian.cache_clear()
    try:
        unpacked = packages.debian("postgresql-15", "postgresql-client-15")
    except packages.Unavailable as reason:
        pytest.skip(f"no packages: {reason}")
    monkeypatch.setattr(postgres, "_programs", lambda: unpacked / "usr/lib/postgresql/15/bin")
    server = Postgres(Servers(tmp_path / "server", shared=False))
    try:
        server.start()
        with psycopg.connect(server.url()) as sql:
            assert sql.execute("SHOW wal_level").fetchone() == ("logical",)
    finally:
        server.servers.signal("postgres", signal.SIGKILL)

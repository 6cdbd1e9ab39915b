"""Chunks of a table come whole, whichever way the COPY is taken, and errors in the middle of it are the server's."""

from __future__ import annotations

from contextlib import closing

import psycopg
import pyarrow as pa
import pytest

from headrace.connect.postgres import copy_stream, copying
from headrace.connect.postgres.catalogue import described

TEXTS = "CREATE TABLE t (id int PRIMARY KEY, v text)"


def chunk(sql, *, limit=100_000):
    table = described(sql, "public", "t")
    return copying.chunk(sql, table, table.arrow, after=None, limit=limit).rows


@pytest.fixture
def taken(monkeypatch):
    """Return what was taken from the socket, one entry a COPY; None is one that libpq has read."""
    seen, take = [], copy_stream.taken

    def remembered(pg):
        seen.append(take(pg))
        return seen[-1]

    monkeypatch.setattr(copy_stream, "taken", remembered)
    return seen


def test_long_and_short_rows_are_what_libpq_reads(database, taken, monkeypatch):
    sizes = "(ARRAY[0, 1, 40, 70000, 1048570, 3000000])[1 + i % 6]"
    database.execute(TEXTS, f"INSERT INTO t SELECT i, repeat(chr(97 + i % 26), {sizes}) FROM generate_series(1, 60) i")
    with database.connect() as sql:
        fast = chunk(sql)
        assert taken[0] is not None
        assert sql.execute("SELECT count(*) FROM t").fetchone() == (60,), "the connection goes on"
        monkeypatch.setattr(copy_stream, "taken", lambda _: None)
        slow = chunk(sql)
    assert fast.equals(slow)
    assert fast.num_rows == 60
    assert pa.compute.max(pa.compute.binary_length(fast.column("v"))).as_py() == 3_000_000


def test_an_error_in_the_middle_of_a_copy_is_raised_and_the_connection_goes_on(database, taken):
    """After 50,000 rows a function of the database fails."""
    database.execute(
        TEXTS,
        "INSERT INTO t SELECT i, 'v' || i FROM generate_series(1, 60000) i",
        "ALTER TABLE t RENAME TO held",
        "CREATE VIEW t AS SELECT id, CASE WHEN id > 50000 THEN (1 / (id - id))::text ELSE v END AS v FROM held",
    )
    with database.connect() as sql:
        table = described(sql, "public", "held")
        failing = copying._query(table, ["id", "v"], None, 100_000, raw=frozenset(["id"]))  # noqa: SLF001
        text = failing.as_string(sql).replace('"held"', '"t"')
        with pytest.raises(psycopg.errors.DivisionByZero):
            copying._copied_at_once(sql, psycopg.sql.SQL(text))  # noqa: SLF001
        assert taken[0] is not None
        assert sql.execute("SELECT 1").fetchone() == (1,)
        with pytest.raises(psycopg.errors.UndefinedTable):
            copying._copied_at_once(sql, psycopg.sql.SQL("COPY (SELECT * FROM nowhere) TO STDOUT"))  # noqa: SLF001
        assert taken[1] is None
        assert sql.execute("SELECT 1").fetchone() == (1,)


def test_a_server_that_ends_the_connection_in_the_middle_is_an_error(database):
    database.execute(TEXTS, "INSERT INTO t SELECT i, repeat('x', 1000) FROM generate_series(1, 30000) i")
    with closing(database.connect()) as sql, database.connect() as other:
        sleepy = "COPY (SELECT v, CASE WHEN id = 20000 THEN pg_sleep(60) END FROM t ORDER BY id) TO STDOUT"

        def killing(pg):
            other.execute("SELECT pg_terminate_backend(%s)", [sql.info.backend_pid])
            return take(pg)

        take = copy_stream.taken
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(copy_stream, "taken", killing)
            with pytest.raises(psycopg.OperationalError):
                copying._copied_at_once(sql, psycopg.sql.SQL(sleepy))  # noqa: SLF001


def test_what_comes_before_the_rows_is_left_to_libpq(database, taken):
    """A notice is no head of a COPY."""
    database.execute(
        TEXTS,
        "INSERT INTO t SELECT i, 'v' FROM generate_series(1, 100) i",
        "CREATE FUNCTION says() RETURNS int LANGUAGE plpgsql IMMUTABLE "
        "AS $$ BEGIN RAISE NOTICE 'hear'; RETURN 1; END $$",
    )
    with database.connect() as sql:
        content, messages = copying._copied_at_once(  # noqa: SLF001
            sql, psycopg.sql.SQL("COPY (SELECT id FROM t WHERE id > says()) TO STDOUT")
        )
    assert taken == [None]
    assert messages == 99
    assert bytes(content).decode().split() == [str(n) for n in range(2, 101)]

"""A table is replaced by another one of its name, or changes its key or a type: nothing wrong is landed in silence."""

from __future__ import annotations

import pytest
from capturing import capture_of, in_a_log, rows_of, running, until

from headrace.base.outside import Unavailable
from headrace.connect import postgres
from headrace.connect.embedded.requests import request_again, requests_of
from headrace.log import Log


@pytest.fixture
def log(tmp_path):
    with Log(tmp_path / "log", fsync=False) as opened:
        yield opened


def follow(log, database, *, change=()):
    """Follow the table `t` until its rows are there, and with a change until an app would begin again."""
    capture, _ = capture_of(database, "t", chunk_rows=2)
    with in_a_log(log, capture) as landing, running(capture, landing) as failure:
        until(lambda: log.has_topic("t") and len(rows_of(log, "t")) == 3, failure)
        database.execute(*change)
        if change:
            until(lambda: failure)
            assert isinstance(failure.pop(), Unavailable)


REPLACED = {
    "again": ["DROP TABLE t", "CREATE TABLE t (id int PRIMARY KEY, v text)", "INSERT INTO t VALUES (3, 'c'), (4, 'd')"],
    "swapped": [
        "CREATE TABLE n (id int PRIMARY KEY, v text)",
        "INSERT INTO n SELECT id + 1, v || '!' FROM t",
        "BEGIN; ALTER TABLE t RENAME TO old; ALTER TABLE n RENAME TO t; COMMIT",
    ],
}


@pytest.mark.parametrize("how", REPLACED)
def test_another_table_of_the_name_is_read_anew(database, log, how):
    database.execute("CREATE TABLE t (id int PRIMARY KEY, v text)", "INSERT INTO t VALUES (1, 'a'), (2, 'b'), (3, 'x')")

    def same():
        return rows_of(log, "t") == set(database.query("SELECT * FROM t"))

    follow(log, database, change=REPLACED[how])
    capture, _ = capture_of(database, "t", chunk_rows=2)
    with in_a_log(log, capture) as landing, running(capture, landing) as failure:
        until(same, failure)
        database.execute("INSERT INTO t VALUES (9, 'after')", "DELETE FROM t WHERE id = 3")
        until(same, failure)


def test_that_a_table_was_dropped_is_said_until_there_is_one_again(database, log):
    database.execute(
        "CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)", "CREATE TABLE u (id int PRIMARY KEY)"
    )
    capture, _ = capture_of(database, "t", "u")
    with in_a_log(log, capture) as landing, running(capture, landing) as failure:
        said = []
        landing.report = lambda **progress: said.append(progress.get("warning"))
        until(lambda: log.has_topic("t") and len(rows_of(log, "t")) == 1, failure)
        database.execute("DROP TABLE t")
        until(lambda: said and said[-1], failure)
        assert said[-1] == "public.t was dropped: its topic keeps the rows that it had"
        database.execute("INSERT INTO u VALUES (1)")
        until(lambda: len(rows_of(log, "u")) == 1, failure)
        assert said[-1] == "public.t was dropped: its topic keeps the rows that it had"
        database.execute("CREATE TABLE t (id int PRIMARY KEY)")
        until(lambda: failure)
        assert isinstance(failure.pop(), Unavailable)


def test_keys_that_are_equal_in_the_database_alone_are_deleted_by_a_new_snapshot(database, log):
    database.execute(
        "CREATE COLLATION ci (provider = icu, locale = 'und-u-ks-level2', deterministic = false)",
        "CREATE TABLE t (name text COLLATE ci, n numeric, v int, PRIMARY KEY (name, n))",
        "INSERT INTO t VALUES ('a', 1.0, 1), ('b', 2.0, 2), ('c', 3, 3)",
    )
    follow(log, database)
    postgres.drop(postgres.table(database.url, "t", slot=f"{database.name}_slot"))
    database.execute("UPDATE t SET name = 'A' WHERE v = 1", "UPDATE t SET n = 2.00 WHERE v = 2")
    request_again(log, "t")
    capture, _ = capture_of(database, "t", chunk_rows=2)
    with in_a_log(log, capture) as landing, running(capture, landing) as failure:
        until(lambda: not requests_of(log), failure)
    assert rows_of(log, "t") == {("A", "1.0", 1), ("b", "2.00", 2), ("c", "3", 3)}

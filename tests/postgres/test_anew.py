"""Tables that are read anew, truncated, or get columns: the topic then has what the table has, while changes go on."""

from __future__ import annotations

import threading
from contextlib import contextmanager

import pytest
from capturing import capture_of, in_a_log, rows_of, running, until

from headrace.connect import postgres
from headrace.connect.embedded.requests import request_again, requests_of
from headrace.connect.postgres.errors import SlotAdvanced, SlotLost
from headrace.connect.postgres.position import Position
from headrace.log import Log


@pytest.fixture
def log(tmp_path):
    with Log(tmp_path / "log", fsync=False) as opened:
        yield opened


def table(database, name="t", rows=10):
    database.execute(
        f"CREATE TABLE {name} (id int, at timestamptz, v text, PRIMARY KEY (at, id))",
        f"INSERT INTO {name} SELECT i, '2026-01-01 00:00+00'::timestamptz + i * interval '1 s', 'v' || i "
        f"FROM generate_series(1, {rows}) i",
    )


@contextmanager
def followed(log, database, *names, chunk_rows=4, slot=None):
    """Run a capture of tables into a log."""
    capture, _ = capture_of(database, *names, chunk_rows=chunk_rows, slot=slot)
    with in_a_log(log, capture) as landing, running(capture, landing) as failure:
        yield lambda holds: until(holds, failure)


def same(log, database, name="t"):
    return lambda: rows_of(log, name) == set(database.query(f"SELECT * FROM {name}"))


def test_a_table_is_read_anew_while_it_changes_and_what_vanished_is_deleted(database, log):
    table(database)
    with followed(log, database, "t") as wait:
        wait(same(log, database))
    database.execute("SET session_replication_role = replica")
    postgres.drop(postgres.table(database.url, "t", slot=f"{database.name}_slot"))
    database.execute("DELETE FROM t WHERE id IN (2, 9)", "UPDATE t SET v = 'unseen' WHERE id = 5")
    with pytest.raises(SlotLost, match="does not exist") as lost, followed(log, database, "t") as wait:
        wait(lambda: False)
    assert "headrace connect snapshot" in lost.value.hint
    request_again(log, "t")
    stop, changes = threading.Event(), [0]

    def change():
        while not stop.is_set():
            changes[0] += 1
            key = f"at = '2026-01-01 00:00+00'::timestamptz + {changes[0] % 12} * interval '1 s'"
            database.execute(
                f"UPDATE t SET v = v || '!' WHERE {key}" if changes[0] % 3 else f"DELETE FROM t WHERE {key}",
                f"INSERT INTO t SELECT {changes[0] % 12}, '2026-01-01 00:00+00'::timestamptz + {changes[0] % 12} * "
                "interval '1 s', 'new' ON CONFLICT DO NOTHING",
            )

    writer = threading.Thread(target=change)
    writer.start()
    try:
        with followed(log, database, "t") as wait:
            wait(lambda: not requests_of(log) and changes[0] > 50)
            stop.set()
            writer.join()
            wait(same(log, database))
    finally:
        stop.set()
        writer.join()


def test_of_two_tables_one_is_read_anew_and_a_lost_slot_needs_both(database, log):
    table(database)
    table(database, "u")
    with followed(log, database, "t", "u") as wait:
        wait(lambda: same(log, database)() and same(log, database, "u")())
        before = sum(log.topic("u").end_offsets().values())
        request_again(log, "t")
        wait(lambda: not requests_of(log))
        assert sum(log.topic("u").end_offsets().values()) == before
        assert sum(log.topic("t").end_offsets().values()) == 2 * before
    postgres.drop(postgres.table(database.url, "t", slot=f"{database.name}_slot"))
    request_again(log, "t")
    with pytest.raises(SlotLost), followed(log, database, "t", "u") as wait:
        wait(lambda: False)
    request_again(log, "u")
    database.execute("DELETE FROM u WHERE id < 4")
    with followed(log, database, "t", "u") as wait:
        wait(lambda: same(log, database)() and same(log, database, "u")() and not requests_of(log))


def test_a_slot_that_another_one_has_read_further_goes_on_after_a_new_snapshot(database, log, tmp_path):
    table(database)
    with followed(log, database, "t") as wait:
        wait(same(log, database))
    with Log(tmp_path / "other", fsync=False) as other, followed(other, database, "t") as wait:
        database.execute("DELETE FROM t WHERE id = 1")
        wait(same(other, database))
    with pytest.raises(SlotAdvanced), followed(log, database, "t") as wait:
        wait(lambda: False)
    request_again(log, "t")
    with followed(log, database, "t") as wait:
        wait(same(log, database))


@pytest.mark.parametrize("chunk_rows", [3, 1000])
def test_truncate_deletes_the_rows_that_were_there_in_the_same_transaction(database, log, chunk_rows):
    """Also twice in one transaction with rows in between, and while a snapshot is taken."""
    table(database, rows=20)
    with followed(log, database, "t", chunk_rows=chunk_rows) as wait:
        wait(lambda: rows_of(log, "t") if log.has_topic("t") else False)
        database.execute(
            "BEGIN; INSERT INTO t VALUES (50, now(), 'gone'); TRUNCATE t; INSERT INTO t VALUES (51, now(), 'gone'); "
            "TRUNCATE t; INSERT INTO t VALUES (52, now(), 'stays'); COMMIT"
        )
        wait(same(log, database))
        database.execute("INSERT INTO t VALUES (60, now(), 'x')", "TRUNCATE t", "INSERT INTO t VALUES (61, now(), 'y')")
        wait(same(log, database))


def test_a_column_that_is_added_reaches_the_topic_also_of_rows_that_were_there(database, log):
    table(database)
    with followed(log, database, "t") as wait:
        wait(same(log, database))
        database.execute("ALTER TABLE t ADD COLUMN vip int DEFAULT 7", "UPDATE t SET vip = 1 WHERE id = 3")
        wait(same(log, database))
    database.execute("UPDATE t SET v = 'before' WHERE id = 4", "ALTER TABLE t ADD COLUMN more text DEFAULT 'm'")
    database.execute("UPDATE t SET v = 'after' WHERE id = 5")
    with followed(log, database, "t") as wait:
        wait(same(log, database))
    assert rows_of(log, "t") == set(database.query("SELECT id, at, v, vip, more FROM t"))


def test_the_position_says_which_columns_every_row_has(database, log):
    table(database)
    capture, _ = capture_of(database, "t")
    with in_a_log(log, capture) as landing:
        with running(capture, landing) as failure:
            until(same(log, database), failure)
        at = Position.of(landing.position()).tables["public.t"]
    assert at.done
    assert at.columns == ("id", "at", "v")

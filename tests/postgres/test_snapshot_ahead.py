"""Chunks are read ahead while rows change: no row goes back to an older state, whatever is cut off where."""

from __future__ import annotations

import threading
import time
from random import Random

import pytest
from capturing import capture_of, running, until

from budget import fast
from headrace.connect.postgres import copying

ROWS = 60
SEEDS = list(range(1, 13))


class Writer(threading.Thread):
    """Changes random rows, some of both ends of the table in one transaction; each state has a number of its own."""

    def __init__(self, database, dice):
        super().__init__()
        self.database, self.dice, self.done = database, dice, threading.Event()

    def run(self):
        with self.database.connect(autocommit=False) as sql:
            while not self.done.is_set():
                one, other, new = (self.dice.randint(1, ROWS) for _ in range(3))
                sql.execute("UPDATE t SET v = nextval('states') WHERE id IN (%s, %s)", [one, other])
                if self.dice.random() < 0.3:
                    sql.execute("DELETE FROM t WHERE id = %s", [other])
                if self.dice.random() < 0.4:
                    sql.execute("INSERT INTO t VALUES (%s, nextval('states')) ON CONFLICT DO NOTHING", [new])
                if self.dice.random() < 0.2:
                    moved = "UPDATE t SET id = id + 1000, v = nextval('states') WHERE id = %s AND NOT EXISTS "
                    sql.execute(moved + "(SELECT 1 FROM t WHERE id = %s)", [new, new + 1000])
                sql.commit()
                time.sleep(self.dice.random() * 0.004)


def check_ages(appends):
    """Check that each key's states ascend, and that a row that was deleted comes back by a newer state only."""
    newest, gone = {}, set()
    for append in appends:
        for row in append.get("t", []):
            key = row["id"]
            if row["_deleted"]:
                gone.add(key)
                continue
            last = newest.get(key, 0)
            assert row["v"] > last or (row["v"] == last and key not in gone), f"{row} after {last}"
            newest[key] = row["v"]
            gone.discard(key)


@pytest.mark.parametrize("seed", fast(1, 2, of=SEEDS))
def test_no_row_goes_back_to_an_older_state_while_chunks_are_read_ahead(database, monkeypatch, seed):
    dice = Random(seed)  # noqa: S311 - a test that replays
    database.execute(
        "CREATE TABLE t (id int PRIMARY KEY, v bigint NOT NULL)",
        "CREATE SEQUENCE states",
        f"INSERT INTO t SELECT i, nextval('states') FROM generate_series(1, {ROWS}) i",
    )
    read, chunks = copying.chunk, []

    def slowly(*arguments, **options):
        time.sleep(dice.random() * 0.01)
        found = read(*arguments, **options)
        time.sleep(dice.random() * 0.01)
        chunks.append(found.rows.num_rows)
        return found

    monkeypatch.setattr(copying, "chunk", slowly)
    capture, landing = capture_of(database, "t", chunk_rows=4)
    writer = Writer(database, Random(seed))  # noqa: S311
    writer.start()
    try:
        for _ in range(3):
            crashes = len(landing.appends) + dice.randint(1, 12)
            landing.crash = lambda number, at=crashes: number == at
            with pytest.raises(InterruptedError), running(capture, landing) as failure:
                until(lambda: False, failure)
        landing.crash = lambda _number: False
        with running(capture, landing) as failure:
            until(lambda: landing.facts.get("phase") == "streaming", failure)
            writer.done.set()
            writer.join()
            until(lambda: rows_of(landing) == set(database.query("SELECT id, v FROM t")), failure)
    finally:
        writer.done.set()
        writer.join()
    check_ages(landing.appends)
    assert len(chunks) > ROWS // 4


def rows_of(landing):
    return {(row["id"], row["v"]) for row in landing.tables["t"].values()}


def test_an_error_of_a_chunk_that_is_read_ahead_ends_the_capture(database, monkeypatch):
    database.execute("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t SELECT i FROM generate_series(1, 30) i")
    read, chunks = copying.chunk, []

    def fails(*arguments, **options):
        chunks.append(1)
        if len(chunks) == 3:
            raise InterruptedError("the third chunk")
        return read(*arguments, **options)

    monkeypatch.setattr(copying, "chunk", fails)
    capture, landing = capture_of(database, "t", chunk_rows=4)
    with pytest.raises(InterruptedError, match="the third chunk"), running(capture, landing) as failure:
        until(lambda: False, failure)
    assert len(landing.tables["t"]) <= 8
    with running(capture, landing) as failure:
        until(lambda: len(landing.tables["t"]) == 30, failure)
    assert sum(len(each.get("t", [])) for each in landing.appends) == 30

"""A snapshot of MariaDB is cut off at each of its points, while rows inside and outside of the chunk change."""

from __future__ import annotations

import threading

import pytest
from following import capture_of, followed, in_a_log, records_of, running

from budget import fast
from headrace.connect.mysql import reading
from headrace.log import Log
from headrace.testing import Crash

ROWS, CHUNK = 12, 4
CASES = [
    (point, chunk)
    for point in (
        "window open",  # the chunk is read, and rows have changed since
        "before_landing",  # the window is closed: the chunk and the changes since are in memory
        "during_landing",  # they are noted, and in no topic
        "between_topics",  # in one topic, and not in the other
        "before_mark",  # in both, and the boundary is missing
        "after_landing",
    )
    for chunk in (1, 2, 3)
]
SOME = [(point, 2) for point, chunk in CASES if chunk == 2] + [("window open", 1), ("between_topics", 3)]


@pytest.fixture
def log(tmp_path):
    with Log(tmp_path / "log", fsync=False) as opened:
        yield opened


def change(schema, when):
    """Change rows of each chunk in both tables, in one transaction: some are updated, deleted, moved, or new."""
    shift = 0 if when == "before" else 1
    with schema.connect(autocommit=False) as sql, sql.cursor() as cursor:
        for table in ("t", "u"):
            for first in range(1, ROWS, CHUNK):
                cursor.execute(f"UPDATE {table} SET v = concat(v, ' {when}') WHERE id IN (%s, %s)", [first, first + 1])
                cursor.execute(f"DELETE FROM {table} WHERE id = %s", [first + 2 + shift])
            cursor.execute(f"INSERT INTO {table} VALUES (%s, 'new {when}')", [20 + shift])
            cursor.execute(f"UPDATE {table} SET id = id + 100, v = 'moved {when}' WHERE id = %s", [5 + shift])
        sql.commit()


@pytest.mark.parametrize("case", fast(*SOME, of=CASES), ids=str)
def test_a_crash_at_any_point_of_a_chunk_loses_nothing_and_brings_nothing_back(schema, log, monkeypatch, case):
    point, chunk = case
    for table in ("t", "u"):
        schema.execute(f"CREATE TABLE {table} (id int PRIMARY KEY, v varchar(40))")
        schema.execute(f"INSERT INTO {table} SELECT seq, concat('{table}', seq) FROM seq_1_to_{ROWS}")
    read, chunks, armed = reading.chunk, [], []

    def reads(*arguments, **options):
        found = read(*arguments, **options)
        chunks.append(found)
        if len(chunks) == chunk:
            change(schema, "before")
            if point == "window open":
                raise Crash(point)
            armed.append(point)
        return found

    def fault(passed):
        if passed in armed:
            armed.clear()
            raise Crash(passed)

    monkeypatch.setattr(reading, "chunk", reads)
    capture = capture_of(schema, "t", "u", chunk_rows=CHUNK)
    with pytest.raises(Crash, match=point), in_a_log(log, capture, fault=fault) as landing:
        capture.run(landing, threading.Event())
    change(schema, "after")
    with running(capture_of(schema, "t", "u", chunk_rows=CHUNK), log) as wait:
        wait(followed(schema, log, "t"))
        wait(followed(schema, log, "u"))
    for table in ("t", "u"):
        ages = {}
        for row in records_of(log, table):
            age = 3 if row["_deleted"] else 2 if "after" in row["v"] else 1 if "before" in row["v"] else 0
            assert ages.setdefault(row["id"], age) <= age, f"an older row is landed after a newer one: {row}"
            ages[row["id"]] = age

"""Tables that are read in chunks or anew, altered, swapped, truncated: the topic then has what the table has."""

from __future__ import annotations

import datetime as dt
import random
import threading
import time
from contextlib import closing, contextmanager

import pyarrow as pa
import pytest
from following import capture_of, followed, in_a_log, position_of, records_of, rows_of, running

from budget import fast
from headrace.connect.capture.errors import ChangesLost, SourceSchemaChanged
from headrace.connect.capture.source import SOURCE_TYPE
from headrace.connect.embedded.requests import request_again, requests_of
from headrace.log import Log


@pytest.fixture
def log(tmp_path):
    with Log(tmp_path / "log", fsync=False) as opened:
        yield opened


def table(schema, name="t", rows=10):
    schema.execute(
        f"CREATE TABLE {name} (id int PRIMARY KEY, v varchar(20), n int DEFAULT 0)",
        f"INSERT INTO {name} SELECT seq, concat('v', seq), 0 FROM seq_1_to_{rows}",
    )


@contextmanager
def changing(schema, *statements, seed=1):
    """Run statements with random keys (`$k`, `$x`) as long as the block runs; gives how many there were."""
    stop, done, draw = threading.Event(), [0], random.Random(seed)  # noqa: S311

    def run():
        with closing(schema.connect()) as sql, sql.cursor() as cursor:
            while not stop.is_set():
                one = draw.choice(statements)
                cursor.execute(one.replace("$k", str(draw.randint(1, 60))).replace("$x", str(draw.randint(1, 10**6))))
                done[0] += 1

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield done
    finally:
        stop.set()
        thread.join()


RANDOM = (
    "INSERT INTO t (id, v) VALUES ($k, '$x') ON DUPLICATE KEY UPDATE v = '$x'",
    "DELETE FROM t WHERE id = $k",
    "UPDATE t SET n = $x WHERE id = $k",
    "UPDATE IGNORE t SET id = id + 7 WHERE id = $k",
)


@pytest.mark.parametrize("seed", fast(0, of=range(5)))
def test_a_snapshot_in_small_chunks_while_rows_inside_and_outside_of_them_change(schema, log, seed):
    table(schema, rows=50)
    with running(capture_of(schema, "t", chunk_rows=3), log) as wait:
        with changing(schema, *RANDOM, seed=seed) as changes:
            wait(lambda: changes[0] > 200)
        wait(followed(schema, log))


def test_a_crash_before_and_after_each_append_of_a_snapshot_loses_nothing_and_repeats_nothing(schema, log):
    """Each append is cut off before or after it; the whole is what one run without crashes would give."""
    table(schema, rows=20)
    capture, appends = capture_of(schema, "t", chunk_rows=4), 0
    for crash in range(40):
        with in_a_log(log, capture) as landing:
            crashing = _Crashing(landing, after=crash % 2, done=followed(schema, log))
            if crash == 5:
                schema.execute("UPDATE t SET v = 'x' WHERE id IN (1, 9, 19)", "DELETE FROM t WHERE id = 3")
            try:
                capture.run(crashing, crashing.stop)
            except InterruptedError:
                appends += 1
            if crashing.stop.is_set() and crash > 5:
                break
    assert rows_of(log, "t") == set(schema.query("SELECT * FROM t"))
    assert appends >= 5
    records = [(row["id"], row["v"], row["_deleted"]) for row in records_of(log, "t")]
    assert len(records) == len(set(records))


class _Crashing:
    """A landing that fails before, or after, its second append; it stops the capture when nothing is left."""

    def __init__(self, landing, *, after, done):
        self._landing, self._after, self._done, self._appends = landing, after, done, 0
        self.stop, self._quiet = threading.Event(), 0

    def __getattr__(self, name):
        return getattr(self._landing, name)

    def has_room(self):
        self._quiet += 1
        if self._quiet > 3 and self._done():
            self.stop.set()
        return True

    def append(self, rows, *, position):
        self._appends += 1
        if self._appends == 2 and not self._after:
            raise InterruptedError
        self._landing.append(rows, position=position)
        self._quiet = 0
        if self._appends == 2:
            raise InterruptedError


KEYS = {
    "text": (
        "a varchar(9) COLLATE utf8mb4_general_ci, b int, PRIMARY KEY (a, b)",
        "elt(1 + seq % 3, 'a', 'B', 'é'), seq",
    ),
    "bytes": (
        "a varbinary(9), b bigint unsigned, PRIMARY KEY (a, b)",
        "unhex(hex(seq % 5)), 18446744073709551000 + seq",
    ),
    "enum": ("a enum('z', 'y', 'x'), b decimal(8, 2), PRIMARY KEY (a, b)", "elt(1 + seq % 3, 'x', 'y', 'z'), seq / 4"),
    "time": ("a datetime(6), b date, PRIMARY KEY (b, a)", "'2024-01-01' + INTERVAL seq MICROSECOND, '2024-02-01'"),
}


@pytest.mark.parametrize("kind", fast("enum", "bytes", of=KEYS))
def test_a_key_of_any_type_is_read_in_chunks(schema, log, kind):
    columns, values = KEYS[kind]
    schema.execute(f"CREATE TABLE t ({columns})", f"INSERT INTO t SELECT {values} FROM seq_1_to_50")
    with running(capture_of(schema, "t", chunk_rows=7), log) as wait:
        wait(lambda: "t" in log.topics() and len(rows_of(log, "t")) == 50)
        schema.execute("DELETE FROM t ORDER BY b, a LIMIT 3")
        wait(lambda: len(rows_of(log, "t")) == 47)


def test_a_key_of_floats_that_are_near_each_other_is_read_in_chunks(schema, log):
    """The server prints six digits of a float, which are another number."""
    schema.execute(
        "CREATE TABLE t (a float PRIMARY KEY, v int)", "INSERT INTO t SELECT 0.57 + seq * 1e-7, seq FROM seq_1_to_20"
    )
    with running(capture_of(schema, "t", chunk_rows=3), log) as wait:
        wait(lambda: "t" in log.topics() and rows_of(log, "t") == set(schema.query("SELECT a + 0e0, v FROM t")))
    assert len(records_of(log, "t")) == 20


def test_a_table_that_joins_later_gets_its_snapshot_and_one_is_read_anew_on_request(schema, log):
    table(schema)
    table(schema, "u", rows=30)
    with running(capture_of(schema, "t"), log) as wait:
        wait(followed(schema, log))
    with running(capture_of(schema, "t", "u", chunk_rows=4), log) as wait:
        schema.execute("DELETE FROM t WHERE id = 1")
        wait(lambda: followed(schema, log)() and followed(schema, log, "u")())
        before = len(records_of(log, "t"))
        request_again(log, "t")
        wait(lambda: not requests_of(log))
        assert len(records_of(log, "t")) == before + 9


@pytest.mark.parametrize(
    "statements",
    [
        ["TRUNCATE t", "INSERT INTO t VALUES (1, 'new', 1)"],
        ["BEGIN", "INSERT INTO t VALUES (70, 'x', 1)", "COMMIT", "TRUNCATE t", "INSERT INTO t VALUES (2, 'y', 2)"],
        ["DROP TABLE t", "CREATE TABLE t (id int PRIMARY KEY, v text, n int)", "INSERT INTO t VALUES (3, 'z', 3)"],
        ["CREATE TABLE t2 LIKE t", "INSERT INTO t2 VALUES (9, 'nine', 9)", "RENAME TABLE t TO t3, t2 TO t"],
        ["ALTER TABLE t MODIFY v varchar(60) CHARACTER SET latin1", "INSERT INTO t VALUES (100, 'é', 1)"],
        ["ALTER TABLE t MODIFY n decimal(5, 0)", "UPDATE t SET n = 7 WHERE id = 2"],
        ["SET SESSION binlog_format = STATEMENT", "UPDATE t SET n = n + 1"],
        ["XA START 'b$'", "UPDATE t SET n = 5 WHERE id = 4", "XA END 'b$'", "XA PREPARE 'b$'", "XA COMMIT 'b$'"],
        ["XA START 'r$'", "UPDATE t SET n = 5 WHERE id = 4", "XA END 'r$'", "XA PREPARE 'r$'", "XA ROLLBACK 'r$'",
         "UPDATE t SET n = 6 WHERE id = 5"],
        ["XA START 'o$'", "DELETE FROM t WHERE id = 4", "XA END 'o$'", "XA COMMIT 'o$' ONE PHASE"],
        ["BEGIN", "UPDATE t SET n = 1", "SAVEPOINT s", "DELETE FROM t", "ROLLBACK TO s", "COMMIT"],
        ["CREATE INDEX i ON t (n)", "DROP INDEX i ON t", "ANALYZE TABLE t", "DELETE FROM t WHERE id = 1"],
    ],
    ids=lambda statements: statements[0][:24],
)  # fmt: skip
def test_what_a_statement_does_is_followed(schema, log, statements):
    table(schema, rows=40)
    with running(capture_of(schema, "t", chunk_rows=9), log) as wait:
        wait(followed(schema, log))
        schema.execute(*(each.replace("$", schema.name) for each in statements))
        wait(followed(schema, log))
        schema.execute("INSERT INTO t VALUES (1000, 'last', 1)")
        wait(followed(schema, log))


def test_a_column_that_is_added_is_followed_and_one_that_is_dropped_stops(schema, log):
    table(schema)
    with running(capture_of(schema, "t"), log) as wait:
        wait(followed(schema, log))
        schema.execute("ALTER TABLE t ADD more int NOT NULL DEFAULT 3 AFTER id", "UPDATE t SET more = 4 WHERE id = 1")
        wait(lambda: {row[0]: row[-1] for row in rows_of(log, "t")} == {1: 4} | dict.fromkeys(range(2, 11), 3))
    for _ in range(2):
        with pytest.raises(SourceSchemaChanged, match='no column "v"'), running(capture_of(schema, "t"), log) as wait:  # noqa: PT012 - what fails is the thread
            schema.execute(
                "ALTER TABLE t DROP COLUMN IF EXISTS v", "INSERT INTO t (id) VALUES (77) ON DUPLICATE KEY UPDATE n = 9"
            )
            wait(lambda: False)


def test_a_log_that_was_purged_is_said_and_the_table_read_anew(breakable_schema, log):
    schema = breakable_schema
    table(schema)
    table(schema, "u")
    with running(capture_of(schema, "t", "u"), log) as wait:
        wait(lambda: followed(schema, log)() and followed(schema, log, "u")())
    schema.execute("UPDATE t SET n = 3", "DELETE FROM u WHERE id = 5", "FLUSH BINARY LOGS")
    schema.execute("INSERT INTO t VALUES (50, 'a', 1)")
    (now, *_) = schema.query("SHOW MASTER STATUS")[0]
    deadline = time.monotonic() + 30
    while schema.query("SHOW BINARY LOGS")[0][0] != now:  # a connection that has ended holds its file for a moment
        assert time.monotonic() < deadline
        schema.execute(f"PURGE BINARY LOGS TO '{now}'")
        time.sleep(0.05)
    for _ in range(2):
        with (
            pytest.raises(ChangesLost, match="headrace connect snapshot"),
            running(capture_of(schema, "t", "u"), log) as wait,
        ):
            wait(lambda: False)
        request_again(log, "t")
    request_again(log, "u")
    with running(capture_of(schema, "t", "u"), log) as wait:
        wait(lambda: not requests_of(log))
        wait(lambda: followed(schema, log)() and followed(schema, log, "u")())


def test_each_record_says_where_it_comes_from(schema, log):
    table(schema, rows=1)
    capture = capture_of(schema, "t")
    columns = capture.tables["t"].arrow.append(pa.field("_source", SOURCE_TYPE))
    with running(capture, log, t=columns) as wait:
        wait(followed(schema, log))
        with closing(schema.connect(autocommit=False)) as sql, sql.cursor() as cursor:
            cursor.execute("INSERT INTO t VALUES (2, 'a', 1), (3, 'b', 1)")
            cursor.execute("UPDATE t SET n = 4 WHERE id = 1")
            sql.commit()
            cursor.execute("SELECT @@last_gtid")
            (gtid,) = cursor.fetchone()
        wait(followed(schema, log))
    found = {(row["id"], row["n"]): row["_source"] for row in records_of(log, "t")}
    assert found[1, 0] is None
    assert found[2, 1] == found[3, 1] == found[1, 4]
    assert found[2, 1]["transaction"] == gtid
    assert found[2, 1]["position"].startswith("binlog.0")
    assert abs((found[2, 1]["committed"] - dt.datetime.now(dt.UTC)).total_seconds()) < 60


def test_a_server_that_is_an_older_copy_is_refused(schema, log):
    """It does not know the last transaction that was captured."""
    table(schema)
    capture = capture_of(schema, "t")
    with running(capture, log) as wait:
        wait(followed(schema, log))
    at = position_of(capture, log)
    with in_a_log(log, capture) as landing:
        later = at.at({domain: (server, number + 1_000_000) for domain, (server, number) in at.gtids.items()})
        landing.append({}, position=later.to_bytes())
    with pytest.raises(ChangesLost, match="not in the master's binlog"), running(capture, log) as wait:
        wait(lambda: False)

"""`cdc_mariadb`: row changes from the binary log of MariaDB into a topic.

A million changes wait in the log: 600,000 inserts in transactions of 100 rows, 300,000 updates and 100,000 deletes in
transactions of 1,000. They are read in turn: by ours into a topic, decoded and durable, and by `mariadb-binlog` over
the network into a file, as the text of decoded rows. Expected: its speed. The topic's rows are then compared with those
of the table.
"""

from __future__ import annotations

import threading
import time
from contextlib import closing
from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa
import pymysql
from scripts.broker.servers import Servers
from scripts.servers.mariadb import MariaDB
from scripts.servers.packages import Unavailable

from bench.figure import Figure, Skipped, compare_times, same
from headrace.connect.capture.columns import captured
from headrace.connect.capture.progress import Progress
from headrace.connect.embedded import EmbeddedTopics
from headrace.connect.mysql.address import MysqlAddress
from headrace.connect.mysql.capture import Capture
from headrace.connect.mysql.catalogue import described
from headrace.connect.mysql.server import current
from headrace.connect.topics import TopicSpec
from headrace.log import Log

if TYPE_CHECKING:
    from bench.setting import Setting
    from headrace.connect.mysql.catalogue import CapturedTable
    from headrace.connect.mysql.position import Position

CHANGES = 1_000_000
SMALL, LARGE = 100, 1_000
TABLE = "accounts"
_RIVAL = "mariadb-binlog to a file, rows decoded to text"
_CREATE = (
    f"CREATE TABLE {TABLE} (id bigint PRIMARY KEY, owner varchar(50) NOT NULL, balance decimal(12, 2) NOT NULL, "
    "changed timestamp(6) NOT NULL, note text)"
)
_NOBODY_READS = 1 << 60


def run(setting: Setting) -> list[Figure | Skipped]:
    """Measure it in turn."""
    at = MariaDB(Servers(setting.fresh("mariadb"), shared=False), innodb_buffer_pool_size="512M")
    try:
        at.start()
    except Unavailable as reason:
        return [Skipped(bench="cdc_mariadb", rival=_RIVAL, reason=str(reason))]
    try:
        return _measured(setting, at)
    finally:
        at.kill()


def _measured(setting: Setting, at: MariaDB) -> list[Figure | Skipped]:
    address = MysqlAddress.parse(at.url("bench"))
    with closing(pymysql.connect(host="127.0.0.1", port=at.port, user="root", autocommit=True)) as sql:
        cursor = sql.cursor()
        cursor.execute("CREATE DATABASE bench")
        cursor.execute("USE bench")
        cursor.execute(_CREATE)
        start = current(sql)
        changes = _changes(cursor, setting.rows(CHANGES))
        cursor.execute(f"SELECT count(*), coalesce(sum(balance), 0) FROM {TABLE}")
        expected = cursor.fetchone()
    setting.say(f"{changes:,} changes wait in the log")
    ours, theirs = [], []
    for number in range(setting.runs(5, 3) + 1):
        mine, rivals = _ours(setting, address, start, changes, expected), _theirs(setting, at)
        setting.say(f"run {number}: ours {mine:.2f} s, theirs {rivals:.2f} s{'' if number else ' (warm-up)'}")
        if number:
            ours.append(mine)
            theirs.append(rivals)
    what = f"{changes:,} row changes from the binary log into a topic"
    return [compare_times("cdc_mariadb", what=what, rival=_RIVAL, must=">= 1", ours=ours, theirs=theirs, unit="s")]


def _changes(cursor: pymysql.cursors.Cursor, count: int) -> int:
    inserts, updates, deletes = count * 6 // 10, count * 3 // 10, count // 10
    for first in range(0, inserts, SMALL):
        cursor.execute(
            f"INSERT INTO {TABLE} SELECT seq, concat('owner ', seq % 1000), seq % 100000 / 100.0, now(6), "
            f"concat('a note that says something about ', seq) FROM seq_{first}_to_{min(first + SMALL, inserts) - 1}"
        )
    for first in range(0, updates, LARGE):
        where = [first, min(first + LARGE, updates)]
        cursor.execute(f"UPDATE {TABLE} SET balance = balance + 1, changed = now(6) WHERE id >= %s AND id < %s", where)
    for first in range(0, deletes, LARGE):
        cursor.execute(f"DELETE FROM {TABLE} WHERE id >= %s AND id < %s", [first, min(first + LARGE, deletes)])
    return inserts + updates + deletes


def _ours(setting: Setting, address: MysqlAddress, start: Position, changes: int, expected: object) -> float:
    with address.connected() as sql:
        table = described(sql, "bench", TABLE)
    done = Progress(done=True, columns=tuple(captured(table.arrow)))
    with Log(setting.fresh("ours")) as log:
        took = _captured(log, address, table, start.with_table(table.full_name, done), changes)
        same("records", _records(log), changes)
        same("rows and their sum", _answer_of(log), expected)
    return took


def _captured(log: Log, address: MysqlAddress, table: CapturedTable, start: Position, changes: int) -> float:
    """Return how long it took until the topic had all changes."""
    store = EmbeddedTopics(log, partitions=2, fault=lambda point: None)  # noqa: ARG005 -- nothing happens there
    landing = store.shared_landing(
        "bench",
        {TABLE: TopicSpec(name=TABLE, schema=table.arrow, key=table.key, upserts=True)},
        feeds={TABLE: "bench"},
        limit=_NOBODY_READS,
        read=lambda topic: 0,  # noqa: ARG005
    )
    stop, capture = threading.Event(), Capture(address=address, tables={TABLE: table})
    with closing(landing):
        landing.append({}, position=start.to_bytes())
        thread = threading.Thread(target=capture.run, args=(landing, stop))
        began = time.perf_counter()
        thread.start()
        while _records(log) < changes:
            if not thread.is_alive():
                raise AssertionError("the capture has ended")
            time.sleep(0.005)
        took = time.perf_counter() - began
        stop.set()
        thread.join()
    return took


def _theirs(setting: Setting, at: MariaDB) -> float:
    file = setting.fresh("theirs")
    options = ["--read-from-remote-server", "--base64-output=decode-rows", "--verbose", f"--result-file={file}"]
    began = time.perf_counter()
    at.run("mariadb-binlog", *options, "binlog.000001", seconds=1800)
    took = time.perf_counter() - began
    with file.open(encoding="utf-8", errors="replace") as text:
        same("inserts", sum(line.startswith("### INSERT INTO `bench`") for line in text) > 0, True)  # noqa: FBT003 -- what is expected
    file.unlink()
    return took


def _records(log: Log) -> int:
    return sum(log.topic(TABLE).end_offsets().values()) if TABLE in log.topics() else 0


def _answer_of(log: Log) -> object:
    """Return how many rows the topic's table has, and the sum of their balances."""
    topic = log.topic(TABLE)
    parts = [
        batch
        for part, end in topic.end_offsets().items()
        for batch in topic.batches(part, 0, end, columns=["id", "balance", "_deleted", "_offset"])
    ]
    records = pa.Table.from_batches(parts)  # noqa: F841 -- DuckDB reads it by its name
    last = "SELECT arg_max(balance, _offset) AS balance, arg_max(_deleted, _offset) AS gone FROM records GROUP BY id"
    (found,) = duckdb.sql(f"SELECT count(*), coalesce(sum(balance), 0) FROM ({last}) WHERE NOT gone").fetchall()
    return found

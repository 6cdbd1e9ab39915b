"""What the tests of capture share: a landing in a real log, and a capture that runs in a thread."""

from __future__ import annotations

import threading
import time
from contextlib import closing, contextmanager

from headrace.connect.embedded import EmbeddedTopics
from headrace.connect.mysql.address import MysqlAddress
from headrace.connect.mysql.capture import Capture
from headrace.connect.mysql.catalogue import described
from headrace.connect.mysql.position import Position
from headrace.connect.topics import TopicSpec

SECONDS = 300


def capture_of(schema, *names, chunk_rows=1000, url=None):
    """Return a capture of tables; topics have the tables' names."""
    address = MysqlAddress.parse(url or schema.url)
    with address.connected() as sql:
        tables = {name: described(sql, schema.name, name) for name in names}
    return Capture(address=address, tables=tables, chunk_rows=chunk_rows)


@contextmanager
def in_a_log(log, capture, *, fault=lambda _point: None, **schemas):
    """Give a landing in a log, for the tables of a capture; with other columns than theirs, where they are given."""
    specs = {
        topic: TopicSpec(name=topic, schema=schemas.get(topic, each.arrow), key=each.key, upserts=True, follows=True)
        for topic, each in capture.tables.items()
    }
    feeds = {topic: f"mysql/{topic}" for topic in specs}
    store = EmbeddedTopics(log, partitions=2, fault=fault)
    landing = store.shared_landing("mysql", specs, feeds=feeds, limit=10**6, read=lambda _topic: 0)
    with closing(landing):
        yield landing


def rows_of(log, topic):
    """Return the rows that a topic has now: tuples of its columns."""
    now, opened = {}, log.topic(topic)
    for part in range(opened.partitions):
        for row in opened.read(part, 0, 10**6).to_pylist():
            key = tuple(row[name] for name in opened.key)
            now.pop(key, None)
            if not row["_deleted"]:
                now[key] = tuple(value for name, value in row.items() if not name.startswith("_"))
    return set(now.values())


def records_of(log, topic):
    """Return all records of a topic, each partition in order."""
    opened = log.topic(topic)
    return [row for part in range(opened.partitions) for row in opened.read(part, 0, 10**6).to_pylist()]


@contextmanager
def running(capture, log, **schemas):
    """Run a capture in a thread; gives a function that waits until something holds; its error is raised at the end."""
    stop, failure = threading.Event(), []

    def run():
        try:
            with in_a_log(log, capture, **schemas) as landing:
                capture.run(landing, stop)
        except Exception as error:  # noqa: BLE001 - the test raises it
            failure.append(error)

    def wait(holds):
        deadline = time.monotonic() + SECONDS
        while not holds():
            if failure:
                raise failure.pop()
            assert time.monotonic() < deadline, "it did not come to hold"
            time.sleep(0.01)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield wait
    finally:
        stop.set()
        thread.join(SECONDS)
    if failure:
        raise failure.pop()


def followed(schema, log, table="t"):
    """Return a condition: the topic has what the table has now."""

    def same():
        return table in log.topics() and rows_of(log, table) == set(schema.query(f"SELECT * FROM {table}"))

    return same


def position_of(capture, log):
    """Return where a capture that has stopped is."""
    with in_a_log(log, capture) as landing:
        stored = landing.position()
    return None if stored is None else Position.of(stored)

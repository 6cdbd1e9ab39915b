"""What the tests of capture share: a landing that remembers, and a capture that runs in a thread."""

from __future__ import annotations

import threading
import time
from contextlib import closing, contextmanager

import pyarrow as pa

from headrace.connect.capture.source import SOURCE_TYPE
from headrace.connect.embedded import EmbeddedTopics
from headrace.connect.postgres.address import PostgresAddress
from headrace.connect.postgres.capture import Capture
from headrace.connect.postgres.catalogue import described
from headrace.connect.topics import TopicSpec

SECONDS = 300


class Remembering:
    """A landing in memory: each append, the state of each table by its key, and the position. It may crash."""

    def __init__(self, schemas, keys):
        self.schemas, self.keys = schemas, keys
        self.appends, self.tables = [], {topic: {} for topic in schemas}
        self.stored = None
        self.crash = lambda _number: False
        self.check = lambda _tables: None
        self.facts = {}

    def schema(self, topic):
        return self.schemas[topic]

    def position(self):
        return self.stored

    def append(self, rows, *, position):
        if self.crash(len(self.appends)):
            raise InterruptedError("a crash before the append")
        self.appends.append({topic: table.to_pylist() for topic, table in rows.items()})
        self.stored = position
        for topic, table in self.appends[-1].items():
            for row in table:
                key = tuple(row[name] for name in self.keys[topic])
                if row["_deleted"]:
                    self.tables[topic].pop(key, None)
                else:
                    self.tables[topic][key] = {name: value for name, value in row.items() if name != "_deleted"}
        self.check(self.tables)

    def has_room(self):
        return True

    def requests(self):
        return []

    def report(self, **facts):
        self.facts = facts


def capture_of(database, *names, chunk_rows=1000, slot=None, publication=None, url=None):
    """Return a capture of tables of the schema public, and a landing for it; topics have the tables' names."""
    with database.connect() as sql:
        tables = {name: described(sql, "public", name) for name in names}
    slot = slot or f"{database.name}_slot"
    address = PostgresAddress.parse(url or database.url)
    publication = publication or slot
    capture = Capture(address=address, slot=slot, publication=publication, tables=tables, chunk_rows=chunk_rows)
    schemas = {name: table.arrow for name, table in tables.items()}
    return capture, Remembering(schemas, {name: table.key for name, table in tables.items()})


@contextmanager
def in_a_log(log, capture):
    """Give a real landing in a log, for the tables of a capture."""
    specs = {
        topic: TopicSpec(name=topic, schema=each.arrow, key=each.key, upserts=True, follows=True)
        for topic, each in capture.tables.items()
    }
    feeds = {topic: f"postgres/{topic}" for topic in specs}
    store = EmbeddedTopics(log, partitions=2, fault=lambda _point: None)
    landing = store.shared_landing(capture.slot, specs, feeds=feeds, limit=10**6, read=lambda _topic: 0)
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


def with_source(landing, topic):
    """Let a topic have the column that says where a record comes from."""
    landing.schemas[topic] = landing.schemas[topic].append(pa.field("_source", SOURCE_TYPE))


@contextmanager
def running(capture, landing):
    """Run a capture in a thread; its error is raised at the end, unless the body took it."""
    stop, failure = threading.Event(), []

    def run():
        try:
            capture.run(landing, stop)
        except Exception as error:  # noqa: BLE001 - the test raises it
            failure.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield failure
    finally:
        stop.set()
        thread.join(SECONDS)
    if failure:
        raise failure.pop()


def until(holds, failure=()):
    """Wait until something holds, or the capture fails."""
    deadline = time.monotonic() + SECONDS
    while not holds():
        if failure:
            raise failure.pop()
        assert time.monotonic() < deadline, "it did not come to hold"
        time.sleep(0.01)

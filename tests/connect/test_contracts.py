"""Our own connectors pass the contract kits that are exported for everybody's."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import headrace as hr
from headrace.base.time import ManualClock
from headrace.connect import files
from headrace.connect.embedded import EmbeddedTopics
from headrace.connect.embedded.source import EmbeddedSource
from headrace.connect.objects import ObjectSink
from headrace.connect.topics import TopicSpec
from headrace.connect.views import ViewSink
from headrace.testing import check_feed, check_sink, check_source
from headrace.testing.connectors import COLUMNS
from headrace.views.sqlite import SqliteViews


def quiet(point):
    """No crash."""


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def log(tmp_path, clock):
    with hr.Log(tmp_path / "log", clock=clock, fsync=False, segment_bytes=2_000) as log:
        yield log


class Topic:
    """A topic to read."""

    columns = ("id", "text", "_time")

    def __init__(self, log, clock):
        self.log, self.clock = log, clock
        topics = EmbeddedTopics(log, partitions=3, fault=quiet)
        self.source = topics.source(TopicSpec(name="t", schema=COLUMNS, key=("id",)))
        self.count = 0

    def add(self, count):
        ids = range(self.count, self.count + count)
        self.log.topic("t").append([{"id": i, "text": f"t{i}", "_time": 1_000 * (i * 7 % 11)} for i in ids])
        self.count += count

    def expire(self):
        topic = self.log.topic("t")
        topic.alter(retention="1 hour")
        self.clock.advance(7200)
        topic.clean()


def test_a_topic_is_a_source(log, clock):
    check_source(lambda: Topic(log, clock))


class Kept:
    """What a sink of the embedded log or of views is tested against."""

    def __init__(self, sink, read):
        self.sink, self.read = sink, read


@pytest.mark.parametrize("changelog", [False, True])
def test_a_topic_is_a_sink(log, changelog):
    topics = EmbeddedTopics(log, partitions=2, fault=quiet)
    spec = TopicSpec(name="t", schema=COLUMNS, key=("id",) if changelog else (), changelog=changelog)

    def read():
        topic = log.topic("t")
        return [row for p, end in topic.end_offsets().items() for row in topic.read(p, 0, end).to_pylist()]

    check_sink(lambda: Kept(topics.sink(spec), read))


@pytest.mark.parametrize("key", [("id",), None])
def test_a_view_is_a_sink(tmp_path, key):
    views = SqliteViews(tmp_path / "views.db", durable=False)
    sink = ViewSink(views=views, view="v", schema=COLUMNS, key=key, fault=quiet)
    check_sink(lambda: Kept(sink, lambda: views.read("v").to_pylist()))
    views.close()


class Rows:
    """An object that keeps rows by epoch, so that it is told an epoch twice and has it once."""

    def __init__(self):
        self.epochs = {}

    def write(self, epoch, rows):
        self.epochs[epoch] = rows.to_pylist()


def test_an_object_is_a_sink():
    rows = Rows()
    check_sink(lambda: Kept(ObjectSink(rows), lambda: [row for each in rows.epochs.values() for row in each]))


class File:
    """A file that grows."""

    exactly_once = True

    def __init__(self, path):
        self.path = path
        self.feed = files.lines(path)

    def add(self, ids):
        with self.path.open("a") as file:
            file.writelines(json.dumps({"id": i, "text": f"t{i}"}) + "\n" for i in ids)


def test_a_file_is_a_feed(tmp_path):
    check_feed(lambda: File(tmp_path / "records.jsonl"))


class Folder(File):
    """A folder into which files are put."""

    def __init__(self, path):
        super().__init__(path / "0.jsonl")
        path.mkdir()
        self.feed = files.folder(path)

    def add(self, ids):
        self.path = self.path.with_name(f"{len(list(self.path.parent.iterdir()))}.jsonl")
        super().add(ids)


def test_a_folder_is_a_feed(tmp_path):
    check_feed(lambda: Folder(tmp_path / "inbox"))


class Doubling(File):
    """A feed that forgets its position."""

    def __init__(self, path):
        super().__init__(path)
        self.feed = Forgetful(str(path))


class Forgetful:
    """Lands the whole file each time."""

    def __init__(self, path):
        self.path = path

    identity = "forgetful"

    def run(self, landing, stop):
        landing.append([json.loads(line) for line in Path(self.path).read_text().splitlines()])
        stop.wait(5)


def test_the_kit_finds_a_feed_that_lands_records_twice(tmp_path):
    with pytest.raises(AssertionError, match="landed more than once"):
        check_feed(lambda: Doubling(tmp_path / "records.jsonl"))


class Twice(Rows):
    """Claims to be exact, and is not."""

    def write(self, epoch, rows):  # noqa: ARG002 -- what it should look at
        self.epochs[len(self.epochs)] = rows.to_pylist()


def test_the_kit_finds_a_sink_that_is_not_as_exact_as_it_says():
    rows = Twice()

    class Liar(ObjectSink):
        """Says exactly once."""

        guarantee = "exactly_once"

    with pytest.raises(AssertionError, match="the same epoch again changes nothing"):
        check_sink(lambda: Kept(Liar(rows), lambda: [row for each in rows.epochs.values() for row in each]))


class Drifting(EmbeddedSource):
    """Forgets the first record of what it has read ten times."""

    def open(self, *, clock):
        reader, readings = super().open(clock=clock), []
        plain = reader.read

        def read(part, columns):
            readings.append(part)
            batches = plain(part, columns)
            return batches if len(readings) < 10 else (batch.slice(1) for batch in batches)

        reader.read = read
        return reader


def test_the_kit_finds_a_source_that_reads_something_else_later(log, clock):
    topic = Topic(log, clock)
    topic.source = Drifting(log=log, topic=topic.source.topic, partitions=1)
    with pytest.raises(AssertionError):
        check_source(lambda: topic)

"""Cleaning with several processes: one cleans and is killed, another appends, readers miss nothing."""

import multiprocessing
import os
import signal
from random import Random

import pytest

from headrace.log import Log

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["headrace.log", "numpy", "pyarrow.compute"])
SEGMENT = 20_000
KEYS = 50


def cleaner(path, out):
    """Compact for ever, and send a byte each time."""
    with Log(path, segment_bytes=SEGMENT) as log:
        topic = log.topic("a")
        while True:
            topic.compact()
            topic.clean()
            os.write(out.fileno(), b".")


def appender(path, first, count):
    """Append this many small batches; a record's number is its offset."""
    with Log(path, segment_bytes=SEGMENT) as log:
        topic = log.topic("a")
        for start in range(first, first + count * 10, 10):
            given = topic.append([{"k": f"k{n * 31 % KEYS}", "n": n} for n in range(start, start + 10)])
            assert given == {0: range(start, start + 10)}


def started(target, *args):
    process = CONTEXT.Process(target=target, args=args, daemon=True)
    process.start()
    return process


def check(path, start=0, *, quiet=True):
    """Compare the records with what must be there: each at its offset, and the last of each key.

    While others append and clean (`quiet=False`), the last of a key may be written again and compacted during the read.
    """
    with Log(path) as log:
        topic = log.topic("a")
        end = topic.end_offsets()[0]
        found = topic.read(0, start, end + 1)
        offsets = found.column("_offset").to_pylist()
        assert offsets == sorted(set(offsets))
        assert found.column("n").to_pylist() == offsets
        assert found.column("k").to_pylist() == [f"k{n * 31 % KEYS}" for n in offsets]
        last = {f"k{n * 31 % KEYS}": n for n in range(end)}
        assert not quiet or set(last.values()) <= set(offsets)
        return topic.verify()


@pytest.mark.parametrize("archived", [False, True])
def test_a_cleaner_that_is_killed_leaves_the_old_topic_or_the_new(tmp_path, archived):
    dice = Random(f"cleaner {archived}")  # noqa: S311 - a test that replays
    (tmp_path / "archive").mkdir()
    archive = tmp_path / "archive" if archived else None
    with Log(tmp_path / "log", segment_bytes=SEGMENT) as log:
        topic = log.create_topic("a", "k string, n bigint", key="k", cleanup="compact", archive=archive)
        appender(log.path, 0, 60)
        for kill in range(4):
            ours, theirs = CONTEXT.Pipe(duplex=False)
            process = started(cleaner, log.path, theirs)
            theirs.close()
            appender(log.path, topic.end_offsets()[0], 10)
            for _ in range(dice.randrange(3)):
                os.read(ours.fileno(), 1)
            for _ in range(dice.randrange(200_000)):
                pass
            os.kill(process.pid, signal.SIGKILL)
            process.join()
            ours.close()
            assert check(log.path) == [], kill
        topic.compact()
        assert check(log.path) == []
        partition = topic.opened.partition(0)
        assert {partition.opened(span).path for span in partition.spans(partition.state())} == {
            *tmp_path.rglob("*.segment")
        }
        assert not [*tmp_path.rglob("*.draft")]


def test_readers_go_on_while_others_append_and_clean(tmp_path):
    """From the start to the end, over many layouts: ascending, right, and the last of each key among them."""
    with Log(tmp_path, segment_bytes=SEGMENT) as log:
        topic = log.create_topic("a", "k string, n bigint", key="k", cleanup="compact")
        appender(tmp_path, 0, 40)
        ours, theirs = CONTEXT.Pipe(duplex=False)
        appending = started(appender, tmp_path, 400, 150)
        cleaning = started(cleaner, tmp_path, theirs)
        theirs.close()
        try:
            rounds = 0
            while appending.is_alive() or rounds < 3:
                check(tmp_path, quiet=False)
                at, seen = 0, []
                while at < (end := topic.end_offsets()[0]):  # to the head: a key may be written again meanwhile
                    seen += [n for batch in topic.batches(0, at, end) for n in batch.column("n").to_pylist()]
                    at = end
                assert seen == sorted(set(seen))
                assert {n * 31 % KEYS for n in seen} == set(range(KEYS))
                rounds += 1
        finally:
            os.kill(cleaning.pid, signal.SIGKILL)
            cleaning.join()
            appending.join()
            ours.close()
        assert appending.exitcode == 0
        assert topic.end_offsets() == {0: 1900}
        assert check(tmp_path) == []


def test_a_topic_may_be_deleted_while_it_is_cleaned_and_read(tmp_path):
    for _ in range(2):
        with Log(tmp_path, segment_bytes=SEGMENT) as log:
            topic = log.create_topic("a", "k string, n bigint", key="k", cleanup="compact")
            appender(tmp_path, 0, 60)
            reading = topic.batches(0, 0, 600)
            batch = next(reading)
            ours, theirs = CONTEXT.Pipe(duplex=False)
            process = started(cleaner, tmp_path, theirs)
            theirs.close()
            os.read(ours.fileno(), 1)
            log.delete_topic("a")
            process.join(20)
            assert process.exitcode == 1  # with the error that the topic is gone
            ours.close()
            assert batch.column("n").to_pylist() == list(range(10))
            assert log.topics() == []
            assert list((tmp_path / "topics").iterdir()) == []

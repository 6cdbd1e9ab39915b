"""Several processes on one log, and processes that are killed."""

import multiprocessing
import os

import pytest

from headrace.log import Log
from headrace.log.appending import writer
from headrace.log.segments.recovery import is_complete

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["headrace.log", "numpy", "pyarrow.compute"])


def start(target, *args):
    process = CONTEXT.Process(target=target, args=args, daemon=True)
    process.start()
    return process


def counting_writer(path, name, appends, together):
    with Log(path, fsync=False, segment_bytes=20_000) as log:
        topic = log.topic("a")
        together.wait()
        for n in range(appends):
            topic.append([{"writer": name, "n": n * 3 + i} for i in range(3)])


def test_two_processes_that_write_take_turns(tmp_path):
    with Log(tmp_path) as log:
        topic = log.create_topic("a", "writer string, n bigint")
        together = CONTEXT.Barrier(3)
        writers = [start(counting_writer, tmp_path, name, 150, together) for name in "xy"]
        counting_writer(tmp_path, "z", 150, together)
        for process in writers:
            process.join()
            assert process.exitcode == 0
        rows = topic.read(0, 0, 10_000).to_pylist()
        assert [row["_offset"] for row in rows] == list(range(3 * 450))
        for name in "xyz":
            assert [row["n"] for row in rows if row["writer"] == name] == list(range(450))
        for at in range(0, len(rows), 3):
            assert len({row["writer"] for row in rows[at : at + 3]}) == 1


def test_readers_in_another_process_see_whole_appends_while_one_writes(tmp_path):
    with Log(tmp_path) as log:
        topic = log.create_topic("a", "writer string, n bigint")
        together = CONTEXT.Barrier(1)
        process = start(counting_writer, tmp_path, "x", 400, together)
        at, seen = 0, []
        while at < 1200:
            end = topic.end_offsets()[0]
            assert end % 3 == 0
            for batch in topic.batches(0, at, end, columns=["n", "_offset"]):
                seen += batch.column("n").to_pylist()
                assert batch.column("n") == batch.column("_offset")
            at = end
            assert process.is_alive() or topic.end_offsets()[0] == 1200
        process.join()
        assert seen == list(range(1200))


def making_topic(path, out):
    with Log(path, fsync=False) as log:
        log.create_topic("new", "n bigint", partitions=2).append([{"n": 1}], partition=1)
    out.send("made")


def test_a_topic_of_another_process_is_seen(tmp_path):
    with Log(tmp_path, fsync=False) as log:
        log.create_topic("old", "n bigint")
        ours, theirs = CONTEXT.Pipe()
        process = start(making_topic, tmp_path, theirs)
        assert ours.recv() == "made"
        process.join()
        assert log.topics() == ["new", "old"]
        assert log.topic("new").end_offsets() == {0: 0, 1: 1}


def test_threads_append_together_and_each_gets_its_own_offsets(tmp_path):
    from concurrent.futures import ThreadPoolExecutor

    with Log(tmp_path) as log, ThreadPoolExecutor(8) as pool:
        topic = log.create_topic("a", "thread int, n bigint")

        def work(thread):
            return [topic.append([{"thread": thread, "n": n}] * 2)[0] for n in range(40)]

        given = list(pool.map(work, range(8)))
        rows = topic.read(0, 0, 10_000).to_pylist()
        assert len(rows) == 640
        for thread, ranges in enumerate(given):
            for n, offsets in enumerate(ranges):
                assert [(rows[o]["thread"], rows[o]["n"]) for o in offsets] == [(thread, n)] * 2


@pytest.mark.parametrize("finished", [True, False])
def test_a_writer_finds_what_another_left_that_died_before_it_was_acknowledged(tmp_path, monkeypatch, finished):
    """A complete append stays, a torn one is cut, although this process had the partition open all the time."""
    with Log(tmp_path, segment_bytes=3_000) as log:
        topic = log.create_topic("a", "n bigint")
        for n in range(4):
            topic.append([{"n": n}])
        pid = os.fork()
        if not pid:
            written = writer.write_at
            monkeypatch.setattr(writer, "_sync", lambda _: os._exit(0))
            if not finished:
                monkeypatch.setattr(writer, "write_at", lambda fd, b, at, **_: (written(fd, b[:2], at), os._exit(0)))
            try:
                topic.append([{"n": 4}] * 100)
            finally:
                os._exit(1)
        assert os.waitpid(pid, 0)[1] == 0
        assert topic.end_offsets() == {0: 4}
        more = [4] * 100 if finished else []
        assert topic.append([{"n": 5}]) == {0: range(4 + len(more), 5 + len(more))}
        assert topic.read(0, 0, 999).column("n").to_pylist() == [0, 1, 2, 3, *more, 5]
        assert is_complete(tmp_path / "topics" / "a" / "0", topic.opened.partition(0).state())


def forked_append(topic, out):
    try:
        out.send(topic.append([{"n": 2}])[0])
    finally:
        out.close()
        os._exit(0)


def test_a_fork_takes_its_own_locks(tmp_path):
    with Log(tmp_path, fsync=False) as log:
        topic = log.create_topic("a", "n bigint")
        topic.append([{"n": 1}])
        ours, theirs = multiprocessing.Pipe()
        pid = os.fork()
        if not pid:
            forked_append(topic, theirs)
        assert ours.recv() == range(1, 2)
        os.waitpid(pid, 0)
        assert topic.append([{"n": 3}]) == {0: range(2, 3)}
        assert topic.read(0, 0, 9).column("n").to_pylist() == [1, 2, 3]

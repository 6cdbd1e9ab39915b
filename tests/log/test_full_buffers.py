"""A full buffer: what `on_full` says is what happens, in the buffer itself, between threads, and in a producer."""

import errno
import os
import threading
from concurrent.futures import ThreadPoolExecutor, wait

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.base.buffer import ON_FULL, Buffer, SharedBuffer
from headrace.base.errors import InvalidArgument, InvalidRows, RecordDropped
from headrace.log import Log
from headrace.log.appending import writer

MOVES = st.lists(st.one_of(st.none(), st.integers(1, 6)), max_size=60)  # take, or put something of this weight


@pytest.mark.parametrize("on_full", ON_FULL)
@given(limit=st.integers(1, 10), spill_bytes=st.integers(1, 400), moves=MOVES)
def test_what_was_put_in_comes_out_in_order_or_was_dropped(on_full, limit, spill_bytes, moves):
    """The law: taken, dropped and waiting are all that was put in, each once, and memory holds the limit."""
    buffer = Buffer(limit, on_full, 2, spill_bytes=spill_bytes)
    number, taken, dropped, waiting = 0, [], [], []
    for weight in moves:
        if weight is None or buffer.is_full:
            entries = taken_of(buffer)
            assert [entry[0] for entry in entries] == waiting[: len(entries)]
            assert bool(entries) == bool(waiting), "what waits can be taken"
            assert len(entries) <= 1 or sum(entry[1] for entry in entries) <= max(limit, held(entries, on_full))
            taken += [entry[0] for entry in entries]
            waiting = waiting[len(entries) :]
        if weight is None:
            continue
        room = limit - sum(w for _, w in waiting)
        gone = [entry[0] for entry in buffer.put(((number, weight), weight)) or ()]
        waiting.append((number, weight))
        if on_full == "drop_newest":
            assert gone == ([(number, weight)] if weight > room and len(waiting) > 1 else [])
        elif on_full == "drop_oldest":
            assert gone == waiting[: len(gone)]
            kept = sum(w for _, w in waiting[len(gone) :])
            assert kept <= limit or len(waiting) - len(gone) == 1
            assert not gone or kept + gone[-1][1] > limit, "no more than is needed"
        else:
            assert gone == []
        waiting = [each for each in waiting if each not in gone]
        dropped += gone
        number += 1
        assert buffer.count == len(waiting)
    while entries := taken_of(buffer):
        taken += [entry[0] for entry in entries]
    assert [each[0] for each in taken] == sorted(each[0] for each in taken)
    assert sorted([*taken, *dropped]) == sorted((each[0], each[1]) for each in [*taken, *dropped])
    assert {each[0] for each in [*taken, *dropped]} == set(range(number))
    assert len(taken) + len(dropped) == number
    assert buffer.dropped == len(dropped)
    buffer.close()


def taken_of(buffer):
    return list(zip(*buffer.take(), strict=True))


def held(entries, on_full):
    """One that blocks takes one more that is put into it when it was not full yet."""
    return sum(entry[1] for entry in entries[:-1]) + entries[-1][1] if on_full == "block" else 0


def test_spilled_values_survive_their_way_through_the_file(tmp_path):
    buffer = Buffer(2, "spill", 3, folder=tmp_path)
    values = [os.urandom(100_000) for _ in range(20)]
    for at, value in enumerate(values):
        assert buffer.put((value, 1, at)) is None
    assert buffer.spilled == 18
    assert list(tmp_path.iterdir()) == [], "the file has no name: nothing stays behind when the process is killed"
    taken = []
    while entries := taken_of(buffer):
        assert len(entries) <= 2
        taken += entries
    assert [entry[0] for entry in taken] == values
    assert [entry[2] for entry in taken] == list(range(20))
    buffer.close()


def test_a_disk_that_takes_no_more_makes_a_spill_wait_and_loses_nothing(tmp_path, monkeypatch):
    buffer = Buffer(1, "spill", 2, folder=tmp_path)

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", full)
        put = 0
        while not buffer.is_full:
            buffer.put((bytes(60_000) + bytes([put]), 1))
            put += 1
    assert put == 6, "a quarter of a megabyte is kept until it is written"
    taken = []
    while entries := taken_of(buffer):
        taken += [entry[0][-1] for entry in entries]
        assert not buffer.is_full
    assert taken == list(range(put))
    buffer.close()


def test_a_spill_that_cannot_be_read_now_loses_nothing(tmp_path, monkeypatch):
    buffer, read, failing = Buffer(1, "spill", 2, folder=tmp_path), os.pread, threading.Event()
    values = [bytes([at]) * 300_000 for at in range(4)]
    for value in values:
        buffer.put((value, 1))

    def broken(fd, size, at):
        if failing.is_set():
            raise OSError(errno.EIO, "Input/output error")
        return read(fd, min(size, 200_000), at)

    monkeypatch.setattr(os, "pread", broken)
    taken = taken_of(buffer)
    failing.set()
    for _ in range(2):
        with pytest.raises(OSError, match="Input/output"):
            buffer.take()
    assert buffer.count == 3
    failing.clear()
    while entries := taken_of(buffer):
        taken += entries
    assert [entry[0] for entry in taken] == values
    buffer.close()


def test_what_is_taken_from_a_spill_has_the_limit_of_the_buffer_however_long_its_values_are(tmp_path):
    buffer = Buffer(3, "spill", 2, folder=tmp_path)
    for number in range(10):
        buffer.put((bytes([number]) * 1_000, 1))
    assert [len(taken_of(buffer)) for _ in range(5)] == [3, 3, 3, 1, 0]
    buffer.close()


def test_a_thread_waits_for_room_and_nobody_waits_when_it_is_closed():
    shared = SharedBuffer(2, "block")
    assert shared.put(b"a")
    assert shared.put(b"b")
    assert not shared.offer(b"c")
    with ThreadPoolExecutor(1) as pool:
        third = pool.submit(shared.put, b"c")
        assert not wait([third], timeout=0.05).done
        assert shared.take(0) == [b"a", b"b"]
        assert third.result(60)
        assert shared.take(60) == [b"c"]
        assert shared.take(0) == []
        shared.put(b"d", weight=5)
        waits = pool.submit(shared.put, b"e")
        assert not wait([waits], timeout=0.05).done
        shared.close()
        assert not waits.result(60)
    assert shared.take(60) == [b"d"]
    assert shared.take(60) == []
    assert shared.counts.shown() == {"dropped": 1, "waited": 3}, "it was closed when the last one came"


def test_a_shared_buffer_counts_records_and_not_entries():
    newest = SharedBuffer(10, "drop_newest")
    assert newest.put(b"1", weight=10, records=3)
    assert not newest.put(b"2", weight=1, records=4)
    assert newest.counts.shown() == {"dropped": 4}
    oldest = SharedBuffer(10, "drop_oldest")
    assert oldest.put(b"1", weight=10, records=3)
    assert oldest.put(b"2", weight=1, records=4)
    assert oldest.counts.shown() == {"dropped": 3}
    spill = SharedBuffer(1, "spill")
    assert all(spill.put(bytes([at]), records=2) for at in range(3))
    assert spill.counts.shown() == {"spilled": 4}


# ---- producers ---------------------------------------------------------------------------------------------


@pytest.fixture
def held_disk(monkeypatch):
    """Let every write of the log wait for `gate`, after `reached` was set."""
    gate, reached, written = threading.Event(), threading.Event(), writer.write_at

    def slow(fd, buffers, position, **how):
        reached.set()
        assert gate.wait(60)
        written(fd, buffers, position, **how)

    monkeypatch.setattr(writer, "write_at", slow)
    yield gate, reached
    gate.set()


@pytest.mark.parametrize(
    ("on_full", "stored", "lost"),
    [
        ("drop_oldest", [0, 1, 2, 7, 8, 9], [3, 4, 5, 6]),
        ("drop_newest", [0, 1, 2, 3, 4, 5], [6, 7, 8, 9]),
        ("spill", list(range(10)), []),
    ],
)
def test_a_producer_with_a_full_buffer_does_what_on_full_says(log, held_disk, on_full, stored, lost):
    gate, reached = held_disk
    topic = log.create_topic("a", "n bigint")
    with log.producer(max_unacknowledged=3, linger="1 hour", on_full=on_full) as producer:
        sent = [producer.send("a", {"n": n}) for n in range(3)]
        assert reached.wait(60)
        sent += [producer.send("a", {"n": n}) for n in range(3, 10)]
        assert [at for at, future in enumerate(sent) if future.done()] == lost
        assert producer.dropped == len(lost)
        assert producer.spilled == (4 if on_full == "spill" else 0)
        assert producer.waited == 0
        gate.set()
        producer.flush()
        assert all(future.done() for future in sent)
    assert topic.read(0, 0, 99).column("n").to_pylist() == stored
    assert [sent[n].result() for n in stored] == list(range(len(stored)))
    for n in lost:
        with pytest.raises(RecordDropped, match=f'3 records waited for the disk, and on_full is "{on_full}"'):
            sent[n].result()
    assert not [path for path in log.path.iterdir() if path.is_file() and "tmp" in path.name]


def test_flush_waits_for_what_is_written_however_much_is_dropped_meanwhile(log, held_disk):
    gate, reached = held_disk
    log.create_topic("a", "n bigint")
    with log.producer(max_unacknowledged=2, linger="1 hour", on_full="drop_oldest") as producer:
        first = [producer.send("a", {"n": n}) for n in range(2)]
        assert reached.wait(60)
        with ThreadPoolExecutor(1) as pool:
            flushed = pool.submit(producer.flush)
            for n in range(50):
                producer.send("a", {"n": n})
            assert not wait([flushed], timeout=0.05).done
            gate.set()
            flushed.result(60)
            assert all(future.done() for future in first)


def test_a_spill_that_is_full_waits_and_every_record_arrives(log, held_disk):
    gate, reached = held_disk
    topic = log.create_topic("a", "n bigint, text string")
    with (
        log.producer(max_unacknowledged=2, on_full="spill", spill_bytes=500) as producer,
        ThreadPoolExecutor(1) as pool,
    ):
        sending = pool.submit(lambda: [producer.send("a", {"n": n, "text": "x" * 50}) for n in range(100)])
        assert reached.wait(60)
        assert not wait([sending], timeout=0.1).done
        assert producer.waited == 1
        gate.set()
        assert [future.result(60) for future in sending.result(60)] == list(range(100))
    assert topic.read(0, 0, 999).column("n").to_pylist() == list(range(100))


def test_numbered_records_that_were_spilled_are_appended_once(log, held_disk):
    gate, reached = held_disk
    topic = log.create_topic("a", "n bigint", partitions=2)
    for _ in range(2):
        with log.producer(producer="p", max_unacknowledged=2, on_full="spill") as producer:
            sent = [producer.send("a", {"n": n}, sequence=n + 1) for n in range(9)]
            reached.wait(0.1)
            gate.set()
            assert all(future.exception() is None for future in sent)
    assert sum(topic.end_offsets().values()) == 9


def test_options_of_full_buffers_are_checked(log):
    with pytest.raises(InvalidArgument, match='Say "block" or "drop_oldest" or "drop_newest" or "spill"'):
        log.producer(on_full="explode")
    with pytest.raises(InvalidRows, match="spill_bytes is 0"):
        log.producer(on_full="spill", spill_bytes=0)


def test_a_producer_drops_under_a_real_overload_and_counts_it(tmp_path):
    """Nothing is held up here: senders are faster than the disk, and what was not dropped is stored in order."""
    with Log(tmp_path) as log:
        topic = log.create_topic("a", "n bigint")
        with log.producer(max_unacknowledged=50, on_full="drop_newest") as producer:
            sent = [producer.send("a", {"n": n}) for n in range(20_000)]
        stored = topic.read(0, 0, 20_000).column("n").to_pylist()
        assert stored == sorted(stored)
        assert len(stored) + producer.dropped == 20_000
        assert producer.dropped > 0
        assert [n for n, future in enumerate(sent) if future.exception() is None] == stored

"""`Log.producer`: single records, appended in batches, each with its own future."""

import asyncio
import errno
import gc
import os
import threading
import time
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, as_completed, wait
from contextlib import contextmanager, suppress

import pytest

from headrace.base.errors import (
    AppendFailed,
    InvalidRows,
    InvalidTime,
    InvalidTopic,
    LogClosed,
    ProducerClosed,
    TopicDeleted,
    UnknownTopic,
)
from headrace.log import Log
from headrace.log.appending import writer
from headrace.log.appending.sent import Sent, finish

HOUR = "1 hour"  # longer than any test: only a flush, a full batch or the end writes


@pytest.fixture(autouse=True)
def topic(log):
    return log.create_topic("a", "n bigint, text string")


def values(topic, partition=0):
    return topic.read(partition, 0, 100_000).column("n").to_pylist()


@contextmanager
def disk_that(monkeypatch, wrong):
    """Let every write fail for which `wrong(number of writes so far)` is true."""
    count, written = [0], writer.write_at

    def write(fd, buffers, position, **how):
        count[0] += 1
        if wrong(count[0]):
            raise OSError(errno.ENOSPC, "No space left on device")
        written(fd, buffers, position, **how)

    with monkeypatch.context() as patched:
        patched.setattr(writer, "write_at", write)
        yield


def test_a_record_is_answered_with_its_offset_once_it_is_written(log, topic):
    with log.producer() as producer:
        sent = [producer.send("a", {"n": n, "text": "x"}) for n in range(500)]
        assert [future.result() for future in sent] == list(range(500))
        assert all(future.done() and not future.cancelled() for future in sent)
    assert values(topic) == list(range(500))


def test_futures_are_waited_for_while_the_collector_runs_anything():
    """What the collector ends may let the other thread run in the middle of anything that allocates."""

    class Slow:
        def __init__(self):
            self.cycle = self

        def __del__(self):
            time.sleep(0)

    before = gc.get_threshold()
    gc.set_threshold(20)
    try:
        for _ in range(100):
            sent = [Sent() for _ in range(500)]
            finishing = threading.Thread(target=finish, args=(sent, range(500)))
            for _ in range(20):
                Slow()
            finishing.start()
            assert [future.result(timeout=60) for future in sent] == list(range(500))
            finishing.join()
    finally:
        gc.set_threshold(*before)


def test_one_record_waits_for_the_linger_at_most(log):
    with log.producer(linger="1 ms") as producer:
        assert producer.send("a", {"n": 1}).result(timeout=60) == 0


def test_records_are_written_together(log, topic):
    with log.producer(linger=HOUR) as producer:
        sent = [producer.send("a", {"n": n}) for n in range(100)]
        assert not any(future.done() for future in sent)
        producer.flush()
        assert all(future.done() for future in sent)
    assert len(list(topic.batches(0, 0, 100))) == 1


def test_a_full_batch_does_not_wait(log):
    with log.producer(linger=HOUR, batch_bytes=1, max_unacknowledged=10) as producer:
        first = [producer.send("a", {"n": n}) for n in range(10)]
        assert first[-1].result(timeout=60) == 9  # the bound was reached
        assert producer.send("a", {"n": 10}).result(timeout=60) == 10  # a record is known to be larger than a byte


def test_leaving_the_block_writes_what_was_sent(log, topic):
    with log.producer(linger=HOUR) as producer:
        producer.send("a", {"n": 1})
    assert values(topic) == [1]
    with suppress(ZeroDivisionError), log.producer(linger=HOUR) as producer:
        producer.send("a", {"n": 2})
        raise ZeroDivisionError
    assert values(topic) == [1, 2]
    producer.close()
    with pytest.raises(ProducerClosed, match="the producer is closed"):
        producer.send("a", {"n": 3})


def test_threads_share_a_producer_and_keep_their_order(log, topic):
    with log.producer(max_unacknowledged=50, linger="1 ms") as producer, ThreadPoolExecutor(8) as pool:

        def work(thread):
            return [producer.send("a", {"n": n, "text": str(thread)}) for n in range(200)]

        given = list(pool.map(work, range(8)))
        offsets = [[future.result() for future in sent] for sent in given]
    rows = topic.read(0, 0, 10_000).to_pylist()
    assert len(rows) == 1600
    for thread, found in enumerate(offsets):
        assert found == sorted(found)
        assert [(rows[at]["text"], rows[at]["n"]) for at in found] == [(str(thread), n) for n in range(200)]


def test_send_waits_while_too_much_is_unacknowledged(log, monkeypatch):
    gate, reached = threading.Event(), threading.Event()
    written = writer.write_at

    def slow(fd, buffers, position, **how):
        reached.set()
        assert gate.wait(60)
        written(fd, buffers, position, **how)

    monkeypatch.setattr(writer, "write_at", slow)
    with log.producer(max_unacknowledged=3, linger="0 ms") as producer, ThreadPoolExecutor(1) as pool:
        sent = [producer.send("a", {"n": n}) for n in range(3)]
        assert reached.wait(60)
        fourth = pool.submit(producer.send, "a", {"n": 3})
        assert not wait([fourth], timeout=0.05).done
        assert producer.unacknowledged == 3
        gate.set()
        assert fourth.result(timeout=60).result(timeout=60) == 3
        assert [future.result() for future in sent] == [0, 1, 2]


def test_a_bad_row_fails_its_own_future_alone(log, topic):
    rows = [{"n": n} for n in range(40)]
    rows[7], rows[31] = {"n": "seven"}, {"nn": 31}
    with log.producer(linger=HOUR) as producer:
        sent = [producer.send("a", row) for row in rows]
        producer.flush()
        failed = {at: future.exception() for at, future in enumerate(sent) if future.exception()}
        assert [future.result() for at, future in enumerate(sent) if at not in failed] == list(range(38))
    assert values(topic) == [n for n in range(40) if n not in (7, 31)]
    assert list(failed) == [7, 31]
    assert str(failed[7]).splitlines() == [
        '[INVALID_ROWS] topic "a": column "n" expects bigint, got \'seven\' (str)',
        "Detail: a value of type str does not fit",
    ]
    assert failed[31].what == "topic \"a\": there is no column 'nn'"
    assert failed[31].hint == 'Did you mean "n"?'


def test_a_failure_that_nobody_looked_at_is_raised_at_the_end(log):
    with pytest.raises(InvalidRows, match='topic "a": column "n" expects bigint'), log.producer() as producer:
        producer.send("a", {"n": "x"})
    with log.producer() as producer:
        assert isinstance(producer.send("a", {"n": "x"}).exception(), InvalidRows)


def test_a_disk_that_refuses_fails_the_records_of_the_batch_and_no_others(log, topic, monkeypatch):
    with log.producer(linger=HOUR) as producer:
        before = producer.send("a", {"n": 1})
        producer.flush()
        with disk_that(monkeypatch, lambda _: True):
            sent = [producer.send("a", {"n": n}) for n in range(2, 5)]
            producer.flush()
        for future in sent:
            with pytest.raises(AppendFailed, match="No space left on device"):
                future.result()
        after = producer.send("a", {"n": 5})
        producer.flush()
    assert (before.result(), after.result()) == (0, 1)
    assert values(topic) == [1, 5]


def test_a_disk_that_refuses_one_partition_fails_its_records_alone(log, monkeypatch):
    topic = log.create_topic("p", "n bigint", partitions=2)
    with log.producer(linger=HOUR) as producer, disk_that(monkeypatch, lambda count: count == 1):
        sent = [producer.send("p", {"n": n}, n % 2) for n in range(10)]
        producer.flush()
        failed = [at for at, future in enumerate(sent) if future.exception()]
    assert failed in ([0, 2, 4, 6, 8], [1, 3, 5, 7, 9])
    assert sum(topic.end_offsets().values()) == 5


def test_records_go_where_append_would_put_them(log):
    keyed = log.create_topic("k", "id string, n bigint", key="id", partitions=4)
    rows = [{"id": f"id-{n % 9}", "n": n} for n in range(200)]
    with log.producer() as producer:
        offsets = [producer.send("k", row) for row in rows]
        there = [producer.send("k", {"id": "id-0", "n": 1000}, partition=number) for number in range(4)]
    twin = log.create_topic("twin", "id string, n bigint", key="id", partitions=4)
    twin.append(rows)
    for number in range(4):
        expected = twin.read(number, 0, 999).column("n").to_pylist()
        assert values(keyed, number) == [*expected, 1000]
        assert there[number].result() == len(expected)
    assert all(future.result() is not None for future in offsets)


def test_without_a_key_batches_go_round(log):
    topic = log.create_topic("p", "n bigint", partitions=3)
    with log.producer(linger=HOUR) as producer:
        for n in range(6):
            producer.send("p", {"n": n})
            producer.flush()
    assert topic.end_offsets() == {0: 2, 1: 2, 2: 2}


def test_one_producer_serves_several_topics(log, topic):
    other = log.create_topic("b", "n bigint")
    with log.producer() as producer:
        for n in range(10):
            producer.send("ab"[n % 2], {"n": n})
    assert values(topic) == [0, 2, 4, 6, 8]
    assert values(other) == [1, 3, 5, 7, 9]


def test_a_row_is_taken_as_it_is_at_the_call(log, topic):
    row = {"n": 1}
    with log.producer(linger=HOUR) as producer:
        producer.send("a", row)
        row["n"] = 2
        producer.send("a", row)
    assert values(topic) == [1, 2]


def test_system_columns_may_be_sent(log):
    topic = log.create_topic("k", "id string, n bigint", key="id")
    with log.producer(linger=HOUR) as producer:
        producer.send("k", {"id": "x", "n": 1, "_time": "2026-01-01"})
        producer.send("k", {"id": "x", "_deleted": True})
        producer.send("k", {"id": "y", "_headers": {"a": "b"}})
    table = topic.read(0, 0, 9)
    assert table.column("_deleted").to_pylist() == [False, True, False]


def test_the_future_is_one_of_concurrent_futures(log):
    with log.producer(linger="1 ms") as producer:
        sent = [producer.send("a", {"n": n}) for n in range(50)]
        assert sorted(future.result() for future in as_completed(sent, timeout=60)) == list(range(50))
        assert wait(sent, return_when=FIRST_COMPLETED).done
        called = []
        bad = producer.send("a", {"n": "x"})
        bad.add_done_callback(called.append)
        assert wait([bad], timeout=60).done == {bad}
        assert isinstance(bad.exception(), InvalidRows)
        producer.flush()
        assert called == [bad]
        bad.add_done_callback(called.append)
        assert called == [bad, bad]
        assert not sent[0].cancel()

        async def ask():
            return await asyncio.wrap_future(producer.send("a", {"n": 50}))

        assert asyncio.run(ask()) == 50
        late = producer.send("a", {"n": 51})
    with log.producer(linger=HOUR) as producer:
        slow = producer.send("a", {"n": 52})
        with pytest.raises(TimeoutError):
            slow.result(timeout=0.01)
    assert (late.result(), slow.result()) == (51, 52)


def test_many_threads_wait_for_one_future(log):
    with log.producer(linger="1 ms") as producer, ThreadPoolExecutor(8) as pool:
        for n in range(100):
            sent = producer.send("a", {"n": n})
            assert set(pool.map(lambda _, sent=sent: sent.result(60), range(8))) == {n}


@pytest.mark.parametrize("partitions", [1, 3])
def test_a_callback_may_send_more(log, partitions):
    """The thread that writes calls it, and must not wait for itself, however many disks it waits for."""
    topic = log.create_topic("p", "n bigint", partitions=partitions)
    more = []
    with log.producer(max_unacknowledged=6, linger=HOUR) as producer:

        def again(done):
            producer.flush()
            more.append(producer.send("p", {"n": done.result()}, partition=0))

        first = [producer.send("p", {"n": n}, partition=n % partitions) for n in range(6)]
        for future in first:
            future.add_done_callback(again)
        producer.flush()
    assert len(more) == 6 == sum(future.done() for future in more)
    assert sum(topic.end_offsets().values()) == 12


@pytest.mark.parametrize(
    ("options", "error", "expected"),
    [
        ({"linger": "soon"}, InvalidTime, "'soon' is not a linger"),
        ({"linger": "-1 ms"}, InvalidRows, "linger is -1 millisecond"),
        ({"batch_bytes": 0}, InvalidRows, "batch_bytes is 0"),
        ({"max_unacknowledged": 0}, InvalidRows, "max_unacknowledged is 0"),
        ({"max_unacknowledged": True}, InvalidRows, "max_unacknowledged is True"),
        ({"producer": ""}, InvalidRows, "producer must be text, not ''"),
        ({"producer": 7}, InvalidRows, "producer must be text, not 7"),
    ],
)
def test_options_that_make_no_sense_are_refused(log, options, error, expected):
    with pytest.raises(error, match=expected):
        log.producer(**options)


def test_a_call_that_makes_no_sense_is_refused_at_its_line(log):
    with log.producer() as producer:
        with pytest.raises(UnknownTopic, match='no topic "aa"'):
            producer.send("aa", {"n": 1})
        with pytest.raises(InvalidRows, match="a row is a dict, not"):
            producer.send("a", [{"n": 1}])
        with pytest.raises(InvalidRows, match="its producer has no name"):
            producer.send("a", {"n": 1}, sequence=1)
        for number in (1, -1, "0"):
            with pytest.raises(InvalidTopic, match="has no partition"):
                producer.send("a", {"n": 1}, number).result()
        assert producer.send("a", {"n": 1}).result() == 0


def test_a_topic_that_is_deleted_or_a_log_that_is_closed_is_told(log, again):
    with log.producer(linger=HOUR) as producer:
        sent = producer.send("a", {"n": 1})
        again().delete_topic("a")
        producer.flush()
        assert isinstance(sent.exception(), TopicDeleted)
        fresh = again().create_topic("a", "n bigint")
        producer.send("a", {"n": 2})
        producer.flush()
        assert values(fresh) == [2]
        sent = producer.send("a", {"n": 3})
        log.close()
        producer.flush()
        assert isinstance(sent.exception(), LogClosed)
        with pytest.raises(LogClosed):
            producer.send("a", {"n": 4})


def test_a_fork_gets_an_error_and_not_silence(tmp_path):
    with Log(tmp_path, fsync=False) as log:
        log.create_topic("a", "n bigint")
        with log.producer() as producer:
            pid = os.fork()
            if not pid:
                try:
                    producer.send("a", {"n": 1})
                except ProducerClosed:
                    os._exit(7)
                os._exit(1)
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7


# ---- numbered rows -------------------------------------------------------------------------------------


def send_numbered(log, numbers, name="p", topic="a"):
    with log.producer(producer=name, linger=HOUR) as producer:
        sent = [producer.send(topic, {"n": n}, sequence=n) for n in numbers]
    return [future.result() for future in sent]


def test_a_row_that_is_sent_again_is_appended_once(log, topic, again):
    assert send_numbered(log, range(10)) == list(range(10))
    assert send_numbered(again(), range(5, 15)) == [None] * 5 + list(range(10, 15))
    assert send_numbered(log, range(12, 16)) == [None] * 3 + [15]
    assert send_numbered(log, range(3), name="another") == [16, 17, 18]
    assert values(topic) == [*range(16), 0, 1, 2]


@pytest.mark.parametrize("key", [None, "n"])
def test_a_retry_over_partitions_completes_what_is_missing(log, monkeypatch, key):
    topic = log.create_topic("k", "n bigint", partitions=3, key=key)
    with log.producer(producer="p", linger=HOUR) as producer, disk_that(monkeypatch, lambda count: count == 2):
        sent = [producer.send("k", {"n": n}, sequence=n) for n in range(30)]
        producer.flush()
        assert {type(future.exception()) for future in sent} == {type(None), AppendFailed}
        with pytest.raises(ProducerClosed, match='"p" has stopped for the topic "k": a row before this one'):
            producer.send("k", {"n": 30}, sequence=30)
    assert 0 in topic.end_offsets().values()
    again = send_numbered(log, range(31), topic="k")
    assert [n for n in range(30) if again[n] is None] == [n for n in range(30) if not sent[n].exception()]
    assert sorted(n for number in range(3) for n in values(topic, number)) == list(range(31))


def test_two_producers_of_one_name_append_each_row_once(log, topic, again):
    """One was thought dead; the first one to send a row has it appended."""
    with (
        log.producer(producer="p", linger="0 ms") as one,
        again().producer(producer="p", linger="0 ms") as two,
        ThreadPoolExecutor(2) as pool,
    ):

        def work(producer):
            return [producer.send("a", {"n": n}, sequence=n) for n in range(3000)]

        given = list(pool.map(work, (one, two)))
    assert values(topic) == list(range(3000))
    for ours, theirs in zip(*given, strict=True):
        assert [ours.result(), theirs.result()].count(None) == 1


def test_rows_that_were_waiting_behind_a_failure_are_not_appended(log, topic, monkeypatch):
    """Appended, they would hide those that failed from the retry."""
    with log.producer(producer="p", linger="0 ms", max_unacknowledged=1000) as producer:
        with disk_that(monkeypatch, lambda count: count == 1):
            sent = []
            for n in range(500):
                try:
                    sent.append(producer.send("a", {"n": n}, sequence=n))
                except ProducerClosed:
                    break
            producer.flush()
        assert all(isinstance(future.exception(), AppendFailed | ProducerClosed) for future in sent)
    assert topic.end_offsets() == {0: 0}
    assert send_numbered(log, range(500)) == list(range(500))


@pytest.mark.parametrize("sequence", [None, "1", 1.0, True, 1 << 63, -(1 << 63)])
def test_a_producer_with_a_name_asks_for_numbers(log, sequence):
    with log.producer(producer="p") as producer:
        with pytest.raises(InvalidRows, match='the producer "p" numbers its rows'):
            producer.send("a", {"n": 1}, sequence=sequence)
        assert producer.send("a", {"n": 1}, sequence=-5).result() == 0
        for again in (-5, -6):
            with pytest.raises(InvalidRows, match=f'{again} does not follow -5, the last one sent to topic "a"'):
                producer.send("a", {"n": 1}, sequence=again)


def test_a_bad_row_among_numbered_ones_stops_nothing(log, topic):
    with log.producer(producer="p", linger=HOUR) as producer:
        sent = [producer.send("a", {"n": n if n != 3 else "x"}, sequence=n) for n in range(6)]
        producer.flush()
        assert isinstance(sent[3].exception(), InvalidRows)
        assert producer.send("a", {"n": 3}, sequence=6)
    assert values(topic) == [0, 1, 2, 4, 5, 3]


def test_a_topic_made_anew_knows_nothing_of_its_producers(log):
    with log.producer(producer="p", linger=HOUR) as producer:
        producer.send("a", {"n": 1}, sequence=1)
        producer.flush()
        log.delete_topic("a")
        fresh = log.create_topic("a", "n bigint")
        assert not producer.send("a", {"n": 2}, sequence=2).done()
    assert values(fresh) == [2]

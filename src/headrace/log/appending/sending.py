"""Single records in, batches out: a producer collects what many threads send and appends it together.

A thread of its own writes. While it waits for the disk, the next batch grows: the slower the disk, the larger the
batches, and a record costs a fraction of an fsync. When records come faster than the disk takes them, the buffer is
full: `on_full` says what happens then.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

from headrace.base.buffer import Buffer
from headrace.base.errors import InvalidRows, ProducerClosed, RecordDropped
from headrace.base.names import is_unicode
from headrace.base.time import MICROS, SystemClock, duration, show_duration
from headrace.log.appending.delivery import Numbering, PendingRows, deliver
from headrace.log.appending.producers import is_sequence
from headrace.log.appending.sent import Sent, fail
from headrace.log.disk_errors import disk_error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import timedelta
    from pathlib import Path
    from types import TracebackType

    from headrace.base.buffer import OnFull
    from headrace.base.time import Clock
    from headrace.log.open_topic import OpenTopic

_REMEMBERED = 1000  # failed futures that nobody has asked yet


class Producer:
    """Appends single records in batches; get one from `Log.producer`. Many threads may use it.

    A record waits at most `linger` for others. Its future is done once the record is safe on disk. Records that one
    thread sends to one partition keep their order. Use it as a context manager: without `close`, what was not
    acknowledged when the program ends is not in the log, spilled or not.
    """

    def __init__(
        self,
        topic: Callable[[str], OpenTopic],
        *,
        clock: Clock,
        producer: str | None,
        linger: str | timedelta,
        batch_bytes: int,
        buffer: Buffer,
    ) -> None:
        self._topic = topic
        self._clock = clock
        self._name = _checked_name(producer)
        self._linger = _checked_linger(linger) / MICROS
        self._batch_bytes = _at_least_one(batch_bytes, "batch_bytes")
        self._buffer, self._bound, self._blocks = buffer, buffer.limit, buffer.on_full == "block"
        self._enough = self._bound  # rows of about batch_bytes, by the last batch
        self._pid = os.getpid()
        self._monotonic = SystemClock().monotonic
        lock = threading.Lock()
        self._lock, self._work, self._room = lock, threading.Condition(lock), threading.Condition(lock)
        self._opened: dict[str, OpenTopic] = {}  # topics of what was sent since the last batch
        self._born = 0.0  # when the oldest record that waits was sent
        self._sent = self._writing = self._flushing = self._waited = 0
        self._unfinished = 0  # the number of the first record that is being written
        self._numbering = Numbering(self._name) if self._name else None
        self._numbers: dict[str, int] = {}
        self._stopped: dict[str, BaseException] = {}
        self._failed: list[Sent] = []
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="headrace-producer", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
        else:
            self._finish()

    def send(
        self, topic: str, row: Mapping[str, Any], partition: int | None = None, *, sequence: int | None = None
    ) -> Sent:
        """Take a record and return the future of its offset; when the buffer is full, `on_full` decides.

        The row is a dict as for `Topic.append`, system columns included. It is copied: setting a column afterwards
        changes nothing (lists and dicts in it are not copied). Without `partition` the key's hash decides;
        without a key each batch goes to one partition, in turn. A row that does not fit fails its own future; a disk
        that refuses fails those of the partition's batch.

        A producer with a name numbers its rows: `sequence` grows with every row sent to a topic, and says which row
        it is (its line in a file, its offset in another log). A row whose number the topic's partition has from this
        producer already is not appended again, after a restart and from another process too; the future then says
        None. After a failed append it takes no more rows for that topic: create a new producer and send again from
        the first row that failed. A row that did not fit has used its number: corrected, it needs a later one. Without
        a key such rows go to partition `sequence % partitions`. Adding partitions moves rows: finish retries first.

        Raises:
            UnknownTopic: there is no such topic.
            InvalidRows: the row is not a dict, or its sequence is missing or not greater than the last one.
            ProducerClosed: the producer is closed, or had to stop for this topic.

        """
        if type(row) is not dict and not isinstance(row, Mapping):
            raise InvalidRows(f"a row is a dict, not {row!r}")
        future, record = Sent(), dict(row)
        if os.getpid() != self._pid:
            raise self._refusal("belongs to the process that created it", "Create another one after the fork.")
        with self._lock:
            buffer = self._buffer
            if buffer.count + self._writing >= self._bound if self._blocks else buffer.is_full:
                self._await_room()
            if self._closed:
                raise self._refusal("is closed", "Send before it is closed.")
            opened = self._opened.get(topic) if isinstance(topic, str) else None
            if opened is None:
                opened = self._opened[topic] = self._topic(topic)
            if sequence is not None or self._name is not None:
                sequence = self._checked_number(topic, sequence)
            gone = buffer.put((record, 1, future, opened, partition, sequence))
            waiting = buffer.count
            self._sent += gone is None or gone[-1][0] is not record
            if waiting == 1 or waiting >= self._enough or waiting + self._writing >= self._bound:
                self._born = self._monotonic() if waiting == 1 else self._born
                self._work.notify()
        if gone is not None:
            fail([entry[2] for entry in gone], RecordDropped(buffer.on_full, self._bound))
        return future

    @property
    def unacknowledged(self) -> int:
        """How many records wait or are being written."""
        return self._buffer.count + self._writing

    @property
    def dropped(self) -> int:
        """How many records were dropped because the buffer was full; the future of each says so."""
        return self._buffer.dropped

    @property
    def spilled(self) -> int:
        """How many records waited in a file because the buffer was full."""
        return self._buffer.spilled

    @property
    def waited(self) -> int:
        """How often `send` had to wait for room."""
        return self._waited

    def flush(self) -> None:
        """Wait until every record sent before the call is acknowledged or has failed, without lingering.

        Failures are in the futures only. Called from a future's callback, it does not wait.
        """
        with self._lock:
            until = self._sent
            self._flushing += 1
            self._work.notify()
            while self._first_unfinished() < until and threading.current_thread() is not self._thread:
                self._room.wait()
            self._flushing -= 1

    def close(self) -> None:
        """Write what was sent, then stop; closing again does nothing.

        Raises:
            HeadraceError: a record failed and nobody has asked its future; the first such failure.

        """
        if self._finish():
            for future in self._failed:
                error = None if future.looked_at else future.exception()
                if error is not None:
                    raise error

    # ---- the thread that writes ------------------------------------------------------------------------

    def _finish(self) -> bool:
        """Stop after writing what was sent; return whether it was still running."""
        with self._lock:
            running, self._closed = not self._closed, True
            self._work.notify()
            self._room.notify_all()
        if threading.current_thread() is not self._thread and os.getpid() == self._pid:
            self._thread.join()
        return running

    def _run(self) -> None:
        while True:
            batch = self._next_batch()
            if batch is None:
                self._buffer.close()
                return
            failed: list[Sent] = []
            for pending in _by_topic(batch):
                failed += self._delivered(pending.topic.name, pending)
            with self._lock:
                self._writing = 0
                self._room.notify_all()
                if failed:
                    waiting = [future for future in self._failed if not future.looked_at]
                    self._failed = [*waiting, *failed][:_REMEMBERED]

    def _next_batch(self) -> list[list[Any]] | None:
        """Return the next batch, once it has waited long enough; None if there will be no more."""
        with self._lock:
            while not self._buffer.count:
                if self._closed:
                    return None
                self._work.wait()
            until = self._born + self._linger
            while not self._is_due() and (left := until - self._monotonic()) > 0:
                self._work.wait(left)
            self._unfinished = self._sent - self._buffer.count
            batch = self._buffer.take()
            self._writing, self._opened, self._born = len(batch[0]), {}, 0.0
            return batch

    def _is_due(self) -> bool:
        return self._buffer.count >= min(self._enough, self._bound) or bool(self._flushing) or self._closed

    def _first_unfinished(self) -> int:
        """Return the number of the oldest record that is not settled, counting those that were sent from 0."""
        return self._unfinished if self._writing else self._sent - self._buffer.count

    def _delivered(self, name: str, pending: PendingRows) -> list[Sent]:
        """Append what was sent to one topic; return the futures that failed."""
        try:
            if name in self._stopped:
                fail(pending.futures, self._stop_error(name))
                return pending.futures
            delivery = deliver(pending, self._numbering, now=self._clock.now())
        except BaseException as caught:  # noqa: BLE001 - the futures get it, whatever it is
            error = disk_error(f'topic "{name}"', caught) if isinstance(caught, OSError) else caught
            fail(pending.futures, error)
            if self._name is not None:
                self._stopped[name] = error
            return pending.futures
        if delivery.bytes:
            self._enough = max(1, self._batch_bytes * len(pending.rows) // delivery.bytes)
        if delivery.refused is not None and self._name is not None:
            self._stopped[name] = delivery.refused
        return delivery.failed

    # ---- rules -----------------------------------------------------------------------------------------

    def _is_full(self) -> bool:
        return self.unacknowledged >= self._bound if self._blocks else self._buffer.is_full

    def _await_room(self) -> None:
        self._work.notify()
        self._waited += 1
        while self._is_full() and not self._closed:
            if threading.current_thread() is self._thread:  # a callback that sends: waiting here would never end
                return
            self._room.wait()

    def _checked_number(self, topic: str, sequence: int | None) -> int:
        if self._name is None:
            raise InvalidRows(
                "the row has a sequence, but its producer has no name",
                hint='Create it with log.producer(producer="…").',
            )
        if topic in self._stopped:
            raise self._stop_error(topic)
        if not is_sequence(sequence):
            raise InvalidRows(
                f'the producer "{self._name}" numbers its rows, and {sequence!r} is not a sequence',
                hint="Give each row its sequence: producer.send(topic, row, sequence=17).",
            )
        last = self._numbers.get(topic)
        if last is not None and sequence <= last:
            raise InvalidRows(
                f'the sequence {sequence} does not follow {last}, the last one sent to topic "{topic}"',
                detail="The row was not sent.",
                hint="Sequences grow. To send rows again after a failure, create a new producer of the same name.",
            )
        self._numbers[topic] = sequence
        return sequence

    def _stop_error(self, topic: str) -> ProducerClosed:
        error = self._refusal(
            f'has stopped for the topic "{topic}": a row before this one was not appended',
            "Create a new one of the same name and send again, from the first row that failed.",
        )
        error.__cause__ = self._stopped[topic]
        return error

    def _refusal(self, why: str, hint: str) -> ProducerClosed:
        name = f'the producer "{self._name}"' if self._name else "the producer"
        return ProducerClosed(f"{name} {why}", hint=hint)


def _by_topic(batch: list[list[Any]]) -> Iterator[PendingRows]:
    """Yield the records of each topic of a batch, in the order in which they were sent."""
    rows, _, futures, topics, partitions, sequences = batch
    if topics.count(topics[0]) < len(topics):
        for topic in dict.fromkeys(topics):
            at = [number for number, each in enumerate(topics) if each is topic]
            yield from _by_topic([[column[number] for number in at] for column in batch])
        return
    pending = PendingRows(topics[0], rows, futures)
    if partitions.count(None) < len(rows):
        pending.partitions = {at: each for at, each in enumerate(partitions) if each is not None}
    if sequences.count(None) < len(rows):
        pending.sequences = sequences
    yield pending


def buffer_of(max_unacknowledged: int, on_full: OnFull, *, folder: Path, spill_bytes: int) -> Buffer:
    """Return the buffer of a producer.

    Raises:
        InvalidRows: `max_unacknowledged` or `spill_bytes` is no number of records or bytes.
        InvalidArgument: `on_full` is not known.

    """
    bound = _at_least_one(max_unacknowledged, "max_unacknowledged")
    return Buffer(bound, on_full, 6, folder=folder, spill_bytes=_at_least_one(spill_bytes, "spill_bytes"))


def _checked_name(producer: str | None) -> str | None:
    if producer is None or (isinstance(producer, str) and producer and is_unicode(producer)):
        return producer
    raise InvalidRows(f"producer must be text, not {producer!r}")


def _checked_linger(linger: str | timedelta) -> int:
    micros = duration(linger, what="linger")
    if micros < 0:
        raise InvalidRows(f"linger is {show_duration(micros)}, and must not be negative")
    return micros


def _at_least_one(value: int, what: str) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and value >= 1:
        return value
    raise InvalidRows(f"{what} is {value!r}", hint="It must be a whole number, 1 or more.")

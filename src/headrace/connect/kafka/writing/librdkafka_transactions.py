"""A transactional producer of librdkafka: it knows every option; a record costs a call."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import OffsetSpec

from headrace.base.outside import Unavailable
from headrace.base.time import SystemClock
from headrace.connect.kafka.client.administration import cluster
from headrace.connect.kafka.client.failures import FENCED, Heard, of_librdkafka
from headrace.connect.kafka.writing.transactions import (
    BATCH_BYTES,
    SETTLE_SECONDS,
    TIMEOUT_MS,
    Spans,
    TransactionFenced,
    Transactions,
)

if TYPE_CHECKING:
    import numpy.typing as npt

    from headrace.connect.kafka.address import KafkaAddress
    from headrace.connect.kafka.writing.records import Records

SECONDS = 30.0
_CLOCK = SystemClock()
_LARGEST = 1_000_000_000
_OVER = {*FENCED, KafkaError._FATAL}  # noqa: SLF001 -- librdkafka's name
_OPTIONS: dict[str, Any] = {
    "enable.idempotence": True,
    "linger.ms": 5,
    "batch.size": BATCH_BYTES,
    "batch.num.messages": 100_000,
    "queue.buffering.max.messages": 0,  # no limit but that of bytes
    "queue.buffering.max.kbytes": 262_144,
    "message.max.bytes": _LARGEST,  # the topic's limit counts, and is checked before
}


class LibrdkafkaTransactions(Transactions):
    """Transactions of one transactional id, by librdkafka.

    Args:
        address: the cluster.
        id: the transactional id.
        timeout_ms: after so long a broker aborts a transaction; the address's `transaction.timeout.ms` counts first.

    """

    def __init__(self, address: KafkaAddress, id: str, *, timeout_ms: int = TIMEOUT_MS) -> None:  # noqa: A002
        self.address = address
        self.id = id
        self._heard = Heard()
        self._spans: dict[str, dict[int, range]] = {}
        self._failed: KafkaError | None = None
        given: dict[str, Any] = _OPTIONS | {"transaction.timeout.ms": timeout_ms} | address.configuration()
        given |= {"transactional.id": id, **self._heard.options()}
        with self._errors("begin to write"):
            self._producer = self._heard.client = Producer(given)
            self._producer.init_transactions(SECONDS)

    def begin(self, *, also: tuple[str, int]) -> None:
        """Begin a transaction."""
        del also
        self._spans, self._failed = {}, None
        with self._errors("begin a transaction"):
            self._producer.begin_transaction()

    def send(self, topic: str, records: Records, partitions: npt.NDArray[np.int32], *, most: int = BATCH_BYTES) -> None:
        """Send records in their order; its batches have one size for all topics, so less is sent one by one."""
        headers = None if records.headers is None else records.headers.to_pylist()
        columns = (records.values.to_pylist(), records.keys.to_pylist(), partitions.tolist(), records.times.tolist())
        firsts = set(np.unique(partitions, return_index=True)[1].tolist())
        lasts = {int(partition): row for row, partition in enumerate(partitions.tolist())}
        sizes = records.sizes() if most < BATCH_BYTES else np.zeros(len(records), np.int64)
        waiting = 0
        with self._errors(f"write to the topic {topic}"):
            for row, (value, key, partition, time) in enumerate(zip(*columns, strict=True)):
                if waiting and waiting + sizes[row] > most:
                    self._producer.flush(SECONDS)
                    waiting = 0
                waiting += int(sizes[row])
                stored = self._stored if row in firsts or lasts[partition] == row else None
                about: dict[str, Any] = {"timestamp": time, "on_delivery": stored}
                if headers is not None:
                    about["headers"] = [(each["name"], each["value"]) for each in headers[row] or ()]
                self._produce(topic, value, key, partition, **about)
            if waiting:
                self._producer.flush(SECONDS)

    def _produce(self, topic: str, *record: Any, **about: Any) -> None:
        """Hand a record to librdkafka; where its queue is full, wait until some are sent."""
        while True:
            try:
                self._producer.produce(topic, *record, **about)
            except BufferError:
                self._producer.poll(0.1)
                if self._failed is not None:
                    raise KafkaException(self._failed) from None
            else:
                return

    def _stored(self, error: KafkaError | None, message: Any) -> None:
        """Take note of what became of the first or the last record of a partition."""
        if error is not None:
            self._failed = error
        else:
            spans = self._spans.setdefault(message.topic(), {})
            partition, offset = message.partition(), message.offset()
            before = spans.get(partition, range(offset, offset))
            spans[partition] = range(min(before.start, offset), max(before.stop, offset + 1))

    def spans(self) -> Spans:
        """Wait until all records are stored, and return which offsets they have."""
        with self._errors("store the records of a transaction"):
            left = self._producer.flush(SECONDS)
            if self._failed is not None:
                raise KafkaException(self._failed)
            if left:
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT))  # noqa: SLF001 -- librdkafka's name
        return self._spans

    def commit(self) -> None:
        """Commit."""
        with self._errors("commit a transaction"):
            self._producer.commit_transaction(SECONDS)

    def settle(self, spans: Spans) -> None:
        """Return when readers get as far as the last transaction; another open one may keep them from it."""
        wanted = {(topic, number): span.stop for topic, parts in spans.items() for number, span in parts.items()}
        pause, until = 0.002, _CLOCK.monotonic() + SETTLE_SECONDS
        with suppress(Unavailable):
            while wanted and _CLOCK.monotonic() < until:
                found = cluster(self.address).offsets(wanted, at=OffsetSpec.latest())
                wanted = {part: end for part, end in wanted.items() if found[part] < end}
                if wanted:
                    _CLOCK.sleep(pause)
                    pause = min(2 * pause, 0.1)

    def abort(self) -> None:
        """Abort."""
        with self._errors("abort a transaction"):
            self._producer.abort_transaction(SECONDS)

    def close(self) -> None:
        """Let go of the connections."""
        self._heard.client = None
        self._producer.purge()
        del self._producer  # its own `close` would wait, and warn of what is unfinished

    def _errors(self, doing: str) -> Any:
        return _Errors(self.address, doing, self._heard)


class _Errors:
    """Raises librdkafka's errors as ours, and those of a fenced producer as `TransactionFenced`."""

    def __init__(self, address: KafkaAddress, doing: str, heard: Heard) -> None:
        self.address, self.doing, self.heard = address, doing, heard

    def __enter__(self) -> None:
        return

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None:
            self.heard.forget()
        if isinstance(error, SystemError):  # a fatal error while librdkafka was calling back; the cause may be lost
            error = error.__cause__ or KafkaException(KafkaError(KafkaError._FATAL))  # noqa: SLF001
        if not isinstance(error, KafkaException):
            return
        if error.args[0].code() in _OVER:
            raise TransactionFenced(error.args[0].str()) from error
        raise of_librdkafka(error, self.address, doing=self.doing, heard=self.heard) from error

"""A transactional producer that speaks Kafka's protocol: record batches from compiled code, some requests ahead.

It uses the protocol of KIP-98 (a partition is added to the transaction before its first batch), which all brokers
since 2.5 speak. Nothing is sent twice: after any failure the transaction is aborted, and what it was to write is
written again in another one. So sequence numbers only find what got lost or out of order on the way.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np
from kafka import errors as protocol_errors
from kafka.protocol.admin import DescribeTransactionsRequest
from kafka.protocol.metadata import FindCoordinatorRequest
from kafka.protocol.producer import (
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    ProduceRequest,
)

from headrace.base.broker_errors import TopicMissing
from headrace.base.outside import Unavailable
from headrace.base.time import SystemClock
from headrace.connect.kafka.client.administration import MISSING_SECONDS
from headrace.connect.kafka.client.brokers import Brokers, Retried, repeated
from headrace.connect.kafka.client.failures import FENCED, failure
from headrace.connect.kafka.client.settings import uncovered
from headrace.connect.kafka.client.wire import Connection
from headrace.connect.kafka.writing.batch_encoding import Columns, Producer, batches
from headrace.connect.kafka.writing.transactions import (
    BATCH_BYTES,
    SETTLE_SECONDS,
    TIMEOUT_MS,
    Spans,
    TransactionFenced,
    Transactions,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import numpy.typing as npt

    from headrace.connect.kafka.address import KafkaAddress
    from headrace.connect.kafka.writing.records import Records

AHEAD = 4
"""So many requests are on their way to a broker; with more, brokers do not check the order of sequence numbers."""
SECONDS = 10.0
"""For so long a request is repeated; after that the whole epoch is, at the pace of who publishes it."""
PRODUCE_MS = 30_000
FRESH_SECONDS = 30.0
"""How long it is believed who leads a partition, and that a connection without traffic is alive."""
_TRANSACTION_KEY = 1
_CODECS = ("none", "gzip", "lz4", "zstd")
_CONCURRENT, _PENDING = 51, "PrepareCommit"
_FIRST_PAUSE, _LONGEST_PAUSE = 0.001, 0.05
_COORDINATOR_MOVED = {14, 15, 16}
_OF_A_TOPIC = {3, 29}
"""It does not exist, or it may not be written to."""
_NOT_ATTEMPTED = 55
"""What a request of several partitions says of the others, where one is refused."""
_CLOCK = SystemClock()
Place = tuple[str, int]


def why_not(options: Mapping[str, str]) -> str | None:
    """Return why this producer cannot serve these options of librdkafka, or None where it can."""
    codec = options.get("compression.type", options.get("compression.codec", "none"))
    return uncovered(options) or (None if codec in _CODECS else f"compression.type={codec}")


class WireTransactions(Transactions):
    """Transactions of one transactional id, through connections of its own.

    Args:
        address: the cluster.
        id: the transactional id.
        timeout_ms: after so long a broker aborts a transaction; the address's `transaction.timeout.ms` counts first.

    """

    def __init__(self, address: KafkaAddress, id: str, *, timeout_ms: int = TIMEOUT_MS) -> None:  # noqa: A002
        self.address = address
        self.id = id
        options = address.configuration()
        self._timeout_ms = int(options.get("transaction.timeout.ms", timeout_ms))
        self._codec = options.get("compression.type", options.get("compression.codec", "none"))
        self._brokers = Brokers(address)
        self._connections: dict[Place, Connection] = {}
        self._used: dict[int, float] = {}
        self._coordinator: Place | None = None
        self._coordination: Connection | None = None  # not one for records: there, answers wait to be taken in
        self._leaders: dict[str, tuple[float, dict[int, Place]]] = {}
        self._on_their_way: dict[Place, deque[list[tuple[str, int, int]]]] = {}
        self._sequences: dict[tuple[str, int], int] = {}
        self._added: set[tuple[str, int]] = set()
        self._wanted: set[tuple[str, int]] = set()
        self._spans: dict[str, dict[int, range]] = {}
        self._producer = Producer(-1, -1)
        try:
            self._begin_anew()
        except BaseException:
            self.close()
            raise

    # ---- a transaction ----

    def begin(self, *, also: tuple[str, int]) -> None:
        """Begin a transaction; the cluster hears of it with the first records."""
        self._spans, self._added, self._wanted = {}, set(), {also}

    def send(self, topic: str, records: Records, partitions: npt.NDArray[np.int32], *, most: int = BATCH_BYTES) -> None:
        """Send records in their order, without waiting for the answers to the last requests."""
        numbers = [int(each) for each in np.unique(partitions)]
        self._add({(topic, number) for number in numbers})
        columns = Columns.of(records)
        order = np.argsort(partitions, kind="stable") if len(numbers) > 1 else np.arange(len(records))
        bounds = np.searchsorted(partitions[order], [*numbers, max(numbers, default=0) + 1])
        sources = {
            number: self._batches((topic, number), columns, order[bounds[at] : bounds[at + 1]].astype(np.int64), most)
            for at, number in enumerate(numbers)
        }
        leaders = self._leading(topic, numbers)
        while sources:  # a request has one batch of each partition
            by_place: dict[Place, list[tuple[int, bytes, int]]] = {}
            for number in list(sources):
                found = next(sources[number], None)
                if found is None:
                    del sources[number]
                else:
                    by_place.setdefault(leaders[number], []).append((number, *found))
            for place, parts in by_place.items():
                self._produce(place, topic, parts)

    def spans(self) -> Spans:
        """Wait until all records are stored, and return which offsets they have."""
        for place in list(self._on_their_way):
            self._settle(place, 0)
        return self._spans

    def commit(self) -> None:
        """Commit."""
        self.spans()

        def request() -> EndTxnRequest:
            return EndTxnRequest(
                transactional_id=self.id,
                producer_id=self._producer.id,
                producer_epoch=self._producer.epoch,
                committed=True,
            )

        if self._added:
            self._ask_coordinator(request, "commit a transaction")

    def settle(self, spans: Spans) -> None:
        """Return when the coordinator has written all markers of the last transaction."""
        del spans
        pause, until = _FIRST_PAUSE, _CLOCK.monotonic() + SETTLE_SECONDS
        with suppress(Unavailable):
            while self._coordination is not None and self._coordination.speaks(DescribeTransactionsRequest):
                answer = self._coordination.ask(DescribeTransactionsRequest(transactional_ids=[self.id]))
                pending = any(each.transaction_state == _PENDING for each in answer.transaction_states)
                if not pending or _CLOCK.monotonic() > until:
                    return
                _CLOCK.sleep(pause)
                pause = min(pause * 1.5, _LONGEST_PAUSE)

    def abort(self) -> None:
        """Abort: getting another epoch of the producer does it; which batches are stored is not known."""
        self._on_their_way.clear()
        self._disconnect()
        self._leaders.clear()
        self._begin_anew()

    def close(self) -> None:
        """Close the connections."""
        self._disconnect()
        if self._coordination is not None:
            self._coordination.close()
        self._brokers.close()

    def _disconnect(self) -> None:
        """Close the connections for records: what is on its way there is not awaited."""
        for connection in self._connections.values():
            with suppress(OSError):
                connection.close()
        self._connections.clear()

    # ---- records ----

    def _batches(self, part: tuple[str, int], columns: Columns, rows: npt.NDArray[np.int64], most: int) -> Any:
        """Yield batches of the records of a partition; the sequence numbers go on."""
        first = self._sequences.get(part, 0)
        for batch, count in batches(
            columns, rows, producer=self._producer, sequence=first, most=most, codec=self._codec
        ):
            self._sequences[part] = self._sequences.get(part, 0) + count
            yield batch, count

    def _produce(self, place: Place, topic: str, parts: list[tuple[int, bytes, int]]) -> None:
        kind = ProduceRequest.TopicProduceData
        data = [kind.PartitionProduceData(index=number, records=batch) for number, batch, _ in parts]
        request = ProduceRequest(
            transactional_id=self.id,
            acks=-1,
            timeout_ms=PRODUCE_MS,
            topic_data=[kind(name=topic, partition_data=data)],
        )
        self._settle(place, AHEAD - 1)
        self._connection(place).send(request)
        waiting = self._on_their_way.setdefault(place, deque())
        waiting.append([(topic, number, count) for number, _, count in parts])

    def _settle(self, place: Place, most: int) -> None:
        """Take in answers of a broker until at most so many requests have none."""
        waiting = self._on_their_way.get(place, deque())
        while len(waiting) > most:
            answer = self._connections[place].receive()
            counts = {(topic, number): count for topic, number, count in waiting.popleft()}
            for topic in answer.responses:
                for part in topic.partition_responses:
                    if part.error_code:
                        self._leaders.pop(topic.name, None)
                        self._refused(part.error_code, f'write to the topic "{topic.name}"', part.error_message)
                    end = part.base_offset + counts[topic.name, part.index]
                    spans = self._spans.setdefault(topic.name, {})
                    before = spans.get(part.index)
                    spans[part.index] = range(part.base_offset if before is None else before.start, end)

    def _leading(self, topic: str, numbers: list[int]) -> dict[int, Place]:
        """Return where the leaders of partitions are."""
        at, leaders = self._leaders.get(topic, (0.0, {}))
        if _CLOCK.monotonic() - at > FRESH_SECONDS or not set(numbers) <= set(leaders):
            leaders = self._patiently(lambda: self._find_leaders(topic, numbers))
            self._leaders[topic] = _CLOCK.monotonic(), leaders
        return leaders

    def _find_leaders(self, topic: str, numbers: list[int]) -> dict[int, Place]:
        state, doing = self._brokers.topic(topic), f'write to the topic "{topic}"'
        if state is None:
            raise failure(3, "it was deleted", self.address, doing=doing)
        places = self._brokers.places
        found = {number: places[leader] for number, (leader, _) in state.leaders.items() if leader in places}
        if not set(numbers) <= set(found):
            raise Retried(f"Kafka at {self.address.servers} did not {doing}: a partition has no leader")
        return found

    # ---- the coordinator ----

    def _begin_anew(self) -> None:
        """Get an id and an epoch of the producer; what it has left unfinished is finished or aborted first."""
        request = {
            "transactional_id": self.id,
            "transaction_timeout_ms": self._timeout_ms,
            "producer_id": self._producer.id,
            "producer_epoch": self._producer.epoch,
        }
        answer = self._ask_coordinator(lambda: InitProducerIdRequest(**request), "begin to write")
        self._producer = Producer(answer.producer_id, answer.producer_epoch)
        self._sequences.clear()
        self._added = set()

    def _add(self, parts: set[tuple[str, int]]) -> None:
        """Add partitions to the transaction, unless they are in it."""
        new = (parts | self._wanted) - self._added
        if not new:
            return
        kind = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction.AddPartitionsToTxnTopic
        topics: dict[str, list[int]] = {}
        for topic, number in sorted(new):
            topics.setdefault(topic, []).append(number)

        def request() -> AddPartitionsToTxnRequest:
            return AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=self.id,
                v3_and_below_producer_id=self._producer.id,
                v3_and_below_producer_epoch=self._producer.epoch,
                v3_and_below_topics=[kind(name=name, partitions=numbers) for name, numbers in topics.items()],
            )

        began = _CLOCK.monotonic()
        while True:
            try:
                self._ask_coordinator(request, "add partitions to a transaction")
            except TopicMissing:  # of a broker that may not have heard of the topic yet
                if _CLOCK.monotonic() > began + MISSING_SECONDS:
                    raise
                _CLOCK.sleep(_LONGEST_PAUSE)
            else:
                self._added |= new
                return

    def _ask_coordinator(self, request: Callable[[], Any], doing: str) -> Any:
        """Return the coordinator's answer; repeating a request changes nothing, so it is repeated while that helps."""

        def ask() -> Any:
            if self._coordinator is None:
                self._coordinator = self._find_coordinator()
            try:
                answer = self._ask_until_free(self._coordinator, request)
            except Unavailable:
                self._forget_coordinator()
                raise
            for code in _codes(answer):
                if code in _COORDINATOR_MOVED:
                    self._forget_coordinator()
                if code in _COORDINATOR_MOVED or code == _CONCURRENT:
                    raise Retried(f"Kafka at {self.address.servers} did not {doing}: {_text(code)}")
                if code:
                    self._refused(code, _writing_to(answer, code) or doing, None)
            return answer

        return self._patiently(ask)

    def _forget_coordinator(self) -> None:
        if self._coordination is not None:
            self._coordination.close()
        self._coordinator = self._coordination = None

    def _ask_until_free(self, place: Place, request: Callable[[], Any]) -> Any:
        """Return the answer; for a moment the markers of the transaction before are being written."""
        pause = _FIRST_PAUSE
        while True:
            self._coordination = self._alive(self._coordination, place)
            answer = self._coordination.ask(request())
            if _CONCURRENT not in _codes(answer) or pause > _LONGEST_PAUSE:
                return answer
            _CLOCK.sleep(pause)
            pause *= 1.5

    def _find_coordinator(self) -> Place:
        with self._brokers.any() as connection:
            answer = connection.ask(FindCoordinatorRequest(key=self.id, key_type=_TRANSACTION_KEY))
        self._brokers.check(answer.error_code, "name the coordinator of a transaction")
        return answer.host, answer.port

    def _refused(self, code: int, doing: str, text: str | None) -> None:
        if code in FENCED:
            raise TransactionFenced(text or _text(code))
        raise failure(code, text or _text(code), self.address, doing=doing)

    def _connection(self, place: Place) -> Connection:
        """Return the connection for records to a broker."""
        if self._on_their_way.get(place):
            found = self._connections.get(place)
            if found is None or not found.alive:
                raise Unavailable(f"the connection to the Kafka broker {place[0]}:{place[1]} is lost")
            return found
        found = self._connections[place] = self._alive(self._connections.get(place), place)
        return found

    def _alive(self, connection: Connection | None, place: Place) -> Connection:
        """Return a connection, or a new one where it is closed, or so long without traffic that it may be."""
        now = _CLOCK.monotonic()
        if connection is not None and connection.idle and now - self._used.get(id(connection), 0) < FRESH_SECONDS:
            self._used[id(connection)] = now
            return connection
        if connection is not None:
            self._used.pop(id(connection), None)
            connection.close()
        connection = Connection(*place, self._brokers.settings)
        self._used[id(connection)] = now
        return connection

    def _patiently(self, ask: Callable[[], Any]) -> Any:
        return repeated(ask, again=lambda: None, patience=SECONDS)


def _codes(answer: Any) -> list[int]:
    """Return the errors in an answer of the coordinator."""
    topics = getattr(answer, "results_by_topic_v3_and_below", None)
    if topics is None:
        return [answer.error_code]
    codes = {part.partition_error_code for topic in topics for part in topic.results_by_partition}
    return sorted(codes - {_NOT_ATTEMPTED} or codes, reverse=True)


def _writing_to(answer: Any, code: int) -> str:
    """Return which topic an error of the coordinator is about; an empty text where it is about none."""
    for topic in getattr(answer, "results_by_topic_v3_and_below", None) or ():
        if code in _OF_A_TOPIC and any(part.partition_error_code == code for part in topic.results_by_partition):
            return f'write to the topic "{topic.name}"'
    return ""


def _text(code: int) -> str:
    return str(protocol_errors.for_code(code).description)

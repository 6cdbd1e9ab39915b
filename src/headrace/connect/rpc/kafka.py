"""Requests and replies in Kafka: JSON, keyed by the request's id, where Java's clients would send them."""

from __future__ import annotations

import base64
import json
import threading
import uuid
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import OffsetSpec

from headrace.base.errors import InvalidRows
from headrace.base.time import SystemClock
from headrace.connect.kafka.client.administration import cluster
from headrace.connect.kafka.client.failures import Heard, of_librdkafka, our_errors
from headrace.connect.kafka.writing.records import Records
from headrace.connect.kafka.writing.sending import Sender
from headrace.connect.rpc.exchange import ID, Exchange, Members, Received, Tail

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from headrace.base.time import Clock
    from headrace.connect.kafka.address import KafkaAddress

MOST = 100
SECONDS = 30.0
_OPTIONS = {"enable.auto.commit": False, "isolation.level": "read_committed", "auto.offset.reset": "earliest"}


class KafkaExchange(Exchange):
    """A cluster."""

    def __init__(self, address: KafkaAddress) -> None:
        self._address, self._sender, self._lock = address, Sender(address), threading.Lock()
        self._clock = SystemClock()

    @property
    def clock(self) -> Clock:
        """The machine's."""
        return self._clock

    def create(self, topic: str, columns: str, *, partitions: int) -> None:
        """Create a topic; Kafka knows no columns."""
        del columns
        cluster(self._address).create(self._address.cluster_name(topic), partitions=partitions)

    def send(self, topic: str, rows: Sequence[Mapping[str, Any]], *, partition: int | None = None) -> None:
        """Send rows."""
        now = self._clock.now()
        try:
            values = [json.dumps(dict(row), default=_plain, ensure_ascii=False).encode() for row in rows]
        except (TypeError, ValueError) as error:
            raise InvalidRows(f"a request or reply is no JSON: {error}") from error
        records = Records(
            keys=pa.array([str(row[ID]).encode() for row in rows], pa.binary()),
            values=pa.array(values, pa.binary()),
            times=np.full(len(rows), now // 1000, np.int64),
        )
        with self._lock:  # a sender is for one thread
            name = self._address.cluster_name(topic)
            number = None if partition is None else partition % cluster(self._address).topic(name).partitions
            self._sender.send(name, records, partition=number)

    def tail(self, topic: str, *, since: int | None = None) -> KafkaTail:
        """Return what comes."""
        known, name = cluster(self._address), self._address.cluster_name(topic)
        numbers = range(known.topic(name).partitions)
        ends = known.ends(name, len(numbers))
        starts = ends if since is None else self._offsets_at(name, numbers, since, ends)
        return KafkaTail(self._address, name, starts, ends)

    def stored(self, topic: str, partition: int, *, since: int) -> list[dict[str, Any]]:
        """Return what is in a partition."""
        known, name = cluster(self._address), self._address.cluster_name(topic)
        partitions = known.topic(name).partitions
        number, ends = partition % partitions, known.ends(name, partitions)
        starts = self._offsets_at(name, [number], since, ends)
        tail = KafkaTail(self._address, name, starts, {number: ends[number]})
        try:
            return [each.row for each in tail.poll(0.0)]
        finally:
            tail.close()

    def members(self, topic: str, group: str, revoked: Callable[[Sequence[int]], None]) -> KafkaMembers:
        """Join a group."""
        name = self._address.cluster_name(topic)
        cluster(self._address).topic(name)  # it is there
        return KafkaMembers(self._address, name, group, revoked)

    def close(self) -> None:
        """Nothing has to be closed: librdkafka lets go of a client that nobody has."""

    def _offsets_at(self, name: str, numbers: Sequence[int], time: int, ends: Mapping[int, int]) -> dict[int, int]:
        at = OffsetSpec.for_timestamp(time // 1000)
        found = cluster(self._address).offsets([(name, number) for number in numbers], at=at)
        return {number: offset if offset >= 0 else ends[number] for (_, number), offset in found.items()}


class KafkaTail(Tail):
    """What is committed to partitions of a topic; the first poll returns all up to `ends`, whatever it takes."""

    def __init__(self, address: KafkaAddress, name: str, starts: Mapping[int, int], ends: Mapping[int, int]) -> None:
        self._address, self._name = address, name
        self._behind = {number for number, start in starts.items() if start < ends[number]}
        self._consumer = _consumer(address, f"headrace-{uuid.uuid4().hex}", {"enable.partition.eof": True})
        self._consumer.assign([TopicPartition(name, number, start) for number, start in starts.items()])

    def poll(self, seconds: float) -> list[Received]:
        """Return records."""
        found = self._consumed(seconds) if not self._behind else []
        clock = SystemClock()
        until = clock.monotonic() + SECONDS
        while self._behind and clock.monotonic() < until:
            found += self._consumed(0.1)
        return found

    def close(self) -> None:
        """Close the consumer."""
        self._consumer.close()

    def _consumed(self, seconds: float) -> list[Received]:
        found, ended = _received(self._consumer, seconds, self._address, self._name)
        self._behind -= ended
        return found


class KafkaMembers(Members):
    """A member of a consumer group."""

    def __init__(self, address: KafkaAddress, name: str, group: str, revoked: Callable[[Sequence[int]], None]) -> None:
        self._address, self._name = address, name
        self._consumer = _consumer(address, group, {"partition.assignment.strategy": "cooperative-sticky"})

        def lost(consumer: Consumer, places: list[TopicPartition]) -> None:
            revoked([place.partition for place in places])
            consumer.incremental_unassign(places)

        self._consumer.subscribe([name], on_revoke=lost, on_lost=lost)

    def poll(self, seconds: float) -> list[Received]:
        """Return records."""
        return _received(self._consumer, seconds, self._address, self._name)[0]

    def rewind(self, polled: Sequence[Received]) -> None:
        """Seek back."""
        mine = {place.partition for place in self._consumer.assignment()}
        firsts = {each.partition: each.offset for each in sorted(polled, key=lambda one: one.offset, reverse=True)}
        with our_errors(self._address, doing=f'seek in the topic "{self._name}"'):
            for number in mine & firsts.keys():
                self._consumer.seek(TopicPartition(self._name, number, firsts[number]))

    def commit(self) -> bool:
        """Commit."""
        try:
            self._consumer.commit(asynchronous=False)
        except KafkaException as error:
            failure = of_librdkafka(error, self._address, doing=f'commit what was read of "{self._name}"')
            if error.args[0].fatal() or not error.args[0].retriable():
                return False  # another member has it, and does it again
            raise failure from error
        return True

    def close(self) -> None:
        """Leave the group."""
        self._consumer.close()


def _consumer(address: KafkaAddress, group: str, options: Mapping[str, Any]) -> Consumer:
    heard = Heard()
    heard.client = consumer = Consumer(
        _OPTIONS | {"group.id": group} | dict(options) | address.configuration() | heard.options()
    )
    return consumer


def _received(consumer: Consumer, seconds: float, address: KafkaAddress, name: str) -> tuple[list[Received], set[int]]:
    """Return records, without what is no request and no reply, and the partitions that were read to their ends."""
    with our_errors(address, doing=f'read the topic "{name}"'):
        messages = consumer.consume(MOST, 0) or consumer.consume(1, seconds)
        found, ended = [], set()
        for message in messages:
            error = message.error()
            if error is not None:
                if error.code() == error._PARTITION_EOF:  # noqa: SLF001 -- its name
                    ended.add(message.partition())
                    continue
                raise KafkaException(error)
            row = _row(message.value())
            if row is not None:
                found.append(Received(message.partition(), message.offset(), row))
        return found, ended


def _row(value: bytes | None) -> dict[str, Any] | None:
    try:
        row = json.loads(value or b"null")
    except ValueError:
        return None
    return row if isinstance(row, dict) and isinstance(row.get(ID), str) else None


def _plain(value: object) -> str:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return value.isoformat() if hasattr(value, "isoformat") else str(value)

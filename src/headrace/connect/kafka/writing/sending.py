"""Records sent outside of transactions: by the command line, and by programs that feed a topic."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import numpy as np
from confluent_kafka import KafkaError, KafkaException, Producer

from headrace.base.broker_errors import TopicMissing
from headrace.base.outside import AccessRefused
from headrace.base.time import SystemClock
from headrace.connect.kafka.client.administration import cluster
from headrace.connect.kafka.client.failures import Heard, our_errors
from headrace.connect.kafka.writing.partitioner import partitions_of
from headrace.connect.kafka.writing.transactions import BATCH_BYTES

if TYPE_CHECKING:
    from headrace.connect.kafka.address import KafkaAddress
    from headrace.connect.kafka.writing.records import Records

SECONDS = 30.0
FRESH_SECONDS = 30.0
"""How long it is believed how many partitions a topic has."""
_CLOCK = SystemClock()  # the network takes real time, whatever clock an app has
_OPTIONS = {
    "enable.idempotence": True,
    "linger.ms": 5,
    "message.timeout.ms": int(SECONDS * 1_000),
    "message.max.bytes": 1_000_000_000,  # the topic's limit counts
}


class Sender:
    """Sends records to topics of a cluster, each at least once: after a failure they may be sent again.

    A sender is for one thread. For some seconds it remembers how many partitions a topic has.
    """

    def __init__(self, address: KafkaAddress) -> None:
        self.address = address
        self._heard = Heard()
        self._producer: Producer | None = None
        self._partitions: dict[str, tuple[int, float]] = {}
        self._most = BATCH_BYTES
        self._sent = 0

    def send(self, name: str, records: Records, *, partition: int | None = None) -> None:
        """Send records in their order; on return they are stored on every broker that is in sync.

        Args:
            name: the topic's name in the cluster.
            records: the records. One without a key goes to any partition.
            partition: where they go; None: where Java's clients would send them, by the key.

        Raises:
            TopicMissing: there is no such topic.
            RecordTooLarge: a record is larger than the topic takes; others may be stored.
            Unavailable: the cluster does not answer; some may be stored.

        """
        partitions = self._partitions_of(name)
        if partition is None:
            places = partitions_of(records.keys, partitions, first=self._sent)
        else:
            places = np.full(len(records), partition, np.int32)
        self._sent += len(records)
        try:
            with our_errors(self.address, doing=f'write to the topic "{name}"', heard=self._heard):
                self._produce(name, records, places.tolist())
        except TopicMissing:  # or the partition is: it was created again with fewer
            self._partitions.pop(name, None)
            self._producer = None  # what the client knows of the topic is old, too
            raise

    def doubt(self) -> None:
        """Ask again how many partitions topics have before the next records are sent."""
        self._partitions = {name: (count, float("-inf")) for name, (count, _) in self._partitions.items()}

    def close(self) -> None:
        """Let go of the connections; the next records open others."""
        self._producer = self._heard.client = None

    def _partitions_of(self, name: str) -> int:
        """Return how many partitions a topic has: keys go where other clients send them, also after some were added."""
        known, now = self._partitions.get(name), _CLOCK.monotonic()
        if known is not None and now - known[1] < FRESH_SECONDS:
            return known[0]
        found = cluster(self.address).topic(name).partitions
        self._fit(name)
        if known is not None and known[0] != found:
            self._producer = None  # it would learn of them minutes later
        self._partitions[name] = found, now
        return found

    def _fit(self, name: str) -> None:
        """Make batches no larger than a topic takes, where this user may know that."""
        with suppress(AccessRefused):
            largest = int(cluster(self.address).settings(name).get("max.message.bytes", BATCH_BYTES))
            if largest - largest // 50 < self._most:
                self._most, self._producer = largest - largest // 50, None

    def _produce(self, name: str, records: Records, places: list[int]) -> None:
        failed: list[KafkaError] = []

        def delivered(error: KafkaError | None, _message: object) -> None:
            if error is not None:
                failed.append(error)

        producer = self._connected()
        headers = [None] * len(records) if records.headers is None else records.headers.to_pylist()
        columns = (records.values.to_pylist(), records.keys.to_pylist(), places, records.times.tolist(), headers)
        for value, key, place, time, named in zip(*columns, strict=True):
            pairs = [(each["name"], each["value"]) for each in named or ()]
            while True:
                try:
                    producer.produce(name, value, key, place, delivered, timestamp=time, headers=pairs)
                    break
                except BufferError:
                    producer.poll(0.1)
        left = producer.flush(SECONDS)
        if failed or left:
            raise KafkaException(failed[0] if failed else KafkaError(KafkaError._TIMED_OUT))  # noqa: SLF001 -- its name

    def _connected(self) -> Producer:
        if self._producer is None:
            options = {**_OPTIONS, "batch.size": self._most, **self.address.configuration(), **self._heard.options()}
            self._producer = self._heard.client = Producer(options)
        return self._producer

"""Out: rows become messages with sequence ids, of a producer whose name is that of the writer.

A topic whose namespace has deduplication drops a message whose sequence id is not greater than the last one of its
producer. A sequence id is made of the epoch and the number of the row, so an epoch that is sent again adds what is
missing. Each message is sent alone: Pulsar's client gives a batch the sequence id of its first message, so a broker
would take the others for new (see docs/design/0068).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Unpack

import pulsar

from headrace.base.broker_errors import BrokerFailed, MessageTooLarge
from headrace.connect.messages.writing import ID_HEADER, MessageSink, MessageWriter, WritingOptions, writing
from headrace.connect.pulsar.session import Session, check_topic, pulsar_address

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from headrace.base.time import Clock
    from headrace.connect.messages.address import BrokerAddress
    from headrace.connect.messages.writing import Outgoing
    from headrace.connect.sink import Guarantee, SinkWriter

ROWS_BITS = 32
"""A sequence id has 63 bits: the epoch, and the number of the row in it."""
UNDER_WAY = 1_000
SEND_MILLIS = 10_000
PROPERTIES_BYTES = 10_240
"""What the broker adds to a body's size is less than this, without properties."""


def producer(url: str, topic: str, *, exactly_once: bool = False, **options: Unpack[WritingOptions]) -> PulsarProducer:
    """Return a sink to topics of Apache Pulsar.

    With `exactly_once` the topic's namespace must have deduplication, which is checked; brokers forget a producer that
    has sent nothing for six hours, if they are not set otherwise. Without it messages are there at least once, with
    the same property headrace-id each time.

    A message goes to the partition that Pulsar's Java client chooses for its key; without a key, to one after the
    other. Properties are those of `headers=`. The event time is the row's.

    Args:
        url: as in `reader`.
        topic: its name; `{column}` is the column's text: "orders-{city}".
        exactly_once: whether the topics drop duplicates.
        options: as all brokers have.

    Raises:
        InvalidPlan: it is no address, or an option is not known.
        InvalidArgument: it is no topic.

    """
    return PulsarProducer(
        address=pulsar_address(url), how=writing(check_topic(topic), options), exactly_once=exactly_once
    )


@dataclass(frozen=True, kw_only=True)
class PulsarProducer(MessageSink):
    """Messages of topics; `producer` creates it."""

    address: BrokerAddress
    exactly_once: bool

    @property
    def guarantee(self) -> Guarantee:  # type: ignore[override] # an answer that never changes
        """What the topics do with a repetition."""
        return "exactly_once" if self.exactly_once else "at_least_once"

    @property
    def where(self) -> str:
        """Broker and topic."""
        return f"{self.address.place} ({self.how.address})"

    @property
    def name(self) -> str:
        """What tells it from the other sinks of an app."""
        return f"pulsar:{self.how.address}"

    def open(self, *, writer: str, clock: Clock) -> SinkWriter:
        """Return a writer; it connects when it has something to send."""
        del clock
        return _Writer(self, writer)


class _Writer(MessageWriter[PulsarProducer]):
    """Sends epochs, and waits until everything is stored."""

    def __init__(self, sink: PulsarProducer, writer: str) -> None:
        super().__init__(sink, writer)
        self._session: Session | None = None
        self._topics: dict[str, _Topic] = {}
        self._checked: set[str] = set()

    def send(self, epoch: int, messages: Iterator[Sequence[Outgoing]]) -> None:
        """Send an epoch's messages; they are stored when it returns."""
        session = self._session = self._session or Session(self.sink.address)
        number = (epoch + 1) << ROWS_BITS  # the client takes 0 for none
        for some in messages:
            for each in some:
                self._topic(session, each.address).send(each, number)
                number += 1
            for topic in self._topics.values():
                topic.flush()
        if self.sink.exactly_once:
            self._check(session)

    def close(self) -> None:
        """Close the connection."""
        if self._session is not None:
            self._session.close()
            self._session, self._topics = None, {}

    def _topic(self, session: Session, name: str) -> _Topic:
        if name not in self._topics:
            self._topics[name] = _Topic(self.sink, session, name, self.writer)
        return self._topics[name]

    def _check(self, session: Session) -> None:
        """Check once for each topic that the broker knows what was sent: by opening its producers again."""
        for name in set(self._topics) - self._checked:
            self._topics[name].check()
            self._topics[name] = _Topic(self.sink, session, name, self.writer)
            self._checked.add(name)


class _Topic:
    """The producers of a topic, one for each partition."""

    def __init__(self, sink: PulsarProducer, session: Session, name: str, writer: str) -> None:
        self.sink, self.session, self.name, self.writer = sink, session, name, writer
        self.partitions = session.partitions(name)
        self.producers: dict[int, Any] = {}
        self.failed: list[Any] = []
        self.last: dict[int, int] = {}

    def send(self, each: Outgoing, number: int) -> None:
        """Send a message; that it failed is known after `flush`, or before."""
        key = None if each.key is None else each.key.decode(errors="replace")
        at = (number if key is None else java_hash(key)) % len(self.partitions)
        self._check_size(each)
        producer = self.producers.get(at)
        with self.session.failures(self.partitions[at]):
            if producer is None:
                producer = self.producers[at] = self._producer(at)
            producer.send_async(each.body or None, self._sent, sequence_id=number, **_about(each, key))
        self.last[at] = number
        if self.failed:
            self._fail()

    def flush(self) -> None:
        """Wait until everything is stored."""
        for at, producer in self.producers.items():
            with self.session.failures(self.partitions[at]):
                producer.flush()
        if self.failed:
            self._fail()

    def check(self) -> None:
        """Check that the broker knows the producers' sequence ids; they are closed.

        Raises:
            BrokerFailed: it does not.

        """
        for at, last in self.last.items():
            with self.session.failures(self.partitions[at]):
                self.producers.pop(at).close()
                again = self._producer(at)
                known = again.last_sequence_id()
                again.close()
            if known < last:
                raise BrokerFailed(
                    f"{self.partitions[at]} at {self.sink.address.place} does not drop duplicates, "
                    "which exactly_once=True needs",
                    detail="The rows of the epoch are staged; they were sent, and are sent again.",
                    hint="pulsar-admin namespaces set-deduplication NAMESPACE --enable; or leave exactly_once= out.",
                )

    def _producer(self, at: int) -> Any:
        # with another number of partitions keys are elsewhere, so what was sent before says nothing
        count = len(self.partitions)
        return self.session.client.create_producer(
            self.partitions[at],
            producer_name=self.writer if count == 1 else f"{self.writer}/{count}",
            send_timeout_millis=SEND_MILLIS,
            max_pending_messages=UNDER_WAY,
            block_if_queue_full=True,
            batching_enabled=False,
        )

    def _check_size(self, each: Outgoing) -> None:
        """A message that is too large is found before others that follow it are sent: those would be the last."""
        headers = sum(len(name) + 4 * len(text) for name, text in each.headers.items())
        size = len(each.body) + len(each.key or b"") + headers
        if size + PROPERTIES_BYTES > self.session.largest:
            most = f"{self.session.largest - PROPERTIES_BYTES:,} at most (maxMessageSize)"
            raise MessageTooLarge(self.sink.where, id=each.id, size=size, most=most)

    def _sent(self, result: Any, message: Any) -> None:
        """Hear what became of a message, in a thread of the client; it must not raise."""
        del message
        if result != pulsar.Result.Ok:
            self.failed.append(result)

    def _fail(self) -> None:
        raise self.session.ours(None, self.name, said=str(self.failed[0]).removeprefix("Result."))


def _about(each: Outgoing, key: str | None) -> Mapping[str, Any]:
    millis = (each.time or 0) // 1000
    return {
        "properties": {**each.headers, ID_HEADER: each.id},
        "partition_key": key,
        "event_timestamp": millis if millis > 0 else None,
    }


def java_hash(text: str) -> int:
    """Return the hash of a key as Pulsar's Java client takes it for partitions: of UTF-16, without its sign."""
    units: Sequence[int] = memoryview(text.encode("utf-16-le", "surrogatepass")).cast("H")
    found = 0
    for unit in units:
        found = (31 * found + unit) & 0xFFFFFFFF
    return found & 0x7FFFFFFF

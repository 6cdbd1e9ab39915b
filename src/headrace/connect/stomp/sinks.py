"""`stomp.destination(…)`: a sink whose epochs are transactions of a STOMP broker."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Unpack

from headrace.base.errors import InvalidPlan
from headrace.connect.messages.writing import ID_HEADER, KEY_HEADER, MessageSink, WritingOptions, outgoing, writing
from headrace.connect.sink import SinkWriter
from headrace.connect.stomp.address import address_of, failures
from headrace.connect.stomp.connection import Connection

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from headrace.base.time import Clock
    from headrace.connect.messages.address import BrokerAddress
    from headrace.connect.messages.writing import Outgoing

Kind = Literal["queue", "topic"]
IDLE_SECONDS = 5.0
"""A connection that was not used for so long is opened anew: nobody sends heart-beats between epochs."""


def destination(url: str, name: str, *, kind: Kind = "queue", **options: Unpack[WritingOptions]) -> Destination:
    """Return a sink that sends each row to a queue or topic of a STOMP broker, an epoch as one transaction.

    So an epoch is there as a whole, or not at all. At least once: if the connection is lost, or we are killed, between
    the commit and its answer, the whole epoch is sent again, with the same `headrace-id` of each row. The headers' key
    is `headrace-key`.

    Args:
        url: as `queue` has it.
        name: the destination, in which `{column}` is replaced by the row's value.
        kind: whether it is a queue or a topic.
        options: how messages are written.

    Raises:
        InvalidPlan: it is no address, or an option is not known.

    """
    if kind not in ("queue", "topic"):
        raise InvalidPlan(f"kind={kind!r} is not known", hint="It is queue or topic.")
    return Destination(address=address_of(url), kind=kind, how=writing(name, options))


@dataclass(frozen=True, kw_only=True)
class Destination(MessageSink):
    """A queue or topic; `destination` creates it."""

    address: BrokerAddress
    kind: Kind

    @property
    def where(self) -> str:
        """Broker and destination."""
        return f'the {self.kind} "{self.how.address}" at {self.address.place}'

    @property
    def name(self) -> str:
        """The destination."""
        return f"stomp:{self.how.address}"

    def open(self, *, writer: str, clock: Clock) -> SinkWriter:
        """Return a writer, which connects when it has something to send."""
        return DestinationWriter(self, writer, clock)


class DestinationWriter(SinkWriter):
    """Sends epochs to a broker."""

    def __init__(self, sink: Destination, writer: str, clock: Clock) -> None:
        self.sink, self.writer, self.clock = sink, writer, clock
        self._connection: Connection | None = None
        self._used = 0.0

    def last_epoch(self) -> int | None:
        """Return nothing: a broker cannot tell."""
        return None

    def publish(self, epoch: int, rows: Iterator[pa.RecordBatch]) -> None:
        """Send an epoch's rows in a transaction, and wait until it is committed.

        Raises:
            Unavailable: the broker does not answer, or refuses the transaction.
            LoginRefused, AccessRefused: user, password or rights are wrong.
            QueueMissing: the broker has no such destination, and makes none.

        """
        if self.clock.monotonic() - self._used > IDLE_SECONDS:
            self.close()
        try:
            with failures(self.sink.where, self.sink.address, create="Create it in the broker."):
                self._transact(epoch, rows)
        except BaseException:
            self.close()
            raise
        self._used = self.clock.monotonic()

    def _transact(self, epoch: int, rows: Iterator[pa.RecordBatch]) -> None:
        name, connection = f"e{epoch}", None
        for messages in outgoing(self.sink, self.writer, epoch, rows):
            if connection is None:
                connection = self._connected()
                connection.send("BEGIN", {"transaction": name})
            for message in messages:
                connection.send("SEND", self._headers(message, name), message.body)
            connection.check()
        if connection is not None:
            self.sink.fault("before_commit")
            connection.ask("COMMIT", {"transaction": name})

    def _headers(self, message: Outgoing, transaction: str) -> dict[str, str]:
        headers = {
            "destination": message.address,
            "destination-type": "ANYCAST" if self.sink.kind == "queue" else "MULTICAST",
            "transaction": transaction,
            "persistent": "true",
            ID_HEADER: message.id,
        }
        if message.key is not None:
            headers[KEY_HEADER] = message.key.decode("utf-8", "surrogateescape")
        return headers | dict(message.headers)

    def _connected(self) -> Connection:
        if self._connection is None:
            self._connection = Connection(self.sink.address)
        return self._connection

    def close(self) -> None:
        """Close the connection; a transaction that is not committed is undone by the broker."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

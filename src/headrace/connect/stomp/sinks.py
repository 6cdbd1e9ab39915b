"""`stomp.destination(…)`: a sink whose epochs are transactions of a STOMP broker."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Unpack

from headrace.base.errors import InvalidPlan
from headrace.connect.messages.writing import ID_HEADER, KEY_HEADER, MessageSink, RestingWriter, WritingOptions, writing
from headrace.connect.stomp.address import address_of, failures
from headrace.connect.stomp.connection import Connection

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from headrace.base.time import Clock
    from headrace.connect.messages.address import BrokerAddress
    from headrace.connect.messages.writing import Outgoing
    from headrace.connect.sink import SinkWriter

Kind = Literal["queue", "topic"]


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


class DestinationWriter(RestingWriter[Destination]):
    """Sends epochs to a broker."""

    _connection: Connection | None = None

    def send(self, epoch: int, messages: Iterator[Sequence[Outgoing]]) -> None:
        """Send an epoch's messages in a transaction, and wait until it is committed."""
        name, connection = f"e{epoch}", None
        with failures(self.sink.where, self.sink.address, create="Create it in the broker."):
            for some in messages:
                if connection is None:
                    connection = self._connected()
                    connection.send("BEGIN", {"transaction": name})
                for message in some:
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

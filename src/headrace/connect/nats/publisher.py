"""Out: rows become messages of a subject, with an id by which a stream recognises repetitions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Unpack

import nats

from headrace.base.broker_errors import BrokerFailed, MessageTooLarge
from headrace.base.errors import InvalidArgument
from headrace.connect.messages.writing import MessageSink, MessageWriter, WritingOptions, key_header, writing
from headrace.connect.nats.session import Session, nats_address

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from headrace.base.time import Clock
    from headrace.connect.messages.address import BrokerAddress
    from headrace.connect.messages.writing import Outgoing
    from headrace.connect.sink import SinkWriter

_ID = "Nats-Msg-Id"
_MOST_HEADERS = 65_535


def subject(url: str, subject: str, **options: Unpack[WritingOptions]) -> NatsSubject:
    """Return a sink whose messages a stream of NATS JetStream stores.

    Each has its id in the header Nats-Msg-Id, so the stream drops what is sent again within its duplicate window, two
    minutes by default: exactly once if an app that was killed is started again within that time, else at least once.

    Args:
        url: as in `stream`.
        subject: the subject; `{column}` is the column's text: "orders.{city}".
        options: as all brokers have.

    Raises:
        InvalidPlan: it is no address, or an option is not known.
        InvalidArgument: it is no subject.

    """
    if not subject or set(subject) & set("*> \t\r\n"):
        raise InvalidArgument(f"{subject!r} is no subject that can be sent to", hint='For example "orders.new".')
    return NatsSubject(address=nats_address(url), how=writing(subject, options))


@dataclass(frozen=True, kw_only=True)
class NatsSubject(MessageSink):
    """Messages of a subject; `subject` creates it."""

    address: BrokerAddress

    @property
    def where(self) -> str:
        """Server and subject."""
        return f"{self.address.place} ({self.how.address})"

    @property
    def name(self) -> str:
        """What tells it from the other sinks of an app."""
        return f"nats:{self.how.address}"

    def open(self, *, writer: str, clock: Clock) -> SinkWriter:
        """Return a writer; it connects when it has something to send."""
        del clock
        return _Writer(self, writer)


class _Writer(MessageWriter[NatsSubject]):
    """Sends epochs, and waits for the stream's answer to each message."""

    _session: Session | None = None

    def send(self, epoch: int, messages: Iterator[Sequence[Outgoing]]) -> None:
        """Send an epoch's messages; they are stored when it returns."""
        del epoch
        session = self._session = self._session or Session(self.sink.address)
        for some in messages:
            session.wait(self._sent(session, some))

    def close(self) -> None:
        """Close the connection."""
        if self._session is not None:
            self._session.close()
            self._session = None

    async def _sent(self, session: Session, messages: Sequence[Outgoing]) -> None:
        answers: list[Any] = []
        for each in messages:
            headers = {name: _one_line(text) for name, text in each.headers.items()}
            headers |= key_header(each, self.sink.where, _one_line) | {_ID: each.id}
            self._check(each, headers)
            try:
                answers.append(await session.js.publish_async(each.address, each.body, headers=headers))
            except nats.errors.MaxPayloadError as error:
                raise MessageTooLarge(
                    self.sink.where, id=each.id, size=len(each.body), most="max_payload bytes at most"
                ) from error
        for answer in answers:
            await answer

    def _check(self, each: Outgoing, headers: Mapping[str, str]) -> None:
        """Check what the client or the server would drop with the connection.

        Raises:
            BrokerFailed: it is no subject.
            MessageTooLarge: the headers are.

        """
        if not all(each.address.split(".")) or any(mark.isspace() for mark in each.address):
            raise BrokerFailed(
                f"{each.address!r} is no subject that can be sent to", detail=f"Its message is {each.id}."
            )
        size = sum(len(name.encode()) + len(text.encode()) + 4 for name, text in headers.items()) + 12
        if size > _MOST_HEADERS:
            raise MessageTooLarge(self.sink.where, id=each.id, size=size, most=f"headers of {_MOST_HEADERS:,} bytes")


def _one_line(text: str) -> str:
    """Return a header's text: a line end would begin another header."""
    return text.replace("\r", " ").replace("\n", " ")

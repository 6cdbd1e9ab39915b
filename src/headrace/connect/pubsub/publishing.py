"""Out: rows become messages of a topic, in the order of their keys."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Unpack

from google.pubsub_v1.types import PubsubMessage

from headrace.base.broker_errors import MessageTooLarge
from headrace.connect.messages.writing import ID_HEADER, MessageSink, MessageWriter, WritingOptions, writing
from headrace.connect.pubsub.service import SECONDS, PubSubService

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from headrace.base.time import Clock
    from headrace.connect.messages.writing import Outgoing
    from headrace.connect.sink import SinkWriter

MOST_BYTES, MOST_KEY = 9_000_000, 1_024
MOST_MESSAGE = 10_000_000
_ABOUT = 200
"""What a message has besides body, key and attributes, at most."""


def topic(
    topic: str, *, endpoint: str | None = None, credentials: str | None = None, **options: Unpack[WritingOptions]
) -> PubSubTopic:
    """Return a sink whose rows are messages of a topic of Google Cloud Pub/Sub: at least once, in order by key.

    The key is the ordering key, the id the attribute headrace-id, which is the same when an epoch is sent again.

    Args:
        topic: `projects/PROJECT/topics/NAME`.
        endpoint: as in `subscription`; ordering keys want one of a region.
        credentials: as in `subscription`.
        options: as all brokers have.

    Raises:
        InvalidPlan: an option is not known.
        InvalidArgument: it is no topic.

    """
    service = PubSubService.named("topics", topic, endpoint=endpoint, credentials=credentials)
    return PubSubTopic(service=service, how=writing(topic, options))


@dataclass(frozen=True, kw_only=True)
class PubSubTopic(MessageSink):
    """Messages of a topic; `topic` creates it."""

    service: PubSubService

    @property
    def where(self) -> str:
        """The topic."""
        return self.service.place

    @property
    def name(self) -> str:
        """What tells it from the other sinks of an app."""
        return f"pubsub:{self.service.path}"

    def open(self, *, writer: str, clock: Clock) -> SinkWriter:
        """Return a writer."""
        del clock
        return _Writer(self, writer)


class _Writer(MessageWriter[PubSubTopic]):
    """Sends epochs: one request after the other, so that keys keep their order.

    A channel that failed waits before it connects again, so it is not used again.
    """

    client: Any = None

    def send(self, epoch: int, messages: Iterator[Sequence[Outgoing]]) -> None:
        """Send an epoch's messages; Pub/Sub has stored them when it returns."""
        del epoch
        service = self.sink.service
        self.client = self.client or service.publisher()
        for some in messages:
            for request in self._requests(some):
                with service.failures():
                    self.client.publish(topic=service.path, messages=request, retry=None, timeout=SECONDS)

    def close(self) -> None:
        """Close the connection."""
        if self.client is not None:
            self.client.transport.close()
            self.client = None

    def _requests(self, messages: Sequence[Outgoing]) -> Iterator[list[PubsubMessage]]:
        request, size = list[PubsubMessage](), 0
        for each in messages:
            if len(each.body) > MOST_MESSAGE:
                raise MessageTooLarge(self.sink.where, id=each.id, size=len(each.body), most=f"{MOST_MESSAGE:,} bytes")
            key = (each.key or b"")[:MOST_KEY].decode(errors="ignore")
            attributes = {**each.headers, ID_HEADER: each.id}
            bytes_ = len(each.body) + len(key) + sum(map(len, attributes.values())) + _ABOUT
            if request and size + bytes_ > MOST_BYTES:
                yield request
                request, size = [], 0
            request.append(PubsubMessage(data=each.body, attributes=attributes, ordering_key=key))
            size += bytes_
        yield request

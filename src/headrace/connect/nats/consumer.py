"""In: the messages of a stream, in order, by a durable pull consumer; the sequence number is stored with each append.

The consumer is created anew whenever the feed starts, from the message after the last one that was landed. Then every
message is delivered in the order of the stream, and counted by the server; a number that is missing means that a
message got lost on its way, and the feed starts again. So the greatest sequence number that was landed says everything,
which it would not with a consumer that goes on: that delivers new messages before it repeats what a crash left
unacknowledged.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Unpack

from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy
from nats.js.errors import NotFoundError

from headrace.base.broker_errors import PositionLost
from headrace.base.errors import InvalidArgument
from headrace.base.outside import Unavailable
from headrace.connect.feed import Feed
from headrace.connect.messages.reading import Message, MessageLanding, Reading, ReadingOptions, reading
from headrace.connect.messages.writing import KEY_HEADER
from headrace.connect.nats.session import Session, nats_address

if TYPE_CHECKING:
    import threading
    from collections.abc import Sequence

    from nats.aio.msg import Msg
    from nats.js.api import StreamInfo

    from headrace.connect.feed import Landing
    from headrace.connect.messages.address import BrokerAddress

KNOWN = ("subject", "stream", "sequence", "time")
TOGETHER = 1_000
ACK_SECONDS = 60.0
FETCH_SECONDS = 0.3
_ID = "Nats-Msg-Id"


def stream(
    url: str,
    stream: str,
    *,
    durable: str,
    subjects: str | Sequence[str] = (),
    start: Literal["all", "new"] = "all",
    **options: Unpack[ReadingOptions],
) -> NatsStream:
    """Return a feed of a stream of NATS JetStream: each message is landed exactly once, in order.

    The feed owns the consumer `durable`: it creates it, and creates it anew whenever it starts. Messages are
    acknowledged when they are durable, so streams with the retention `workqueue` or `interest` delete them then.

    Metadata: "subject", "stream", "sequence", "time" (when the server stored it), "id" (the header Nats-Msg-Id). The
    "key" is the header headrace-key, else the last token of the subject: so a bucket of NATS' key-value store is a
    table with `key=`.

    Args:
        url: `nats://user:password@host:port`, or `tls://`; a token stands where the user does, and a file with
            credentials is named by `?credentials=FILE`.
        stream: the stream.
        durable: the name of the consumer, one for each feed; if it exists, the feed begins after what it acknowledged.
        subjects: only messages of these subjects, with wildcards; all by default.
        start: where a new feed begins: "all" at the first message, "new" at what comes.
        options: as all brokers have; `id` is None here: the sequence number is enough.

    Raises:
        InvalidPlan: it is no address, or an option is not known.
        InvalidArgument: a name is empty or has `.`, `*`, `>` or spaces, or `start` is another.

    """
    for name in (stream, durable):
        if not name or set(name) & set(".*> \t/\\"):
            raise InvalidArgument(f"{name!r} cannot be the name of a stream or a consumer of NATS")
    if start not in {"all", "new"}:
        raise InvalidArgument(f'start is "all" or "new", not {start!r}')
    how = reading(KNOWN, {"id": None, **options})
    some = (subjects,) if isinstance(subjects, str) else tuple(subjects)
    return NatsStream(address=nats_address(url), stream=stream, durable=durable, subjects=some, start=start, how=how)


class _Place(NamedTuple):
    """How far a feed is: the stream as it was created, and the sequence number of the last message landed."""

    created: str
    sequence: int

    @staticmethod
    def read(stored: bytes | None) -> _Place | None:
        return None if stored is None else _Place(**json.loads(stored))

    def stored(self) -> bytes:
        return json.dumps(self._asdict()).encode()


@dataclass(frozen=True, kw_only=True)
class NatsStream(Feed):
    """The messages of a stream; `stream` creates it."""

    address: BrokerAddress
    stream: str
    durable: str
    subjects: tuple[str, ...]
    start: str
    how: Reading

    @property
    def identity(self) -> str:
        """Stream and subjects: servers of a cluster have different addresses."""
        return f"nats:{self.stream}/{','.join(self.subjects) or '>'}"

    def run(self, landing: Landing, stop: threading.Event) -> None:
        """Land messages until `stop` is set.

        Raises:
            Unavailable: the server does not answer, or a message was lost on its way.
            QueueMissing: there is no such stream.
            PositionLost: the stream is another one than was read so far.

        """
        messages = MessageLanding(landing, self.how)
        session = Session(self.address)
        try:
            _Reader(self, session, messages).run(stop)
        finally:
            session.close()


class _Reader:
    """Reads a stream in one session."""

    def __init__(self, feed: NatsStream, session: Session, messages: MessageLanding) -> None:
        self.feed, self.session, self.messages = feed, session, messages
        info: StreamInfo = session.wait(session.js.stream_info(feed.stream))
        self.place = self._place(info)
        self.deliveries = 0
        self._skipped(info)
        if self.messages.position is None and self.place.sequence:
            messages.land([], position=self.place.stored())  # a crash does not move the beginning
        session.wait(self._created(self._consumer(info), info.config.retention))
        self.consumer = session.wait(
            session.js.pull_subscribe_bind(feed.durable, feed.stream, pending_bytes_limit=-1, pending_msgs_limit=-1)
        )

    def run(self, stop: threading.Event) -> None:
        while not stop.is_set():
            if not self.messages.has_room():
                stop.wait(0.1)
                self.session.idle()
                continue
            received = self.session.wait(self._received(), seconds=10 + ACK_SECONDS)
            fresh = [each for each in received if each.metadata.sequence.stream > self.place.sequence]
            if fresh:
                self._land(fresh)
            self.session.wait(_acknowledged(received))

    def _land(self, received: Sequence[Msg]) -> None:
        place = self.place._replace(sequence=received[-1].metadata.sequence.stream)
        self.messages.land([_message(each) for each in received], position=place.stored())
        self.place = place

    async def _received(self) -> list[Msg]:
        try:
            received: list[Msg] = await self.consumer.fetch(TOGETHER, timeout=FETCH_SECONDS)
        except TimeoutError:
            return []
        for each in received:
            self.deliveries += 1
            if each.metadata.sequence.consumer != self.deliveries:
                raise Unavailable(
                    f"a message of the stream {self.feed.stream} was lost between {self.feed.address.place} and here, "
                    f"or another process uses the consumer {self.feed.durable}"
                )
        return received

    def _place(self, info: StreamInfo) -> _Place:
        """Return where to begin: after what was landed, else after what the consumer had acknowledged."""
        created = info.created.isoformat() if info.created else ""
        known = _Place.read(self.messages.position)
        if known is not None and (known.created != created or known.sequence > info.state.last_seq):
            raise PositionLost(
                f"the stream {self.feed.stream} of {self.feed.address.place}",
                read=f"message {known.sequence}",
                now=f"it was created at {created} and ends with message {info.state.last_seq}",
            )
        if known is not None:
            return known
        acknowledged = self.session.wait(self._acknowledged())
        if acknowledged is None and self.feed.start == "new":
            acknowledged = info.state.last_seq
        return _Place(created, acknowledged or 0)

    async def _acknowledged(self) -> int | None:
        """Return the last message that the consumer had acknowledged with all before it, None if there is none."""
        try:
            info = await self.session.js.consumer_info(self.feed.stream, self.feed.durable)
        except NotFoundError:
            return None
        return info.ack_floor.stream_seq if info.ack_floor else 0

    def _skipped(self, info: StreamInfo) -> None:
        """Make a dead letter of what the stream deleted before it was read."""
        place, first = self.place, info.state.first_seq
        if self.messages.position is None or info.config.retention != "limits" or first <= place.sequence + 1:
            return
        reason = f"the messages {place.sequence + 1} to {first - 1} of the stream were deleted before they were read"
        self.place = place._replace(sequence=first - 1)
        self.messages.lose(reason, position=self.place.stored())

    def _consumer(self, info: StreamInfo) -> ConsumerConfig:
        config = ConsumerConfig(
            durable_name=self.feed.durable,
            ack_policy=AckPolicy.EXPLICIT,
            ack_wait=ACK_SECONDS,
            max_ack_pending=2 * TOGETHER,
        )
        if len(self.feed.subjects) == 1:
            config.filter_subject = self.feed.subjects[0]
        elif self.feed.subjects:
            config.filter_subjects = list(self.feed.subjects)
        if info.config.retention == "workqueue" or not self.place.sequence:
            return replace(config, deliver_policy=DeliverPolicy.ALL)  # of a work queue only this is allowed
        policy = DeliverPolicy.BY_START_SEQUENCE
        return replace(config, deliver_policy=policy, opt_start_seq=self.place.sequence + 1)

    async def _created(self, config: ConsumerConfig, retention: str | None) -> None:
        """Create the consumer anew; a stream that keeps what a consumer wants is kept by another one meanwhile."""
        js, feed = self.session.js, self.feed
        guard = f"{feed.durable}-guard" if retention == "interest" else None
        if guard is not None:
            everything = replace(config, durable_name=guard, deliver_policy=DeliverPolicy.ALL, opt_start_seq=None)
            await js.add_consumer(feed.stream, everything)
        with suppress(NotFoundError):
            await js.delete_consumer(feed.stream, feed.durable)
        await js.add_consumer(feed.stream, config)
        if guard is not None:
            await js.delete_consumer(feed.stream, guard)


async def _acknowledged(received: Sequence[Msg]) -> None:
    for each in received:
        await each.ack()


def _message(each: Msg) -> Message:
    headers, about = each.headers or {}, each.metadata
    key = headers.get(KEY_HEADER, each.subject.rpartition(".")[2])
    known: dict[str, Any] = {
        "subject": each.subject,
        "stream": about.stream,
        "sequence": about.sequence.stream,
        "time": about.timestamp,
    }
    return Message(each.data, id=headers.get(_ID), key=key.encode(), headers=headers, about=known)

"""In: the messages of a subscription, leased while they wait, acknowledged when they are durable."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from datetime import UTC, datetime
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Unpack

from google.pubsub_v1.types import StreamingPullRequest

from headrace.base.errors import InvalidArgument
from headrace.base.time import SystemClock, duration
from headrace.connect.feed import Feed
from headrace.connect.messages.reading import Message, MessageLanding, Reading, ReadingOptions, reading
from headrace.connect.pubsub.service import SECONDS, PubSubService

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import timedelta

    from headrace.connect.feed import Landing

KNOWN = ("time",)
TOGETHER, UNACKNOWLEDGED, MOST_BYTES = 1_000, 5_000, 100_000_000
WAIT_SECONDS = 0.2
LEAST_LEASE, MOST_LEASE = 10, 600
_CLOCK = SystemClock()
_MICROS = 1_000_000


def subscription(
    subscription: str,
    *,
    endpoint: str | None = None,
    credentials: str | None = None,
    lease: str | timedelta = "60 seconds",
    **options: Unpack[ReadingOptions],
) -> PubSubSubscription:
    """Return a feed of a subscription of Google Cloud Pub/Sub: exactly once by its message ids, in order by key.

    Messages of one ordering key are landed in order if the subscription delivers them so. What a publisher sends twice
    has two ids: `id="header:headrace-id"` recognises what our own sink repeats.

    Metadata: "time" (of publishing), "id"; `header:NAME` is the attribute NAME, the "key" is the ordering key.

    Args:
        subscription: `projects/PROJECT/subscriptions/NAME`.
        endpoint: another address than Google's; `http://host:port` is an emulator, as is PUBSUB_EMULATOR_HOST.
        credentials: a file of a service account; by default they are found where Google's tools find them.
        lease: for how long a message that was received belongs to this feed; it is extended while messages wait. After
            a crash they come again when it is over: 10 seconds to 10 minutes.
        options: as all brokers have.

    Raises:
        InvalidPlan: an option is not known.
        InvalidArgument: it is no subscription, or the lease is out of bounds.

    """
    seconds = duration(lease, what="lease") // _MICROS
    if not LEAST_LEASE <= seconds <= MOST_LEASE:
        raise InvalidArgument(f"lease is from {LEAST_LEASE} to {MOST_LEASE} seconds, not {lease!r}")
    service = PubSubService.named("subscriptions", subscription, endpoint=endpoint, credentials=credentials)
    return PubSubSubscription(service=service, lease=seconds, how=reading(KNOWN, options))


@dataclass(frozen=True, kw_only=True)
class PubSubSubscription(Feed):
    """The messages of a subscription; `subscription` creates it."""

    service: PubSubService
    lease: int
    how: Reading

    @property
    def identity(self) -> str:
        """The subscription."""
        return f"pubsub:{self.service.path}"

    def run(self, landing: Landing, stop: threading.Event) -> None:
        """Land messages until `stop` is set.

        Raises:
            Unavailable: Pub/Sub does not answer.
            QueueMissing: there is no such subscription.

        """
        messages = MessageLanding(landing, self.how)
        leased = _Leased(self)
        try:
            while not stop.is_set():
                if not messages.has_room():
                    stop.wait(WAIT_SECONDS)
                    leased.keep()
                elif received := leased.take(WAIT_SECONDS):
                    messages.land([_message(each.message) for each in received])
                    leased.acknowledge(received)
        finally:
            leased.close()


class _Leased:
    """The messages that Pub/Sub has sent and that were not taken; a thread receives them."""

    def __init__(self, feed: PubSubSubscription) -> None:
        self.service, self.lease = feed.service, feed.lease
        self.client = self.service.subscriber()
        self.queue: SimpleQueue[list[Any] | Exception] = SimpleQueue()
        self.waiting: list[Any] = []
        self.kept = _CLOCK.monotonic()
        self.closed = threading.Event()
        with self.service.failures():
            self.stream = self.client.streaming_pull(requests=self._requests())
        self.thread = threading.Thread(target=self._receive, name="headrace-pubsub", daemon=True)
        self.thread.start()

    def take(self, seconds: float) -> list[Any]:
        """Return messages, at most `TOGETHER`, that came within a time.

        Raises:
            HeadraceError: what ended the stream, after all that it brought was taken.

        """
        self._drain(seconds)
        received, self.waiting = self.waiting[:TOGETHER], self.waiting[TOGETHER:]
        if self.waiting:
            self.keep()
        return received

    def keep(self) -> None:
        """Extend the leases of messages that wait, if it is time."""
        if _CLOCK.monotonic() - self.kept > self.lease / 3:
            self.kept = _CLOCK.monotonic()
            self._drain(0)
            self._extend(self.waiting, self.lease)

    def acknowledge(self, received: Sequence[Any]) -> None:
        """Tell Pub/Sub not to send messages again."""
        with self.service.failures():
            ids = [each.ack_id for each in received]
            self.client.acknowledge(subscription=self.service.path, ack_ids=ids, retry=None, timeout=SECONDS)

    def close(self) -> None:
        """End the stream, and give back what was not taken."""
        self.closed.set()
        self.stream.cancel()
        self.thread.join(SECONDS)
        try:
            self._drain(0)
            self._extend(self.waiting, 0)
        except Exception:  # noqa: BLE001, S110 -- then their leases end by themselves
            pass
        self.client.transport.close()

    def _drain(self, seconds: float) -> None:
        """Move what the thread has received to `waiting`; raise what ended it, if nothing waits."""
        try:
            while len(self.waiting) < UNACKNOWLEDGED:
                found = self.queue.get(timeout=seconds) if seconds and not self.waiting else self.queue.get_nowait()
                if isinstance(found, Exception):
                    self.queue.put(found)
                    if not self.waiting and not self.closed.is_set():
                        with self.service.failures():
                            raise found
                    return
                self.waiting += found
        except Empty:
            pass

    def _extend(self, messages: Sequence[Any], seconds: int) -> None:
        for at in range(0, len(messages), TOGETHER):
            ids = [each.ack_id for each in messages[at : at + TOGETHER]]
            with self.service.failures():
                self.client.modify_ack_deadline(
                    subscription=self.service.path,
                    ack_ids=ids,
                    ack_deadline_seconds=seconds,
                    retry=None,
                    timeout=SECONDS,
                )

    def _requests(self) -> Iterator[StreamingPullRequest]:
        yield StreamingPullRequest(
            subscription=self.service.path,
            stream_ack_deadline_seconds=self.lease,
            max_outstanding_messages=UNACKNOWLEDGED,
            max_outstanding_bytes=MOST_BYTES,
        )
        self.closed.wait()  # the stream ends when its requests do

    def _receive(self) -> None:
        try:
            for response in self.stream:
                self.queue.put(list(type(response).pb(response).received_messages))
            self.queue.put(ConnectionError("the stream has ended"))
        except Exception as error:  # noqa: BLE001 -- whoever takes messages raises it
            self.queue.put(error)


def _message(each: Any) -> Message:
    about: dict[str, object] = {
        "time": datetime.fromtimestamp(each.publish_time.seconds + each.publish_time.nanos / 1e9, UTC)
    }
    key = each.ordering_key.encode() if each.ordering_key else None
    return Message(each.data, id=each.message_id, key=key, headers=dict(each.attributes), about=about)

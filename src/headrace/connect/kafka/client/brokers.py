"""The brokers of a cluster: connections that are kept, who leads a partition, and asking again after what may pass."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from kafka import errors
from kafka.protocol.metadata import MetadataRequest

from headrace.base.outside import Unavailable
from headrace.base.time import SystemClock
from headrace.connect.kafka.client.failures import failure
from headrace.connect.kafka.client.settings import wire_settings
from headrace.connect.kafka.client.wire import Connection

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from headrace.connect.kafka.address import KafkaAddress
    from headrace.connect.kafka.client.settings import WireSettings

T = TypeVar("T")

UNKNOWN_TOPIC, UNKNOWN_TOPIC_ID, OFFSET_OUT_OF_RANGE = 3, 100, 1
RETRIED = {
    -1: "an unknown error of the broker",
    UNKNOWN_TOPIC: "the broker does not know the partition",
    5: "the partition has no leader",
    6: "another broker leads the partition",
    7: "the broker had no time",
    8: "the broker is not available",
    9: "the replica is not available",
    13: "a broker was disconnected",
    14: "the coordinator is loading",
    15: "there is no coordinator yet",
    16: "another broker is the coordinator",
    56: "the broker's disk failed",
    70: "the fetch session is not known",
    71: "the fetch session went on elsewhere",
    74: "the leader is newer than what is known of it",
    75: "the leader is older than what is known of it",
    78: "the new leader does not know the end yet",
    UNKNOWN_TOPIC_ID: "the broker does not know the topic's id",
    103: "the topic's id differs",
}
"""Errors of a broker that may pass, by their numbers."""

_CLOCK = SystemClock()
_PATIENCE = 10.0
"""Seconds for which a request is repeated before `Unavailable` tells the engine, which repeats at its own pace."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.02, 1.0


class Retried(Exception):
    """A request has to be repeated, after the leaders were looked up again."""


@dataclass(frozen=True, slots=True)
class TopicState:
    """A topic as the cluster describes it: its id, its cluster, and by partition the leader's node and epoch."""

    cluster: str
    id: str
    leaders: Mapping[int, tuple[int, int]]


class Brokers:
    """Connections to the brokers of one cluster. Several threads may use it: a connection serves one at a time."""

    def __init__(self, address: KafkaAddress) -> None:
        self.address = address
        self.settings: WireSettings = wire_settings(address.configuration())
        self._places: dict[int, tuple[str, int]] = {}
        self._idle: dict[tuple[str, int], list[Connection]] = {}

    @property
    def places(self) -> Mapping[int, tuple[str, int]]:
        """The host and port of each broker, by its number, as far as they are known."""
        return self._places

    def check(self, code: int, doing: str) -> None:
        """Raise what an error's number means; `doing` is what the broker did not do.

        Raises:
            Retried: it may pass within seconds.
            HeadraceError: it does not pass so soon, or not at all.

        """
        if code in RETRIED:
            raise Retried(f"Kafka at {self.address.servers} did not {doing}: {RETRIED[code]}")
        if code:
            text = errors.for_code(code).description
            raise failure(code, text, self.address, doing=doing)

    @contextmanager
    def any(self) -> Iterator[Connection]:
        """Borrow a connection to any broker."""
        with self._borrowed(self._any()) as connection:
            yield connection

    @contextmanager
    def node(self, node: int) -> Iterator[Connection]:
        """Borrow a connection to a broker, by its number."""
        if node not in self._places:
            raise Retried(f"the address of broker {node} is not known")
        with self._borrowed(self._to(self._places[node])) as connection:
            yield connection

    @contextmanager
    def _borrowed(self, connection: Connection) -> Iterator[Connection]:
        try:
            yield connection
        finally:
            if connection.idle:
                self._idle.setdefault(connection.key, []).append(connection)
            else:
                connection.close()

    def _any(self) -> Connection:
        failed: Unavailable | None = None
        known = list(self._places.values())
        for place in sorted(known, key=lambda each: each not in self._idle) + list(self.settings.servers):
            try:
                return self._to(place)
            except Unavailable as error:
                failed = error
        assert failed is not None  # noqa: S101 -- an address has a server
        raise failed

    def _to(self, place: tuple[str, int]) -> Connection:
        waiting = self._idle.get(place, [])
        while waiting:
            connection = waiting.pop()
            if connection.idle:
                return connection
            connection.close()
        return Connection(*place, self.settings)

    def topic(self, name: str) -> TopicState | None:
        """Return the state of a topic, or None where the cluster has none of this name."""
        with self.any() as connection:
            wanted = MetadataRequest.MetadataRequestTopic(name=name, topic_id=None)
            connection.send(MetadataRequest(topics=[wanted], allow_auto_topic_creation=False))
            answer = connection.receive()
        self._places.update({each.node_id: (each.host, each.port) for each in answer.brokers})
        topic = answer.topics[0]
        if topic.error_code == UNKNOWN_TOPIC:
            return None
        self.check(topic.error_code, f'describe the topic "{name}"')
        leaders = {each.partition_index: (each.leader_id, each.leader_epoch) for each in topic.partitions}
        return TopicState(answer.cluster_id or "", str(topic.topic_id or ""), leaders)

    def close(self) -> None:
        """Close what is idle."""
        for waiting in self._idle.values():
            for connection in waiting:
                connection.close()
        self._idle.clear()


def repeated(attempt: Callable[[], T], *, again: Callable[[], object], patience: float = _PATIENCE) -> T:
    """Return what `attempt` returns, repeated with pauses while it fails with what may pass.

    Args:
        attempt: what is done.
        again: called before each repetition: it looks the leaders up.
        patience: how many seconds.

    Raises:
        Unavailable: it still fails.

    """
    pauses = Pauses(patience)
    fresh = True
    while True:
        try:
            if not fresh:
                again()
            return attempt()
        except (Retried, Unavailable) as error:
            fresh = False
            pauses.wait(error)


class Pauses:
    """Pauses between repetitions, each longer, until patience ends."""

    def __init__(self, patience: float = _PATIENCE) -> None:
        self._until = _CLOCK.monotonic() + patience
        self._pause = _FIRST_PAUSE

    def wait(self, error: Exception) -> None:
        """Wait, or raise the error as `Unavailable` where patience has ended."""
        if _CLOCK.monotonic() + self._pause > self._until:
            if isinstance(error, Unavailable):
                raise error
            raise Unavailable(str(error), hint="It is asked again.") from error
        _CLOCK.sleep(self._pause)
        self._pause = min(self._pause * 2, _LONGEST_PAUSE)

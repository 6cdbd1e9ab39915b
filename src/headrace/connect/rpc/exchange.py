"""What request and reply need of a store of topics: the embedded log, or Kafka.

Requests of a service are in its topic, replies in `<topic>.replies`. Both are keyed by `request_id`, so requests of one
id, and their replies, are each in one partition.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from headrace.base.time import Clock

ID, DEADLINE, ERROR = "request_id", "deadline", "error"
REPLIES = ".replies"


class Received(NamedTuple):
    """A request or a reply: where it is, and its columns."""

    partition: int
    offset: int
    row: dict[str, Any]


class Tail(Protocol):
    """The new records of a topic, of all partitions or of one."""

    def poll(self, seconds: float) -> list[Received]:
        """Return records that are new; wait for the first one."""
        ...

    def close(self) -> None:
        """Let go of what is open."""
        ...


class Members(Protocol):
    """The partitions of a topic that this member of a group has."""

    def poll(self, seconds: float) -> list[Received]:
        """Return records of the member's partitions; wait for the first one."""
        ...

    def rewind(self, polled: Sequence[Received]) -> None:
        """Return records again that were polled and are not done, where the member still has their partitions."""
        ...

    def commit(self) -> bool:
        """Store that all that was polled is done; False: others have a partition now, and do it again."""
        ...

    def close(self) -> None:
        """Leave the group."""
        ...


class Exchange(Protocol):
    """A store of topics."""

    @property
    def clock(self) -> Clock:
        """Its clock."""
        ...

    def create(self, topic: str, columns: str, *, partitions: int) -> None:
        """Create a topic that is keyed by `request_id`, unless there is one."""
        ...

    def send(self, topic: str, rows: Sequence[Mapping[str, Any]], *, partition: int | None = None) -> None:
        """Append rows: durable on return.

        Raises:
            InvalidRows: a row does not fit.
            Unavailable: the store does not answer.

        """
        ...

    def tail(self, topic: str, *, since: int | None = None) -> Tail:
        """Return what is appended to a topic from now on, or since a time (microseconds since 1970).

        Raises:
            UnknownTopic: there is no such topic.

        """
        ...

    def stored(self, topic: str, partition: int, *, since: int) -> list[dict[str, Any]]:
        """Return what is in a partition since a time; partitions of the two topics of a service correspond."""
        ...

    def members(self, topic: str, group: str, revoked: Callable[[Sequence[int]], None]) -> Members:
        """Join a group; `revoked` is called with partitions that the member gives up or has lost."""
        ...

    def close(self) -> None:
        """Let go of what is open."""
        ...

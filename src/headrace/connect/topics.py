"""Stores of topics: the interface between the engine and the embedded log or a broker."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa

    from headrace.connect.feed import Landing
    from headrace.connect.sink import SharedSink
    from headrace.connect.source import Source


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSpec:
    """A topic as an app declares it: what it reads, or what it writes.

    `private`: the private columns that a source declares, each with the column of its subject, if declared. `sealed`:
    the columns of an output with sealed values of other topics. `formatted`: records are text in the column `value`,
    next to the key's columns.
    """

    name: str
    schema: pa.Schema
    key: tuple[str, ...] = ()
    event_time: str | None = None
    sent_time: str | None = None
    partitions: int | None = None
    upserts: bool = False
    changelog: bool = False
    formatted: bool = False
    private: tuple[tuple[str, str | None], ...] = ()
    sealed: frozenset[str] = frozenset()


class TopicStore(Protocol):
    """A store of topics: the embedded log, or a broker."""

    def source(self, topic: TopicSpec) -> Source:
        """Return a topic as a source; `prepare` creates it if it is missing."""
        ...

    def sink(self, topic: TopicSpec) -> SharedSink:
        """Return a topic as a sink; `prepare` creates it if it is missing."""
        ...

    def dead_letters(self, topic: str) -> SharedSink:
        """Return the dead-letter topic of a topic, as a sink of form "rows"; it is created when it is used."""
        ...

    def landing(self, topic: TopicSpec, *, feed: str, limit: int, read: Callable[[], int]) -> Landing:
        """Return a topic to be filled by a feed.

        Args:
            topic: what the app declares.
            feed: the feed's name.
            limit: so many records that the app has not read are enough.
            read: says how many the app has read.

        """
        ...

    def clean(self, topics: Sequence[str]) -> None:
        """Let the rules of topics take effect: retention, compaction, archive; called now and then."""
        ...

    def close(self) -> None:
        """Let go of what is open."""
        ...

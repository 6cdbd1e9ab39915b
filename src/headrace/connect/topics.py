"""Stores of topics: the interface between the engine and the embedded log or a broker."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pyarrow as pa

    from headrace.connect.feed import Landing, SharedLanding
    from headrace.connect.format import Format
    from headrace.connect.open_topic import OpenTopic
    from headrace.connect.sink import SharedSink
    from headrace.connect.source import Source
    from headrace.log.privacy.subjects import Origin


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSpec:
    """A topic as an app declares it: what it reads, or what it writes.

    `private`: the private columns that a source declares, each with the column of its subject, if declared. `sealed`:
    the columns of an output with sealed values of other topics. `format`: that of the records, None where the topic has
    the columns themselves; `key_format`: that of their keys, where keys are bytes. `follows`: a feed fills it with a
    table of a database, and it gets the columns that the table gets.
    """

    name: str
    schema: pa.Schema
    key: tuple[str, ...] = ()
    event_time: str | None = None
    sent_time: str | None = None
    partitions: int | None = None
    upserts: bool = False
    changelog: bool = False
    format: Format | None = None
    key_format: Format | None = None
    private: tuple[tuple[str, str | None], ...] = ()
    sealed: frozenset[str] = frozenset()
    follows: bool = False


class TopicStore(Protocol):
    """A store of topics: the embedded log, or a broker."""

    def source(self, topic: TopicSpec) -> Source:
        """Return a topic as a source; `prepare` creates it if it is missing."""
        ...

    def sink(self, topic: TopicSpec, *, origins: Sequence[Origin] = ()) -> SharedSink:
        """Return a topic as a sink; `prepare` creates it if it is missing. `origins`: the keys of private columns."""
        ...

    def dead_letters(self, topic: str) -> SharedSink:
        """Return the dead-letter topic of a topic, as a sink of form "rows"; it is created when it is used."""
        ...

    def opened(self, topic: TopicSpec) -> OpenTopic:
        """Return a topic that exists, as rows.

        Raises:
            UnknownTopic: it does not exist.

        """
        ...

    def writers(self, topic: str) -> set[str]:
        """Return the names of the apps that have written to a topic, as far as that is known."""
        ...

    def published_by(self, app: str) -> Mapping[str, set[str]]:
        """Return the topics that an app has published to, by the id of its storage, as far as that is known."""
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

    def shared_landing(
        self,
        group: str,
        topics: Mapping[str, TopicSpec],
        *,
        feeds: Mapping[str, str],
        limit: int,
        read: Callable[[str], int],
    ) -> SharedLanding:
        """Return topics to be filled by the feeds of a group, which share a reader.

        Args:
            group: the group's name.
            topics: what the app declares, by the names of the topics.
            feeds: by topic the name of its feed.
            limit: so many records of a topic that the app has not read are enough.
            read: says how many of a topic the app has read.

        """
        ...

    def position(self, topic: str, *, group: str | None) -> bytes | None:
        """Return the position of a feed's last append, None where there is none; the feed may run meanwhile.

        Args:
            topic: that the feed fills.
            group: the `reader_group` of the feed, whose feeds have one position.

        """
        ...

    def forget_position(self, topic: str, *, group: str | None) -> None:
        """Let a feed, or the feeds of a group, begin again; what was landed stays.

        Raises:
            FeedRunsElsewhere: it runs.
            InvalidPlan: this store cannot forget one.

        """
        ...

    def clean(self, topics: Sequence[str]) -> None:
        """Let the rules of topics take effect: retention, compaction, archive; called now and then."""
        ...

    def close(self) -> None:
        """Let go of what is open."""
        ...

"""The topics of an app in the embedded log."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from headrace.base.dead_letters import DEAD
from headrace.connect.embedded import landing_file
from headrace.connect.embedded.boundaries import writers
from headrace.connect.embedded.creation import topic_of_source
from headrace.connect.embedded.formatted import FormattedTopic
from headrace.connect.embedded.landing import EmbeddedLanding, landing_path, position_of
from headrace.connect.embedded.marks import marks_of
from headrace.connect.embedded.shared_landing import EmbeddedSharedLanding, path_of, position_of_group
from headrace.connect.embedded.sink import EmbeddedSink
from headrace.connect.embedded.source import EmbeddedSource
from headrace.connect.topics import TopicSpec, TopicStore

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from headrace.connect.open_topic import OpenTopic
    from headrace.log import Log
    from headrace.log.privacy.subjects import Origin

_SCHEME = "log:"


def log_path(storage: Path, location: str | None) -> Path:
    """Return the folder of the embedded log that `App(topics=)` names: `"log:PATH"`; else that under the storage.

    An app whose topics are elsewhere keeps its journal there.
    """
    if location is None or not location.startswith(_SCHEME):
        return storage / "log"
    return Path(location.removeprefix(_SCHEME))


class EmbeddedTopics(TopicStore):
    """The topics of an app in an embedded log.

    Args:
        log: the log.
        partitions: the number of partitions of a topic that is created.
        fault: called at each point where a test may crash.

    """

    def __init__(self, log: Log, *, partitions: int, fault: Callable[[str], None]) -> None:
        self.log = log
        self.partitions = partitions
        self.fault = fault

    def source(self, topic: TopicSpec) -> EmbeddedSource:
        """Return a topic as a source."""
        return EmbeddedSource(log=self.log, topic=topic, partitions=self.partitions)

    def sink(self, topic: TopicSpec, *, origins: Sequence[Origin] = ()) -> EmbeddedSink:
        """Return a topic as a sink."""
        return EmbeddedSink(
            log=self.log, topic=topic, partitions=self.partitions, fault=self.fault, origins=tuple(origins)
        )

    def dead_letters(self, topic: str) -> EmbeddedSink:
        """Return the dead-letter topic of a topic."""
        spec = TopicSpec(name=topic, schema=DEAD)
        return EmbeddedSink(log=self.log, topic=spec, partitions=1, fault=self.fault, dead=True)

    def landing(self, topic: TopicSpec, *, feed: str, limit: int, read: Callable[[], int]) -> EmbeddedLanding:
        """Return a topic for a feed to fill."""
        opened = topic_of_source(self.log, topic, self.partitions)
        return EmbeddedLanding(self.log, opened, feed=feed, limit=limit, read=read, fault=self.fault)

    def shared_landing(
        self,
        group: str,
        topics: Mapping[str, TopicSpec],
        *,
        feeds: Mapping[str, str],
        limit: int,
        read: Callable[[str], int],
    ) -> EmbeddedSharedLanding:
        """Return topics for the feeds of a group to fill."""
        opened = {name: topic_of_source(self.log, spec, self.partitions) for name, spec in topics.items()}
        return EmbeddedSharedLanding(self.log, group, opened, feeds=feeds, limit=limit, read=read, fault=self.fault)

    def position(self, topic: str, *, group: str | None) -> bytes | None:
        """Return the position of a feed's last append."""
        return position_of(self.log, topic) if group is None else position_of_group(self.log, group)

    def forget_position(self, topic: str, *, group: str | None) -> None:
        """Let a feed, or the feeds of a group, begin again."""
        path = landing_path(self.log, topic) if group is None else path_of(self.log, group)
        with landing_file.locked(path, topic):
            path.unlink(missing_ok=True)

    def opened(self, topic: TopicSpec) -> OpenTopic:
        """Return a topic that exists."""
        if topic.format is not None:
            return FormattedTopic(self.log, topic, topic.format, self.log.clock)
        return self.log.topic(topic.name)

    def writers(self, topic: str) -> set[str]:
        """Return the names of the apps that have written to a topic, as far as its boundaries are kept."""
        return writers(self.log, topic)

    def published_by(self, app: str) -> dict[str, set[str]]:
        """Return the topics that an app has published to, by the id of its storage."""
        return {marks.id: set(marks.topics) for marks in marks_of(self.log, app)}

    def clean(self, topics: Sequence[str]) -> None:
        """Clean the topics that exist."""
        for name in topics:
            if self.log.has_topic(name):
                self.log.topic(name).clean()

    def close(self) -> None:
        """Close the log."""
        self.log.close()

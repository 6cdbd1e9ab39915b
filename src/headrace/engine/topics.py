"""The topics of an app: which log they live in, and how they are created."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from headrace.base.errors import TopicDiffers
from headrace.connect.embedded import DEAD, ensure_topic, ordered_by_key
from headrace.connect.private import hold, judge_source
from headrace.log import Log
from headrace.plan.nodes import TopicSource
from headrace.plan.sinks import TopicSink

if TYPE_CHECKING:
    from headrace.base.time import Clock
    from headrace.log import Topic
    from headrace.log.privacy.subjects import Origin
    from headrace.plan.plan import Plan


class Topics:
    """Opens the app's log and its topics, creating what is missing."""

    def __init__(self, storage: Path, location: str | None, *, clock: Clock, sync: bool, partitions: int) -> None:
        self.log = Log(log_path(storage, location), clock=clock, fsync=sync)
        self.partitions = partitions
        self.origins: list[Origin] = []  # whose keys open what the app has sealed

    def prepare(self, plan: Plan) -> None:
        """Create the topics of a plan that do not exist, and judge those that do.

        Raises:
            TopicDiffers: a topic has other columns than declared.

        """
        for source in plan.sources():
            if isinstance(source, TopicSource):
                topic = self.of_source(source)
                judge_source(topic, source.schema.names, dict(source.private))
                self.origins += topic.key_owners if source.sealed else []
        for sink in plan.sinks:
            if isinstance(sink, TopicSink):
                self.of_sink(sink)

    def names(self, plan: Plan) -> list[str]:
        """Return the topics that a plan reads and appends to, dead letters included."""
        read = [source.topic for source in plan.sources() if isinstance(source, TopicSource)]
        made = [sink.topic for sink in plan.sinks if isinstance(sink, TopicSink)]
        return [*read, *made, *(f"{name}.dead" for name in (*read, *made))]

    def of_source(self, node: TopicSource) -> Topic:
        """Return the topic that a source reads.

        Raises:
            TopicDiffers: it has other columns, or the rows of one key of a table may be in several of its partitions.

        """
        if node.private and not self.log.has_topic(node.topic):
            self._create_private(node)
        topic = ensure_topic(
            self.log,
            node.topic,
            node.schema,
            partitions=node.partitions or self.partitions,
            key=node.record_key,
            event_time=node.event_time,
            cleanup="compact" if node.upserts else "delete",
        )
        if node.upserts:
            ordered_by_key(topic, node.record_key)
        if node.sent_time is not None and "compact" in topic.cleanup:
            raise TopicDiffers(
                f'the topic "{node.topic}" is compacted, and sent_time needs to know when each record came',
                detail="Compaction puts records together, and keeps when the last of them came.",
                hint="Leave sent_time out, or read a topic that is not compacted.",
            )
        return topic

    def of_sink(self, sink: TopicSink) -> Topic:
        """Return the topic that a sink appends to."""
        topic = ensure_topic(
            self.log,
            sink.topic,
            sink.up.schema,
            partitions=self.partitions,
            key=sink.record_key,
            event_time=None,
            cleanup="compact" if sink.up.is_table and sink.record_key else "delete",
        )
        hold(topic, sink.up.schema.names, sink.up.sealed, self.origins)
        return topic

    def _create_private(self, node: TopicSource) -> None:
        said = {name: subject for name, subject in node.private if subject is not None}
        self.log.create_topic(
            node.topic,
            node.schema,
            partitions=node.partitions or self.partitions,
            key=node.record_key or None,
            event_time=node.event_time,
            private=said or [name for name, _ in node.private],
            cleanup="compact" if node.upserts else "delete",
        )

    def dead(self, topic: str) -> Topic:
        """Return the topic of the dead letters of another."""
        return ensure_topic(self.log, f"{topic}.dead", DEAD, partitions=1, key=(), event_time=None, cleanup="delete")


def log_path(storage: Path, location: str | None) -> Path:
    """Return the folder of the embedded log that a location names."""
    return storage / "log" if location is None else Path(location.removeprefix("log:"))

"""The topics of an app in a Kafka cluster: `App(topics="kafka://host:port")`."""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import WeakSet

from headrace.base.dead_letters import DEAD
from headrace.base.errors import InvalidPlan
from headrace.base.time import SystemClock
from headrace.connect.kafka.landing import KafkaLanding
from headrace.connect.kafka.open_topic import JSON, KafkaOpenTopic
from headrace.connect.kafka.shared_landing import KafkaSharedLanding
from headrace.connect.kafka.sink import KafkaSink
from headrace.connect.kafka.source import KafkaSource
from headrace.connect.kafka.writing.marks import marks_of, read_mark, writers_of
from headrace.connect.kafka.writing.sending import Sender
from headrace.connect.topics import TopicSpec, TopicStore

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from headrace.base.time import Clock
    from headrace.connect.kafka.address import KafkaAddress
    from headrace.log import Log
    from headrace.log.privacy.subjects import Origin


class KafkaTopics(TopicStore):
    """The topics of an app in a cluster.

    Args:
        address: the cluster.
        log: the embedded log that has the app's journal.
        app: the app's name: its consumer group, which shows how far the app has read.
        clock: the clock of the app. With one that a test moves, records that the test sends have its time.
        partitions: the number of partitions of a topic that is created.
        fault: called at each point where a test may crash.

    """

    def __init__(
        self,
        address: KafkaAddress,
        log: Log,
        *,
        app: str | None,
        clock: Clock,
        partitions: int,
        fault: Callable[[str], None],
    ) -> None:
        self.address = address
        self.log = log
        self.app = app
        self.clock = clock
        self.partitions = partitions
        self.fault = fault
        self._sender = Sender(address)
        self._opened: WeakSet[KafkaOpenTopic] = WeakSet()  # who lets go of one closes its connections

    def source(self, topic: TopicSpec) -> KafkaSource:
        """Return a topic as a source.

        Raises:
            InvalidPlan: it has private columns.

        """
        if topic.private:
            raise InvalidPlan(
                f'the topic "{topic.name}" is in Kafka and cannot have private columns: '
                f"{', '.join(name for name, _ in topic.private)}",
                detail="Their keys live in the embedded log.",
                hint='Say App(topics=None) or App(topics="log:PATH").',
            )
        return KafkaSource(
            address=self.address,
            topic=topic.name,
            spec=topic,
            partitions=topic.partitions or self.partitions,
            dated_by="broker" if isinstance(self.clock, SystemClock) else "sender",
            group=self.app,
        )

    def sink(self, topic: TopicSpec, *, origins: Sequence[Origin] = ()) -> KafkaSink:
        """Return a topic as a sink."""
        del origins  # a topic with private columns is refused
        return KafkaSink(
            address=self.address,
            topic=topic,
            format=topic.format or JSON,
            key_format=topic.key_format,
            partitions=topic.partitions or self.partitions,
            fault=self.fault,
        )

    def dead_letters(self, topic: str) -> KafkaSink:
        """Return the dead-letter topic of a topic."""
        spec = TopicSpec(name=topic, schema=DEAD)
        return KafkaSink(address=self.address, topic=spec, format=JSON, partitions=1, fault=self.fault, dead=True)

    def opened(self, topic: TopicSpec) -> KafkaOpenTopic:
        """Return a topic that exists."""
        self._sender.doubt()
        opened = KafkaOpenTopic(self.address, topic, self.clock, sender=self._sender)
        self._opened.add(opened)
        return opened

    def writers(self, topic: str) -> set[str]:
        """Return the names of the apps that have written to a topic."""
        return writers_of(self.address, self.address.cluster_name(topic))

    def published_by(self, app: str) -> dict[str, set[str]]:
        """Return the topics that an app has published to, as the cluster calls them, by the id of its storage."""
        return {mark.writer.partition("/")[2]: set(mark.topics) for mark in marks_of(self.address, app)}

    def landing(self, topic: TopicSpec, *, feed: str, limit: int, read: Callable[[], int]) -> KafkaLanding:
        """Return a topic for a feed to fill."""
        self.source(topic).prepare(clock=self.clock)
        return KafkaLanding(
            self.address,
            topic=topic,
            feed=feed,
            limit=limit,
            read=read,
            fault=self.fault,
            clock=self.clock,
        )

    def shared_landing(
        self,
        group: str,
        topics: Mapping[str, TopicSpec],
        *,
        feeds: Mapping[str, str],
        limit: int,
        read: Callable[[str], int],
    ) -> KafkaSharedLanding:
        """Return topics for the feeds of a group to fill."""
        for spec in topics.values():
            self.source(spec).prepare(clock=self.clock)
        return KafkaSharedLanding(
            self.address,
            group,
            log=self.log,
            topics={name: (spec, feeds[name]) for name, spec in topics.items()},
            limit=limit,
            read=read,
            fault=self.fault,
        )

    def position(self, topic: str, *, group: str | None) -> bytes | None:
        """Return the position of a feed's last append that is committed."""
        mark = read_mark(self.address, f"feed/{group or topic}", complete=False)
        return None if mark is None else mark.position

    def forget_position(self, topic: str, *, group: str | None) -> None:
        """Refuse it: a mark has more than the position."""
        del group
        raise InvalidPlan(
            f'the position of the feed of "{topic}" is in Kafka, where it can be moved, and not be forgotten',
            hint="Say where it is to go on: headrace connect offsets reset FILE TOPIC --to POSITION.",
        )

    def clean(self, topics: Sequence[str]) -> None:
        """Do nothing: brokers clean their topics."""

    def close(self) -> None:
        """Close connections."""
        for opened in list(self._opened):
            opened.close()
        self._sender.close()

"""Topics of a cluster as sinks: the rows of an epoch, for all topics of an app, are one transaction with its mark.

So a reader that reads what is committed sees each epoch whole and once: a crash between the commit and the end of the
transaction, a repeated epoch, and an old process that comes back (its transactional id is fenced) change nothing.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from headrace.base.dead_letters import DEAD
from headrace.base.errors import InvalidPlan
from headrace.connect.kafka.client.administration import cluster
from headrace.connect.kafka.writing.outputs import OutputTopic
from headrace.connect.kafka.writing.writer import KafkaWriter
from headrace.connect.sink import Form, Guarantee, SharedSink, SharedWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from headrace.base.time import Clock
    from headrace.connect.format import Format
    from headrace.connect.kafka.address import KafkaAddress
    from headrace.connect.sink import Sink
    from headrace.connect.topics import TopicSpec

logger = logging.getLogger("headrace.kafka")
TooLarge = Literal["fail", "dead_letter"]
"""What happens to a record above its topic's limit: the app stops, or it is a dead letter."""
_FOREVER = str(2**63 - 1)
CREATED = {"message.timestamp.type": "CreateTime", "message.timestamp.after.max.ms": _FOREVER}
"""Settings of every output that is created: a record's time is its row's event time, of the future, too."""


def no_fault(point: str) -> None:
    """Do not crash."""
    del point


def refuse_private(topic: str, sealed: Collection[str]) -> None:
    """Refuse to write private columns to a topic of a cluster.

    Raises:
        InvalidPlan: there are some.

    """
    if sealed:
        raise InvalidPlan(
            f'private columns cannot be written to the topic "{topic}" of Kafka: {", ".join(sorted(sealed))}',
            detail="Their keys live in the embedded log, so nobody could forget a subject there.",
            hint="Leave them out with .select(…), or write to a topic of the embedded log.",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaSink(SharedSink):
    """A topic of a cluster, or with `dead` its dead-letter topic, which is created with the first dead letter.

    `key_format`: None writes keys as text. `partitions`: of a topic that is created; None: the cluster's default.
    `too_large`: whether a record above the topic's `max.message.bytes` stops the app, or becomes a dead letter.
    """

    address: KafkaAddress
    topic: TopicSpec
    format: Format
    key_format: Format | None = None
    partitions: int | None = None
    too_large: TooLarge = "fail"
    fault: Callable[[str], None] = no_fault
    dead: bool = False

    @property
    def guarantee(self) -> Guarantee:  # type: ignore[override] # an answer that never changes
        """Readers with `isolation.level=read_committed` see an epoch once; others may see rows of aborted ones."""
        return "exactly_once"

    @property
    def form(self) -> Form:
        """A changelog for a table, else rows."""
        return "changelog" if self.topic.changelog else "rows"

    @property
    def takes_before(self) -> bool:
        """Whether its records say what a row was."""
        return self.format.takes_before

    @property
    def name(self) -> str:
        """The topic's name in the cluster."""
        return self.address.cluster_name(f"{self.topic.name}.dead" if self.dead else self.topic.name)

    @property
    def writer_group(self) -> str:
        """The cluster: all topics of an app there share a writer, and a transaction."""
        return f"kafka:{self.address.servers}/{self.address.prefix}"

    def prepare(self, *, clock: Clock) -> None:
        """Create the topic, or check it.

        Raises:
            InvalidPlan: private columns would be written.
            Unavailable: the cluster does not answer.

        """
        del clock
        refuse_private(self.topic.name, self.topic.sealed)
        if not self.dead:
            self.create()
            self._warn()

    def create(self) -> None:
        """Create the topic if it is missing."""
        at = cluster(self.address)
        if not at.describe([self.name]):
            cleanup = "compact" if self.topic.changelog and self.topic.key else "delete"
            # rows keep their event time, which may be long ago: the default retention would remove them at once
            settings = CREATED | {"cleanup.policy": cleanup} | ({} if cleanup == "compact" else {"retention.ms": "-1"})
            at.create(self.name, partitions=self.topic.partitions or self.partitions, settings=settings)

    def _warn(self) -> None:
        policy = cluster(self.address).settings(self.name).get("cleanup.policy", "")
        if self.topic.changelog and "compact" not in policy:
            logger.warning(
                "the changelog %s goes to a topic that is not compacted: once its retention has removed a key's last "
                "record, who reads it as a table misses that row (kafka-configs: cleanup.policy=compact)",
                self.name,
            )
        if not self.topic.changelog and "compact" in policy:
            logger.warning("the topic %s is compacted: of rows with the same key it keeps the last", self.name)

    def output(self) -> OutputTopic:
        """Return what the writer needs of it."""
        return OutputTopic(
            name=self.name,
            dead_name=self.address.cluster_name(f"{self.topic.name}.dead"),
            schema=DEAD if self.dead else self.topic.schema,
            key=() if self.dead else self.topic.key,
            format=self.format,
            key_format=self.key_format,
            too_large=self.too_large,
            ensure=self.create,
        )

    def open_together(self, sinks: Mapping[str, Sink], *, writer: str, clock: Clock) -> SharedWriter:
        """Return the writer of all topics of an app in this cluster.

        Raises:
            InvalidPlan: they have addresses with different options.
            Unavailable: the cluster does not answer.

        """
        for sink in sinks.values():
            if isinstance(sink, KafkaSink) and sink.address.options != self.address.options:
                raise _other_options(self, sink)
        topics = {name: sink.output() for name, sink in sinks.items() if isinstance(sink, KafkaSink)}
        return KafkaWriter(self.address, topics, writer=writer, clock=clock, fault=self.fault)


def _other_options(one: KafkaSink, other: KafkaSink) -> InvalidPlan:
    """Return the error of two outputs that one producer cannot write."""
    differ = sorted({name for name, _ in set(one.address.options) ^ set(other.address.options)})
    return InvalidPlan(
        f'the topics "{one.name}" and "{other.name}" of Kafka at {one.address.servers} have addresses with different '
        f"options: {', '.join(differ)}",
        detail="What an app writes to a cluster is one transaction of one producer.",
        hint="Give the same options in both places.",
    )

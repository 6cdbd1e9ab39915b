"""What a cluster has, and changes of it: topics, their settings and ids, offsets, consumer groups.

Names of topics are those in the cluster here, with the address's prefix.
"""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakSet

from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, ConfigResource, NewPartitions, NewTopic, OffsetSpec, ResourceType

from headrace.base.broker_errors import TopicMissing
from headrace.base.outside import Unavailable
from headrace.base.time import SystemClock
from headrace.connect.kafka.client.failures import Heard, our_errors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from headrace.connect.kafka.address import KafkaAddress

T = TypeVar("T")
CLOCK = SystemClock()
SECONDS = 15.0
"""How long an answer may take; after that the cluster does not answer."""
VISIBLE_SECONDS = 10.0
"""How long a new topic may take until every broker that is asked knows it."""
MISSING_SECONDS = 2.0
"""So long a broker may say that there is no such topic before it is believed: it may hear of a new one late."""
IDLE_SECONDS = 300.0
"""A client that nobody has used for so long is closed when another cluster is opened; the next use opens it again."""
_LOGIN_SECONDS = 0.2
_SHOWN = 3
_GONE = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.UNKNOWN_TOPIC_ID)


@dataclass(frozen=True, slots=True)
class KafkaTopic:
    """A topic of a cluster. `id` is its UUID: a topic that is created again has another. `replication`: its copies."""

    name: str
    id: str
    partitions: int
    replication: int


class Cluster:
    """A cluster, as one user sees it. Threads may share it; `cluster()` returns one for each process and address.

    Every method asks the cluster, and raises `Unavailable` where it does not answer within `SECONDS`, `LoginRefused` or
    `AccessRefused` where the user may not, and `InvalidOption` for an option that librdkafka does not know.
    """

    def __init__(self, address: KafkaAddress) -> None:
        self.address = address
        self._heard = Heard()
        self._lock = threading.Lock()
        self._client: AdminClient | None = None
        self._used = CLOCK.monotonic()
        self._process = os.getpid()
        self._id: str | None = None

    @property
    def id(self) -> str:
        """The cluster's id."""
        if self._id is None:
            found = self._ask("say which cluster it is", lambda admin: admin.describe_cluster(request_timeout=SECONDS))
            self._id = str(found.cluster_id)
        return self._id

    def names(self, *, internal: bool = False) -> list[str]:
        """Return the names of all topics that begin with the address's prefix, in order.

        `internal`: also those that Kafka and Headrace keep for themselves (they begin with `_` after the prefix).
        """
        with our_errors(self.address, doing="list its topics", heard=self._heard):
            found = self._admin().list_topics(timeout=SECONDS).topics
        prefix = self.address.prefix
        mine = (name for name in found if name.startswith(prefix))
        return sorted(name for name in mine if internal or not name.removeprefix(prefix).startswith("_"))

    def describe(self, names: Iterable[str]) -> dict[str, KafkaTopic]:
        """Return topics by their names; those that do not exist are left out."""
        wanted = sorted(set(names))
        if not wanted:
            return {}
        with our_errors(self.address, doing=f"describe {_texts(wanted)}", heard=self._heard):
            futures = self._admin().describe_topics(TopicCollection(wanted), request_timeout=SECONDS)
            found = {name: _unless_gone(future) for name, future in futures.items()}
        return {name: _described(topic) for name, topic in found.items() if topic is not None}

    def topic(self, name: str) -> KafkaTopic:
        """Return a topic.

        Raises:
            TopicMissing: there is none of this name.

        """
        began = CLOCK.monotonic()
        while (found := self.describe([name]).get(name)) is None:
            if CLOCK.monotonic() < began + MISSING_SECONDS:
                CLOCK.sleep(0.05)
                continue
            raise TopicMissing(
                f'Kafka at {self.address.servers} has no topic "{name}"',
                hint="See which it has: headrace topics list --at kafka://HOST:PORT.",
            )
        return found

    def settings(self, name: str) -> dict[str, str]:
        """Return the settings of a topic that are in force, defaults included: `cleanup.policy` and so on."""
        resource = ConfigResource(ResourceType.TOPIC, name)
        found = self._ask(
            f'show the settings of the topic "{name}"',
            lambda admin: admin.describe_configs([resource], request_timeout=SECONDS)[resource],
        )
        return {entry.name: entry.value for entry in found.values() if entry.value is not None}

    def create(self, name: str, *, partitions: int | None = None, settings: Mapping[str, str] | None = None) -> bool:
        """Create a topic, and wait until the cluster shows it. Return False if there is one of this name already.

        Args:
            name: its name.
            partitions: how many; None: as many as the cluster gives by default.
            settings: its settings, `cleanup.policy` and so on.

        Raises:
            TopicRefused: too many copies, an unknown setting, a policy.

        """
        new = NewTopic(
            name,
            num_partitions=partitions or -1,
            replication_factor=self.address.replication or -1,
            config=dict(settings or {}),
        )
        try:
            with our_errors(self.address, doing=f'create the topic "{name}"', heard=self._heard):
                self._create(new)
        except _Exists:
            return False
        self._await(name, partitions=1)
        found = self.describe([name]).get(name)
        self.ends(name, 0 if found is None else found.partitions)  # its leaders serve it once they say this
        return True

    def _create(self, new: NewTopic) -> None:
        try:
            self._admin().create_topics([new], request_timeout=SECONDS, operation_timeout=SECONDS)[new.topic].result()
        except KafkaException as error:
            if error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS:
                raise _Exists from None
            raise

    def delete(self, name: str) -> None:
        """Delete a topic, and wait until the cluster does not show it; one that does not exist is no error."""
        with our_errors(self.address, doing=f'delete the topic "{name}"', heard=self._heard):
            _unless_gone(
                self._admin().delete_topics([name], request_timeout=SECONDS, operation_timeout=SECONDS)[name],
            )
        self._await(name, partitions=0)

    def add_partitions(self, name: str, total: int) -> None:
        """Give a topic more partitions, `total` in all, and wait until the cluster shows them."""
        self._ask(
            f'add partitions to the topic "{name}"',
            lambda admin: admin.create_partitions([NewPartitions(name, total)], request_timeout=SECONDS)[name],
        )
        self._await(name, partitions=total)

    def offsets(
        self, partitions: Iterable[tuple[str, int]], *, at: OffsetSpec, committed: bool = True
    ) -> dict[tuple[str, int], int]:
        """Return an offset of each partition, -1 where there is none.

        Args:
            partitions: topics and numbers of partitions.
            at: `OffsetSpec.earliest()`, `.latest()`, or `.for_timestamp(milliseconds)`.
            committed: whether the latest is the end of what is committed, or of what is written.

        """
        isolation = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
        wanted = {TopicPartition(topic, number): at for topic, number in partitions}
        if not wanted:
            return {}

        def found(admin: AdminClient) -> dict[tuple[str, int], int]:
            futures = admin.list_offsets(wanted, isolation_level=isolation, request_timeout=SECONDS)
            try:
                return {(part.topic, part.partition): future.result().offset for part, future in futures.items()}
            except KafkaException as error:
                if error.args[0].code() == KafkaError._NOENT:  # noqa: SLF001 -- so librdkafka says that it knows no leader
                    raise KafkaException(KafkaError(KafkaError._UNKNOWN_PARTITION)) from error  # noqa: SLF001
                raise

        return self._patiently("say its offsets", found)

    def ends(self, name: str, partitions: int, *, committed: bool = True) -> dict[int, int]:
        """Return the end of each partition of a topic: the offset that the next record gets."""
        every = [(name, number) for number in range(partitions)]
        return {
            number: end for (_, number), end in self.offsets(every, at=OffsetSpec.latest(), committed=committed).items()
        }

    def groups(self) -> list[str]:
        """Return the names of the consumer groups, in order."""
        found = self._ask("list its consumer groups", lambda admin: admin.list_consumer_groups(request_timeout=SECONDS))
        return sorted(group.group_id for group in found.valid)

    def group_offsets(self, group: str) -> dict[tuple[str, int], int]:
        """Return how far a consumer group has read, by topic and partition; empty where there is no such group."""
        found = self._ask(
            f'show the offsets of the group "{group}"',
            lambda admin: admin.list_consumer_group_offsets(
                [ConsumerGroupTopicPartitions(group)], request_timeout=SECONDS
            )[group],
        )
        return {(at.topic, at.partition): at.offset for at in found.topic_partitions if at.offset >= 0}

    def set_group_offsets(self, group: str, offsets: Mapping[tuple[str, int], int]) -> None:
        """Store how far a consumer group has read, as its lag is shown; nobody may be subscribed with it."""
        parts = [TopicPartition(topic, number, offset) for (topic, number), offset in offsets.items()]

        def stored(admin: AdminClient) -> None:
            wanted = [ConsumerGroupTopicPartitions(group, parts)]
            answer = admin.alter_consumer_group_offsets(wanted, request_timeout=SECONDS)[group].result()
            for part in answer.topic_partitions:
                if part.error is not None:
                    raise KafkaException(part.error)

        self._patiently(f'store the offsets of the group "{group}"', stored)

    def _await(self, name: str, *, partitions: int) -> None:
        """Wait until the cluster shows so many partitions of a topic: brokers hear of a change one after another.

        0: until it does not show the topic.
        """
        until = CLOCK.monotonic() + VISIBLE_SECONDS
        while not self._shows(name, partitions) and CLOCK.monotonic() < until:
            CLOCK.sleep(0.02)

    def _shows(self, name: str, partitions: int) -> bool:
        found = self.describe([name]).get(name)
        return found is None if not partitions else found is not None and found.partitions >= partitions

    def _ask(self, doing: str, call: Callable[[AdminClient], Any]) -> Any:
        """Return the result of the future that a call of the client returns."""
        return self._patiently(doing, lambda admin: call(admin).result())

    def _patiently(self, doing: str, call: Callable[[AdminClient], T]) -> T:
        """Return what a call returns; while leaders change it is repeated, and while a new topic may not be known."""
        began = CLOCK.monotonic()
        while True:
            try:
                with our_errors(self.address, doing=doing, heard=self._heard):
                    return call(self._admin())
            except Unavailable as error:
                changes = isinstance(error.__cause__, KafkaException) and error.__cause__.args[0].code() > 0
                if not changes or CLOCK.monotonic() > began + VISIBLE_SECONDS:
                    raise
            except TopicMissing:  # of a broker that may not have heard of the topic yet
                if CLOCK.monotonic() > began + MISSING_SECONDS:
                    raise
            CLOCK.sleep(0.05)

    def rest(self) -> None:
        """Close the client, unless it was used lately, or is that of the process which this one was forked from."""
        if os.getpid() != self._process:
            return
        if not self._lock.acquire(blocking=False):
            return  # it is being opened
        try:
            if CLOCK.monotonic() - self._used >= IDLE_SECONDS:
                self._client = self._heard.client = None
        finally:
            self._lock.release()

    def _admin(self) -> AdminClient:
        with self._lock:
            self._used = CLOCK.monotonic()
            if self._client is None:
                with our_errors(self.address, doing="open a connection", heard=self._heard):
                    options: dict[str, Any] = self.address.configuration() | self._heard.options()
                    self._client = self._heard.client = AdminClient(options)
                    if "security.protocol" in options:
                        self._log_in(self._client)
            return self._client

    def _log_in(self, client: AdminClient) -> None:
        """Wait until the cluster answers, but no longer than until it refuses the login.

        librdkafka goes on trying after that, so that the first request would only time out.
        """
        until = CLOCK.monotonic() + SECONDS
        while True:
            try:
                client.describe_cluster(request_timeout=SECONDS).result(timeout=_LOGIN_SECONDS)
            except TimeoutError:
                pass
            except KafkaException:
                self._client = None
                raise
            else:
                return
            self._heard.listen()
            if self._heard.worst is not None or CLOCK.monotonic() > until:
                self._client = None
                raise KafkaException(self._heard.worst or KafkaError(KafkaError._TIMED_OUT))  # noqa: SLF001 -- its name


class _Exists(Exception):
    """The topic exists already."""


_OPENED: WeakSet[Cluster] = WeakSet()
_opening = threading.Lock()


def cluster(address: KafkaAddress) -> Cluster:
    """Return the cluster at an address: the same for all callers in this process."""
    with _opening:
        return _cluster(address, os.getpid())


@lru_cache(maxsize=64)
def _cluster(address: KafkaAddress, process: int) -> Cluster:
    """Return a cluster for one process: connections do not survive a fork."""
    del process
    for other in list(_OPENED):
        other.rest()
    opened = Cluster(address)
    _OPENED.add(opened)
    return opened


def _unless_gone(future: Any) -> Any:
    """Return a future's result; None where there is no such topic."""
    try:
        return future.result()
    except KafkaException as error:
        if error.args[0].code() in _GONE:
            return None
        raise


def _described(topic: Any) -> KafkaTopic:
    copies = max((len(part.replicas) for part in topic.partitions), default=0)
    return KafkaTopic(topic.name, str(topic.topic_id), len(topic.partitions), copies)


def _texts(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"the topic{'' if len(names) == 1 else 's'} " + ", ".join(f'"{name}"' for name in names[:_SHOWN]) + more

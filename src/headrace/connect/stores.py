"""The store of an app's topics, by what `App(topics=)` names: the embedded log, or a cluster of Kafka."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.base.errors import InvalidPlan
from headrace.connect.embedded import EmbeddedTopics
from headrace.connect.kafka.address import KafkaAddress, is_address

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.base.time import Clock
    from headrace.connect.topics import TopicStore
    from headrace.log import Log


def is_elsewhere(location: str | None) -> bool:
    """Whether the topics are not in an embedded log."""
    return is_address(location)


def apart(location: str, prefix: str) -> str:
    """Return the address of a cluster with one more prefix of topics' names."""
    address = KafkaAddress.parse(location)
    return replace(address, prefix=f"{address.prefix}{prefix}").text()


def open_topics(
    location: str | None,
    log: Log,
    *,
    app: str | None = None,
    clock: Clock,
    partitions: int,
    fault: Callable[[str], None],
) -> TopicStore:
    """Return the store that `App(topics=)` names.

    Args:
        location: None, `"log:PATH"` or `"kafka://host:port"`.
        log: the embedded log of the app.
        app: the app's name, under which a broker shows how far it has read; None: nothing is shown.
        clock: the clock of the app.
        partitions: the number of partitions of a topic that is created.
        fault: called at each point where a test may crash.

    """
    if location is None or not is_address(location):
        return EmbeddedTopics(log, partitions=partitions, fault=fault)
    address = KafkaAddress.parse(location)
    try:
        from headrace.connect.kafka.topics import KafkaTopics
    except ModuleNotFoundError as error:
        raise InvalidPlan(
            f"topics={str(address)!r} needs the package {error.name}, which is not installed",
            hint="pip install headrace[kafka]",
        ) from error
    return KafkaTopics(address, log, app=app, clock=clock, partitions=partitions, fault=fault)

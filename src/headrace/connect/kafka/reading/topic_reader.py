"""Opens what reads a topic: the fast reader where it can serve an address, else librdkafka."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Literal, Protocol

from headrace.base.errors import InvalidPlan
from headrace.connect.kafka.client.settings import uncovered
from headrace.connect.kafka.reading.fallback import LibrdkafkaTopic

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from headrace.connect.kafka.address import KafkaAddress

logger = logging.getLogger("headrace.kafka")

ReaderName = Literal["fast", "librdkafka"]


class TopicReader(Protocol):
    """What reads a topic: by record batches (`fetching`), or by librdkafka (`fallback`)."""

    def exists(self, *, again: bool = False) -> bool:
        """Whether the topic exists."""
        ...

    def offsets(self, *times: int) -> list[dict[int, int]]:
        """Return offsets by partition for each time."""
        ...

    def read(self, partition: int, start: int, end: int, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the records of a range."""
        ...

    def close(self) -> None:
        """Close connections."""
        ...


def reader_of(address: KafkaAddress, name: str, *, committed: bool, wanted: ReaderName | None = None) -> TopicReader:
    """Return a reader of a topic; it connects when it is first used.

    Args:
        address: the cluster.
        name: the topic's name in the cluster.
        committed: whether only what is committed is read.
        wanted: which reader; None chooses.

    Raises:
        InvalidPlan: the fast one is wanted, and cannot serve the address.

    """
    if wanted == "librdkafka":
        return LibrdkafkaTopic(address, name, committed=committed)
    why = uncovered(address.configuration())
    if why is None:
        try:
            return _fast(address, name, committed=committed)
        except ImportError as error:  # numba and cramjam have no wheel for every platform
            why = f"this Python: {error}"
    if wanted == "fast":
        raise InvalidPlan(
            f'reader="fast" cannot read the topic "{name}": it does not know {why}',
            hint='Leave reader= out, or say reader="librdkafka".',
        )
    logger.info('the topic "%s" is read by librdkafka: the fast reader does not know %s', name, why)
    return LibrdkafkaTopic(address, name, committed=committed)


def _fast(address: KafkaAddress, name: str, *, committed: bool) -> TopicReader:
    from headrace.connect.kafka.client.brokers import Brokers
    from headrace.connect.kafka.reading.fetching import FastTopic

    return FastTopic(Brokers(address), name, committed)

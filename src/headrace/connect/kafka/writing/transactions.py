"""Transactions of a producer: an epoch's records become visible together, to readers that read what is committed.

There are two producers with the same guarantee. The fast one (`wire_transactions`) builds record batches in compiled
code and speaks Kafka's protocol itself; librdkafka serves addresses with options that the fast one does not have.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from headrace.connect.kafka.writing.records import Records

TIMEOUT_MS, LONGEST_TIMEOUT_MS = 60_000, 900_000
"""After so long a broker aborts a transaction; the second is the most that brokers allow by default."""

SETTLE_SECONDS = 2.0
BATCH_BYTES = 1_000_000


Spans = Mapping[str, Mapping[int, range]]
"""By topic and partition, the offsets from a transaction's first record to the one after its last."""


class TransactionFenced(Exception):
    """The broker refuses this producer: a newer one has its id, or a transaction of its own lasted too long."""


class Transactions(Protocol):
    """Transactions of one transactional id, one after another. Opening it fences an older producer of the same id.

    What the older one has left unfinished is then finished or aborted. Every method raises `TransactionFenced` where a
    newer one is open, and `Unavailable` where the cluster does not answer: the outcome of `commit` is then unknown, and
    a new producer finds out by reading what is committed.
    """

    def begin(self, *, also: tuple[str, int]) -> None:
        """Begin a transaction; the one before must be over. `also`: a partition that it will write to in any case."""
        ...

    def send(self, topic: str, records: Records, partitions: npt.NDArray[np.int32], *, most: int = BATCH_BYTES) -> None:
        """Send records in their order; they are stored once `spans` or `commit` returns.

        Args:
            topic: the topic's name in the cluster.
            records: the records.
            partitions: the partition of each record.
            most: no batch of several records has more bytes: brokers compare those with the topic's limit.

        """
        ...

    def spans(self) -> Spans:
        """Wait until all records are stored, and return which offsets they have, by topic and partition."""
        ...

    def commit(self) -> None:
        """Commit: all records become visible. `Unavailable`: they may be."""
        ...

    def settle(self, spans: Spans) -> None:
        """Return when the records of the last commit, of these spans, can be read: markers come a moment later.

        It gives up after `SETTLE_SECONDS`, without an error: they are committed, and will be.
        """
        ...

    def abort(self) -> None:
        """Abort: none of the records becomes visible, and the next transaction can begin. If it raises, `close`."""
        ...

    def close(self) -> None:
        """Let go of the connections; what is unfinished the next producer of this id aborts, or the broker."""
        ...

"""What a worker gets of a queue."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace.log.queues.leases import Lease


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A record that is leased to a worker.

    Attributes:
        value: its columns.
        topic, partition, offset: where it is.
        time: its event time, in microseconds since 1970.
        deleted: whether it is a tombstone.
        deliveries: how often it was handed out, this time included; more than 1: somebody may have worked on it.

    """

    value: dict[str, Any]
    topic: str
    partition: int
    offset: int
    time: int
    deleted: bool
    deliveries: int
    lease: Lease = field(repr=False, compare=False)

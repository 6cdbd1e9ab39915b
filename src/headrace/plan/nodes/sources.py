"""Steps that no step feeds: where rows enter an app."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from headrace.base.time import show_duration
from headrace.plan.nodes.node import Description, Node


@dataclass(frozen=True, eq=False, kw_only=True)
class TopicSource(Node):
    """The records of a topic, from its start. Times are microseconds.

    `upserts`: its records are upserts and deletes of rows by `record_key`, for the `Latest` below it. `_weight` is 1
    for an upsert and -1 for a delete.
    """

    verb = "source"

    topic: str
    location: str | None
    record_key: tuple[str, ...]
    event_time: str | None
    out_of_order: int
    idle_after: int | None
    format: str | None
    on_error: Literal["dead_letter", "fail"]
    partitions: int | None
    upserts: bool = False
    sent_time: str | None = None  # the column with the time of sending by the device's clock; it corrects `event_time`
    private: tuple[tuple[str, str | None], ...] = ()  # each with the column of its subject, or None

    @property
    def sealed(self) -> frozenset[str]:
        """The private columns of the topic."""
        return frozenset(name for name, _ in self.private)

    @property
    def not_null(self) -> frozenset[str]:
        """The key of a topic that is read as a table: records without it are dead letters."""
        return frozenset(self.record_key if self.upserts else ())

    @property
    def event_time_column(self) -> str | None:
        """The one that was named."""
        return self.event_time

    def describe(self) -> Description:
        """Return the topic, and what is known of its times."""
        private = f", private: {', '.join(sorted(self.sealed))}" if self.sealed else ""
        upserts = ", upserts and deletes" if self.upserts else ""
        corrected = f" corrected by {self.sent_time}" if self.sent_time else ""
        times = _times(self.event_time, corrected, self.out_of_order)
        return Description(detail=f"topic {self.topic}{upserts}{private}{times}")


@dataclass(frozen=True, eq=False, kw_only=True)
class ReadSource(Node):
    """The rows of any streaming source that Spark can read: a format with options, or a streaming DataFrame."""

    verb = "read"

    label: str
    format: str | None
    options: tuple[tuple[str, str], ...]
    frame: Any
    event_time: str | None
    out_of_order: int
    idle_after: int | None

    @property
    def event_time_column(self) -> str | None:
        """The one that was named."""
        return self.event_time

    def describe(self) -> Description:
        """Return the format, and what is known of its times."""
        return Description(detail=f"Spark source {self.label}" + _times(self.event_time, "", self.out_of_order))


def _times(event_time: str | None, corrected: str, out_of_order: int) -> str:
    at = event_time or "of the log"
    return f", event time {at}{corrected}, out of order {show_duration(out_of_order)}"

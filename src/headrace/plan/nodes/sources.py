"""Steps that no step feeds: where rows enter an app."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from headrace.base.text import counted
from headrace.base.time import show_duration
from headrace.plan.nodes.node import Description, Node

if TYPE_CHECKING:
    from headrace.expressions import Scalar


@dataclass(frozen=True, eq=False, kw_only=True)
class Source(Node):
    """Where rows enter. Times are microseconds.

    `topic`: the topic that is read, None where none is. `connector`: what `source=` named; None: the topic is the app's
    own. A connector's source is read itself; a feed lands records in the topic. `upserts`: rows are changes of rows by
    `record_key`, for the `Latest` below: `_weight` is 1 for an upsert and -1 for a delete. `on_error` None: records
    that cannot be read are dead letters, rows that cannot be computed stop the app. `options` and `frame`: what Spark
    reads.
    """

    verb = "source"
    read_by_spark: ClassVar[bool] = False

    event_time: str | None
    out_of_order: int
    idle_after: int | None
    topic: str | None = None
    connector: Any = None
    record_key: tuple[str, ...] = ()
    format: Any = None  # its name, or the format itself
    key_format: Any = None
    on_error: Literal["dead_letter", "fail"] | None = None
    partitions: int | None = None
    upserts: bool = False
    timing: Scalar | None = None  # computes the event time of each record, where no column is it
    sent_time: str | None = None  # when the device sent it, by its own clock: what `event_time` is corrected by
    options: tuple[tuple[str, str], ...] = ()
    frame: Any = None
    private: tuple[tuple[str, str | None], ...] = ()  # each with the column of its subject, where that was said

    @property
    @abstractmethod
    def label(self) -> str:
        """What it is called where the step has no name."""

    @property
    def replayable(self) -> Any:
        """The connector, if it can be read again."""
        return self.connector if hasattr(self.connector, "open") else None

    @property
    def arrival_inputs(self) -> tuple[Node, ...] | None:
        """No step is above it; its records say when they were stored, unless their source does not know."""
        return () if self.dates_records else None

    @property
    def dates_records(self) -> bool:
        """Whether it is known when a record was stored: in topics, and where a connector's source says so."""
        return not self.read_by_spark and (self.replayable is None or getattr(self.connector, "dates_records", False))

    @property
    def feed(self) -> Any:
        """The connector, if it lands records in the topic."""
        return self.connector if hasattr(self.connector, "run") else None

    @property
    def sealed(self) -> frozenset[str]:
        """The private columns of the topic."""
        return frozenset(name for name, _ in self.private)

    @property
    def not_null(self) -> frozenset[str]:
        """The key of what is read as a table: records without it are dead letters."""
        return frozenset(self.record_key if self.upserts else ())

    @property
    def time_text(self) -> str | None:
        """What was given as event time: a column or an expression; None: the time of the log."""
        return self.timing.text if self.timing is not None else self.event_time

    @property
    def event_time_column(self) -> str | None:
        """The one that was named."""
        return self.event_time


@dataclass(frozen=True, eq=False, kw_only=True)
class TopicSource(Source):
    """The records of a topic, or of a connector's source, from their start."""

    topic: str

    @property
    def label(self) -> str:
        """The topic."""
        return self.topic

    def describe(self) -> Description:
        """Return the topic, and what is known of its times."""
        private = f", private: {', '.join(sorted(self.sealed))}" if self.sealed else ""
        upserts = ", upserts and deletes" if self.upserts else ""
        corrected = f" corrected by {self.sent_time}" if self.sent_time else ""
        times = _times(self.time_text, corrected, self.out_of_order)
        return Description(detail=f"topic {self.topic}{upserts}{private}{times}")


@dataclass(frozen=True, eq=False, kw_only=True)
class Values(TopicSource):
    """The `count` rows that a query has itself: a table that is complete from the first epoch on, and never changes."""

    verb = "values"

    count: int

    @property
    def is_table(self) -> bool:
        """Yes: a bag, in which the whole row is its identity."""
        return True

    @property
    def delta_is_net(self) -> bool:
        """Yes: rows are only added."""
        return True

    @property
    def is_constant(self) -> bool:
        """Yes."""
        return True

    def describe(self) -> Description:
        """Return how many rows there are."""
        return Description(detail=f"a table of {counted(self.count, 'constant row')}")


@dataclass(frozen=True, eq=False, kw_only=True)
class ReadSource(Source):
    """The rows of any streaming source that Spark can read: a format with options, or a streaming DataFrame."""

    verb = "read"
    read_by_spark: ClassVar[bool] = True

    source_name: str

    @property
    def label(self) -> str:
        """The name of the format, or "frame"."""
        return self.source_name

    def describe(self) -> Description:
        """Return the format, and what is known of its times."""
        return Description(detail=f"Spark source {self.label}" + _times(self.event_time, "", self.out_of_order))


def _times(event_time: str | None, corrected: str, out_of_order: int) -> str:
    at = event_time or "of the log"
    return f", event time {at}{corrected}, out of order {show_duration(out_of_order)}"

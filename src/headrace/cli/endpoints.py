"""What `headrace topics` reads records from and appends them to: a topic of a log, or of a Kafka cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa


class NamedTopic(Protocol):
    """A topic with its columns: of a log, or of a Kafka cluster."""

    @property
    def name(self) -> str:
        """Its name."""
        ...

    @property
    def schema(self) -> pa.Schema:
        """Its columns."""
        ...

    @property
    def key(self) -> Sequence[str]:
        """The columns of its key."""
        ...


class ReadableTopic(NamedTopic, Protocol):
    """A topic whose records can be printed: of a log, or of a Kafka cluster."""

    def start_offsets(self) -> Mapping[int, int]:
        """Return the first offset of each partition."""
        ...

    def end_offsets(self) -> Mapping[int, int]:
        """Return the offset after the last record of each partition."""
        ...

    def offsets_at(self, time: object) -> Mapping[int, int]:
        """Return the first offset of each partition at a time."""
        ...

    def batches(
        self, partition: int, start: int, end: int, *, columns: Sequence[str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield records of a partition."""
        ...


class WritableTopic(NamedTopic, Protocol):
    """A topic that rows can be appended to: of a log, or of a Kafka cluster."""

    @property
    def event_time(self) -> str | None:
        """The column that must have a value."""
        ...

    def append(self, rows: list[dict[str, Any]], /) -> object:
        """Append rows."""
        ...

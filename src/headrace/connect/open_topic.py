"""A topic in rows of its columns, wherever it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa

    from headrace.log.rows import Rows


class OpenTopic(Protocol):
    """A topic in rows of its columns: for the test driver, the command line, and changelogs that are brought level."""

    @property
    def schema(self) -> pa.Schema:
        """Its columns."""
        ...

    @property
    def cleanup(self) -> str:
        """`"delete"`, `"compact"` (then each record needs a key), or both."""
        ...

    def append(self, rows: Rows, *, partition: int | None = None) -> object:
        """Append rows; a tombstone has `_deleted`.

        Raises:
            InvalidRows: a row does not fit; nothing is appended.

        """
        ...

    def start_offsets(self) -> Mapping[int, int]:
        """Return the first offset of each partition."""
        ...

    def end_offsets(self) -> Mapping[int, int]:
        """Return the offset after the last of each partition."""
        ...

    def batches(
        self, partition: int, start: int, end: int, *, columns: Sequence[str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the records `[start, end)` of a partition, in order, with columns of the schema or `_deleted`."""
        ...

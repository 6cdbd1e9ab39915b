"""Record formats: bytes or text of the outside to columns and back, in columns.

A format never raises for a record that it cannot read: it says which one and why, and the others go on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    import pyarrow as pa


class Formatted(NamedTuple):
    """What a format made of a batch: the good rows, which they were, and what is wrong with the others."""

    rows: pa.RecordBatch
    """The good rows, typed as asked for, in order."""
    good: pa.Array
    """For each record of the input whether it is among the rows (bool)."""
    reasons: pa.Array
    """For each record of the input why it is not (string, else null)."""


class Format(Protocol):
    """A way in which records are written."""

    @property
    def name(self) -> str:
        """What `format=` says."""
        ...

    def decode(self, values: pa.Array, schema: pa.Schema) -> Formatted:
        """Return records as rows.

        Args:
            values: one record each, string or binary; null is no record and is not good.
            schema: the columns wanted. A field that a record does not have is null; one that is not asked for is left
                out.

        """
        ...

    def encode(self, rows: pa.RecordBatch) -> pa.Array:
        """Return each row as one record, string or binary."""
        ...

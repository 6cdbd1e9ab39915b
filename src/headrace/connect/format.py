"""Record formats: from records as bytes or text to columns and back, a batch at a time.

A format never raises for a record that it cannot read: it returns which one and why, and decodes the others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    import pyarrow as pa


class Formatted(NamedTuple):
    """A decoded batch: the good rows, which records they are, and why the others are not good."""

    rows: pa.RecordBatch
    """The good rows in order, with the columns and types of the schema."""
    good: pa.Array
    """For each input record, whether it is good (bool)."""
    reasons: pa.Array
    """For each input record, why it is not good (string); null if it is."""


class Format(Protocol):
    """A way in which records are written."""

    @property
    def name(self) -> str:
        """The value of `format=`."""
        ...

    def decode(self, values: pa.Array, schema: pa.Schema) -> Formatted:
        """Return records as rows.

        Args:
            values: one record each, string or binary; null is no record and is not good.
            schema: the columns of the result. A field that a record does not have is null; fields that are not in the
                schema are ignored.

        """
        ...

    def encode(self, rows: pa.RecordBatch) -> pa.Array:
        """Return each row as one record, string or binary."""
        ...

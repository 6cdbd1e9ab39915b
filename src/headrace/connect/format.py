"""Record formats: from records as bytes or text to columns and back, a batch at a time.

A format never raises for a record that it cannot read: it returns which one and why, and decodes the others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, NamedTuple, Protocol

import pyarrow as pa

from headrace.connect.encoding import present_alone

if TYPE_CHECKING:
    from collections.abc import Sequence

KEY, VALUE, HEADERS = "_key", "value", "_headers"
"""The columns of a record that was not decoded: key and value are binary, or string where a topic has text."""
HEADERS_TYPE = pa.list_(pa.struct([("name", pa.string()), ("value", pa.binary())]))


class Formatted(NamedTuple):
    """A decoded batch: the good rows, which records they are, and why the others are not good."""

    rows: pa.RecordBatch
    """The good rows in order, with the columns and types of the schema."""
    good: pa.Array
    """For each input record, whether it is good (bool)."""
    reasons: pa.Array
    """For each input record, why it is not good (string); null if it is."""
    deleted: pa.Array | None = None
    """For each row, whether it is a deletion of the row with its key (bool); None: none is."""
    records: pa.Array | None = None
    """For each row, the number of its input record (int64), ascending; None: each good record is one row."""


class Encoded(NamedTuple):
    """Records of rows: `value`, perhaps `_headers`."""

    records: pa.RecordBatch
    rows: pa.Array | None = None
    """For each record, the number of the row whose key and time it has (int64); None: each row is one record."""
    places: pa.Array | None = None
    """For each row, the number of the record that says what it is (int64)."""


class Format(Protocol):
    """A way in which records are written: frozen and picklable; it is part of the plan.

    Subclass it to inherit what is optional: `identity`, `columns`, `takes_before`, `bound`, `stored_type`,
    `decode_records`, `encode_records` and `encode_changes`.
    """

    columns: ClassVar[Sequence[str]] = (VALUE,)
    """Which columns of a record it reads: of `_key`, `value` and `_headers`."""
    takes_before: ClassVar[bool] = False
    """Whether a record of a table's change says what the row was: `_before` of a changelog."""

    @property
    def name(self) -> str:
        """The value of `format=`."""
        ...

    @property
    def identity(self) -> str:
        """What it means, for `headrace diff`: the name, and options that change what is read; no secrets."""
        return self.name

    def bound(self, topic: str, *, key: bool = False) -> Format:
        """Return the format of a topic's records, or of their keys: a sink asks for it before it writes."""
        del topic, key
        return self

    def stored_type(self, schema: pa.Schema) -> pa.DataType:
        """Return the type of a column with records of these columns: string where all are UTF-8, else binary."""
        del schema
        return pa.string()

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

    def decode_records(self, records: pa.RecordBatch, schema: pa.Schema) -> Formatted:
        """Return records as rows, of formats that also read keys or headers: `records` has `columns`."""
        return self.decode(records.column(VALUE), schema)

    def encode_records(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return each row as one record, of formats that also write headers: `value`, perhaps `_headers`."""
        return pa.record_batch({VALUE: self.encode(rows)})

    def encode_changes(self, rows: pa.RecordBatch, names: Sequence[str], keys: pa.Array) -> Encoded:
        """Return records of rows, of formats that make several of one row, or one of several.

        Args:
            rows: the columns of a value, perhaps `_deleted` and `_before`.
            names: the columns of a value.
            keys: the record's key of each row (binary).

        """
        del keys
        return Encoded(present_alone(rows, names, self.encode_records))

"""Records with a format become rows: those of a broker, which are bytes, and those of formatted topics of a log."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.connect.format import HEADERS, HEADERS_TYPE, KEY, VALUE, Formatted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headrace.connect.format import Format


class Rows(NamedTuple):
    """Records as rows: `at` has for each row the number of its record, ascending; `bad` and `reasons` the others.

    `whole`: each record is a row.
    """

    rows: pa.Table
    at: pa.Array
    bad: pa.Array
    reasons: pa.Array
    whole: bool

    def without(self, unread: Mapping[int, str]) -> Rows:
        """Return all but some rows, by their numbers; the values say why their records cannot be read."""
        if not unread:
            return self
        places = pa.array(unread, pa.int64())
        reasons = dict(zip(self.bad.to_pylist(), self.reasons.to_pylist(), strict=True))
        reasons |= dict(zip(self.at.take(places).to_pylist(), unread.values(), strict=True))
        bad = sorted(reasons)
        kept = np.ones(len(self.rows), bool)
        kept[places] = False
        good = pa.array(kept)
        texts = pa.array([reasons[record] for record in bad], pa.string())
        return Rows(self.rows.filter(good), self.at.filter(good), pa.array(bad, pa.int64()), texts, whole=False)


class Undecoded(NamedTuple):
    """How records are read: the columns they have, the format of values and keys, whether one may delete a row.

    `key_format`: that of the column `_key`; None where records have the key's columns themselves, or no key.
    """

    schema: pa.Schema
    key: Sequence[str]
    format: Format
    key_format: Format | None
    upserts: bool

    def rows(self, records: pa.Table) -> Rows:
        """Return records as rows with the schema's columns, of upserts also with `_deleted`.

        The key's columns are read from the value; where it has none, and of tombstones, from the record's key. A
        tombstone is a record with `_deleted`; where records have no such column, one without a value.
        """
        numbers = pa.array(np.arange(len(records)))
        tombstone = _tombstone(records) if self.upserts else None
        gone = numbers.slice(0, 0) if tombstone is None else numbers.filter(tombstone)
        present = numbers if not len(gone) else numbers.filter(pc.invert(tombstone))
        read = pa.table({name: _column(records, name) for name in self.format.columns})
        decoded = self.format.decode_records(_batch(read if not len(gone) else read.take(present)), self.schema)
        at = present.filter(decoded.good) if decoded.records is None else present.take(decoded.records)
        bad = pc.invert(decoded.good)
        rows = pa.Table.from_batches([decoded.rows])
        if self.upserts:
            deleted = pa.repeat(pa.scalar(value=False), len(rows)) if decoded.deleted is None else decoded.deleted
            rows, at = _with_tombstones(rows.append_column("_deleted", deleted), at, gone)
        whole = decoded.records is None and not bad.true_count
        rows, unread = self._with_keys(rows, records, at)
        return Rows(rows, at, present.filter(bad), decoded.reasons.filter(bad), whole).without(unread)

    def _with_keys(self, rows: pa.Table, records: pa.Table, at: pa.Array) -> tuple[pa.Table, dict[int, str]]:
        """Fill the key's columns from the records' keys, where the values have none.

        Also return by their numbers the rows that have no key, since that of their record cannot be read, and why.
        """
        if not self.key:
            return rows, {}
        absent = [np.asarray(pc.is_null(rows.column(name)).combine_chunks()) for name in self.key]
        needed = np.flatnonzero(np.logical_or.reduce(absent))
        keys = self._keys(records, at.take(pa.array(needed))) if needed.size else None
        if keys is None:
            return rows, {}
        from_key = np.full(len(rows), -1, np.int64)
        places = needed[np.asarray(keys.good)]
        from_key[places] = np.arange(places.size)
        take = pa.array(from_key, mask=from_key < 0)
        for name in self.key:
            index, field = rows.schema.get_field_index(name), self.schema.field(name)
            filled = pc.coalesce(_one(rows.column(name)), keys.rows.column(name).take(take))
            rows = rows.set_column(index, field, filled)
        wrong = ~np.asarray(keys.good) & np.logical_and.reduce(absent)[needed]
        if self.key_format is None or not wrong.any():
            return rows, {}
        wrong &= np.asarray(_one(records.column(KEY).take(at.take(pa.array(needed)))).is_valid())
        found = np.flatnonzero(wrong)
        reasons = keys.reasons.take(pa.array(found)).to_pylist()
        whys = (f"its key cannot be read: {reason}" for reason in reasons)
        return rows, dict(zip(needed[found].tolist(), whys, strict=True))

    def _keys(self, records: pa.Table, at: pa.Array) -> Formatted | None:
        """Return the columns of the keys of some records; None where records have no keys."""
        schema = pa.schema([self.schema.field(name) for name in self.key])
        if self.key_format is not None:
            return self.key_format.decode(_one(records.column(KEY).take(at)), schema)
        if not set(self.key) <= set(records.column_names):
            return None
        rows = _batch(records.select(list(self.key)).take(at))
        return Formatted(rows, pa.repeat(pa.scalar(value=True), len(rows)), pa.nulls(len(rows), pa.string()))


def _tombstone(records: pa.Table) -> pa.Array:
    return _one(records.column("_deleted") if "_deleted" in records.column_names else pc.is_null(records.column(VALUE)))


def _column(records: pa.Table, name: str) -> pa.ChunkedArray | pa.Array:
    """Return a column that a format reads; topics of a log have no keys as bytes, and no headers of a format."""
    if name in records.column_names:
        return records.column(name)
    return pa.nulls(len(records), HEADERS_TYPE if name == HEADERS else pa.binary())


def _with_tombstones(rows: pa.Table, at: pa.Array, gone: pa.Array) -> tuple[pa.Table, pa.Array]:
    """Put rows without values among others, in the order of their records."""
    if not len(gone):
        return rows, at
    empty = {field.name: pa.nulls(len(gone), field.type) for field in rows.schema}
    empty["_deleted"] = pa.repeat(pa.scalar(value=True), len(gone))
    at = pa.concat_arrays([at, gone])
    order = pa.array(np.argsort(at.to_numpy(), kind="stable"))
    return pa.concat_tables([rows, pa.table(empty, schema=rows.schema)]).take(order).combine_chunks(), at.take(order)


def _one(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _batch(table: pa.Table) -> pa.RecordBatch:
    batches = table.combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=table.schema)

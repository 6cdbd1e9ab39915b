"""Which records are the last of their key: exact, in bulk, in bounded memory.

Rows are grouped by key in chunks, and the groups of chunks are grouped again. If there are too many keys for that,
each pass over the rows looks for a share of them only, by hash.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.base.hashing import hash_columns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from numpy.typing import NDArray

    from headrace.log.meta import Meta

    Batches = Callable[[], Iterable[pa.RecordBatch | None]]

CHUNK_ROWS = 1 << 21
CHUNK_BYTES = 128 << 20
KEYS_BYTES = 192 << 20  # of the keys in one pass
_ROW = "row"


class _TooManyKeys(Exception):
    """Not a failure: more passes are needed."""


def latest(batches: Batches, rows: int, meta: Meta) -> NDArray[np.bool_]:
    """Return for each row whether no later row has its key; True for rows without a key.

    Each call of `batches` yields the key columns of all rows, and None when earlier ones may no longer be used.
    """
    shares = 1
    while True:
        keep = np.zeros(rows, dtype=np.bool_)
        try:
            for share in range(shares):
                _Pass(meta, share, shares, keep).run(batches())
        except _TooManyKeys:
            shares *= 2
        else:
            return keep


class _Pass:
    """Finds the last rows of one share of the keys."""

    def __init__(self, meta: Meta, share: int, shares: int, keep: NDArray[np.bool_]) -> None:
        self._types = [meta.schema.field(name).type for name in meta.key]
        self._share = share
        self._shares = shares
        self._keep = keep
        self._chunk: list[pa.Table] = []
        self._chunk_rows = self._chunk_bytes = 0
        self._groups: list[pa.Table] = []
        self._merged = 0  # groups after the last merging

    def run(self, batches: Iterable[pa.RecordBatch | None]) -> None:
        row = 0
        for batch in batches:
            if batch is None:
                self._group_chunk()
                continue
            self._take(batch, row)
            row += batch.num_rows
            if self._chunk_rows >= CHUNK_ROWS or self._chunk_bytes >= CHUNK_BYTES:
                self._group_chunk()
        self._merge()
        for groups in self._groups:
            self._keep[groups.column(_ROW).to_numpy()] = True

    def _take(self, batch: pa.RecordBatch, row: int) -> None:
        if not batch.num_rows:
            return
        typed = zip(batch.columns, self._types, strict=True)
        columns = [flat for column, kind in typed for flat in _flat(column, kind)]
        rows = np.arange(row, row + batch.num_rows, dtype=np.int64)
        table = pa.table([*columns, pa.array(rows)], names=[*map(str, range(len(columns))), _ROW])
        if all(column.null_count for column in batch.columns):
            table = self._with_key(table, batch)
        if self._shares > 1:
            hashes = hash_columns(table.columns[:-1], table.num_rows)
            table = table.filter(pa.array(hashes % np.uint64(self._shares) == np.uint64(self._share)))
        self._chunk.append(table)
        self._chunk_rows += table.num_rows
        self._chunk_bytes += table.nbytes

    def _with_key(self, table: pa.Table, batch: pa.RecordBatch) -> pa.Table:
        """Return the rows that have a key; all others, which older versions accepted, are kept."""
        absent = pc.is_null(batch.column(0))
        for column in batch.columns[1:]:
            absent = pc.and_(absent, pc.is_null(column))
        self._keep[table.column(_ROW).filter(absent).to_numpy()] = True
        return table.filter(pc.invert(absent))

    def _group_chunk(self) -> None:
        if self._chunk_rows:
            self._groups.append(_last(self._chunk))
            rows, size = (sum(count) for count in zip(*((g.num_rows, g.nbytes) for g in self._groups), strict=True))
            if rows > max(2 * self._merged, 2 * CHUNK_ROWS) or size > KEYS_BYTES:
                self._merge()
        self._chunk, self._chunk_rows, self._chunk_bytes = [], 0, 0

    def _merge(self) -> None:
        if len(self._groups) > 1:
            self._groups = [_last(self._groups)]
        self._merged = sum(groups.num_rows for groups in self._groups)
        if sum(groups.nbytes for groups in self._groups) > KEYS_BYTES and self._shares < 1 << 16:
            raise _TooManyKeys


def _last(tables: Sequence[pa.Table]) -> pa.Table:
    """Return each key once, with its last row number."""
    table = pa.concat_tables(tables)
    names = table.column_names[:-1]
    found = table.group_by(names, use_threads=False).aggregate([(_ROW, "max")])
    return found.rename_columns([_ROW if name == f"{_ROW}_max" else name for name in found.column_names]).select(
        [*names, _ROW]
    )


def _flat(column: pa.Array, kind: pa.DataType) -> list[pa.Array]:
    """Return columns that are equal where the key column is: cast to the current type, structs flattened."""
    if column.type != kind:
        column = column.cast(kind)
    if pa.types.is_struct(kind):
        fields = zip(column.flatten(), kind, strict=True)
        return [column.is_valid(), *(flat for field, inner in fields for flat in _flat(field, inner.type))]
    if pa.types.is_floating(kind):
        column = pc.if_else(pc.is_nan(column), pa.scalar(float("nan"), kind), pc.add(column, pa.scalar(0.0, kind)))
    return [column]

"""Which shard a row belongs to, and rows cut to the size of the blobs that carry them there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from headrace.base.hashing import hash_columns
from headrace.base.memory import task_memory
from headrace.kernels.op import Op
from headrace.kernels.spool import MEMORY_SHARE, Spool

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

MAX_BLOB_ROWS = 1 << 20
"""A blob is at most some tens of MB: rows beyond this go into the next one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Send(Op):
    """Rows into an exchange: to level `level`, to the shard that the columns `keys` hash to.

    `keys` None: any shard will do. `to_all`: all shards get all of them, whatever the keys.
    """

    edge: int
    level: int
    keys: tuple[str, ...] | None
    to_all: bool = False


def split(table: pa.Table, keys: Sequence[str], shards: int) -> dict[int, pa.Table]:
    """Return the rows of each shard that gets any: `hash(keys) mod shards`, the order kept within a shard.

    Rows that do not fit in memory are mapped from files.
    """
    if not table.num_rows:
        return {}
    if shards == 1:
        return {0: table}
    if not keys:
        return {0: table}
    in_memory = task_memory() // MEMORY_SHARE // shards
    parts: dict[int, Spool] = {}
    for batch in table.to_batches():  # to take from several at once would put them together first
        for shard, rows in _parted(batch, keys, shards):
            if shard not in parts:
                parts[shard] = Spool(table.schema, in_memory=in_memory)
            parts[shard].add(rows)
    return {shard: rows.table() for shard, rows in sorted(parts.items())}


def _parted(batch: pa.RecordBatch, keys: Sequence[str], shards: int) -> Iterator[tuple[int, pa.RecordBatch]]:
    hashed = hash_columns([batch.column(key) for key in keys], batch.num_rows)
    shard = (hashed % np.uint64(shards)).astype(np.uint16)
    counts = np.bincount(shard, minlength=shards)
    if np.count_nonzero(counts) == 1:
        yield int(shard[0]), batch
        return
    order, ends = np.argsort(shard, kind="stable"), np.cumsum(counts)
    for number in np.flatnonzero(counts).tolist():
        yield number, batch.take(pa.array(order[ends[number] - counts[number] : ends[number]]))


def in_blobs(table: pa.Table) -> list[pa.Table]:
    """Cut a table into parts that fit a blob."""
    return [table.slice(at, MAX_BLOB_ROWS) for at in range(0, table.num_rows, MAX_BLOB_ROWS)]

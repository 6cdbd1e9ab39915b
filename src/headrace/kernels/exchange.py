"""Which shard a row belongs to, and rows on their way there as Arrow IPC blobs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from headrace.base.hashing import hash_columns

if TYPE_CHECKING:
    from collections.abc import Sequence

MAX_BLOB_ROWS = 1 << 20
"""A blob is at most some tens of MB: rows beyond this go into the next one."""


def split(table: pa.Table, keys: Sequence[str], shards: int) -> dict[int, pa.Table]:
    """Return the rows of each shard that gets any: `hash(keys) mod shards`, the order kept within a shard."""
    if not table.num_rows:
        return {}
    if shards == 1:
        return {0: table}
    if not keys:
        return {0: table}
    hashed = hash_columns([table.column(key) for key in keys], table.num_rows)
    shard = (hashed % np.uint64(shards)).astype(np.uint16)
    counts = np.bincount(shard, minlength=shards)
    if np.count_nonzero(counts) == 1:
        return {int(shard[0]): table}
    order, ends = np.argsort(shard, kind="stable"), np.cumsum(counts)
    return {
        number: table.take(pa.array(order[ends[number] - count : ends[number]]))
        for number, count in enumerate(counts)
        if count
    }


def pieces(table: pa.Table) -> list[pa.Table]:
    """Cut a table into parts that fit a blob."""
    return [table.slice(at, MAX_BLOB_ROWS) for at in range(0, table.num_rows, MAX_BLOB_ROWS)]

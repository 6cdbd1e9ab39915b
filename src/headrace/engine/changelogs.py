"""A changelog says one thing of each key, also where shards staged it apart."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.base.hashing import hash_columns

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

DELETED, BEFORE = "_deleted", "_before"


def one_change_a_key(tables: Sequence[pa.Table], key: Sequence[str]) -> list[pa.Table]:
    """Return an epoch's staged changelog without the tombstones of keys that have a row in it.

    A task stages one upsert or tombstone for each key of its shard. Where shards follow from other columns than the
    key (a ranking by group, a join by a foreign key) a row may move: one shard withdraws it, another one inserts it.
    Then the row is what the key has, whichever file comes first; what it was (`_before`) is what the tombstone says.
    """
    deleted = [pc.fill_null(table[DELETED], False) for table in tables]  # noqa: FBT003 -- its parameter has no name
    if not any(pc.any(each).as_py() for each in deleted):
        return list(tables)
    gone = _hashes([table.filter(mask) for table, mask in zip(tables, deleted, strict=True)], key)
    rows = [table.filter(pc.invert(mask)) for table, mask in zip(tables, deleted, strict=True)]
    probes = np.intersect1d(np.concatenate(gone), np.concatenate(_hashes(rows, key)))
    if not len(probes):
        return list(tables)
    present = {each for table in rows for each in _keys(table.filter(_in(table, key, probes)), key)}
    moved = [_moved(table, mask, key, present, probes) for table, mask in zip(tables, deleted, strict=True)]
    if BEFORE in tables[0].column_names:
        tables = _with_before(tables, moved, key)
    return [_without(table, each.values()) for table, each in zip(tables, moved, strict=True)]


def _moved(table: pa.Table, deleted: Any, key: Sequence[str], present: set[str], probes: Any) -> dict[str, int]:
    """Return the places of tombstones of keys that are present, by key; `probes`: the hashes such keys may have."""
    suspects = pc.indices_nonzero(pc.and_(deleted, _in(table, key, probes)))
    found = _keys(table.take(suspects), key)
    return {each: place for place, each in zip(suspects.to_pylist(), found, strict=True) if each in present}


def _without(table: pa.Table, places: Collection[int]) -> pa.Table:
    kept = np.ones(table.num_rows, dtype=bool)
    kept[list(places)] = False
    return table.filter(pa.array(kept)) if places else table


def _with_before(tables: Sequence[pa.Table], moved: Sequence[dict[str, int]], key: Sequence[str]) -> list[pa.Table]:
    """Return tables whose rows say what moved keys were, which their tombstones say."""
    parts = [table.column(BEFORE).take(list(each.values())) for table, each in zip(tables, moved, strict=True)]
    said = pa.chunked_array([chunk for part in parts for chunk in part.chunks], parts[0].type)
    place_of = {text: place for place, text in enumerate(text for each in moved for text in each)}
    found = []
    for table in tables:
        rows = table.num_rows
        places = np.arange(rows)
        for row, (text, gone) in enumerate(zip(_keys(table, key), table[DELETED].to_pylist(), strict=True)):
            if text in place_of and not gone:
                places[row] = rows + place_of[text]
        both = pa.chunked_array([*table.column(BEFORE).chunks, *said.chunks], said.type)
        at = table.column_names.index(BEFORE)
        found.append(table.set_column(at, BEFORE, both.take(pa.array(places))))
    return found


def _hashes(tables: Sequence[pa.Table], key: Sequence[str]) -> list[Any]:
    return [hash_columns([table.column(name) for name in key], table.num_rows) for table in tables]


def _in(table: pa.Table, key: Sequence[str], probes: Any) -> pa.Array:
    return pa.array(np.isin(_hashes([table], key)[0], probes))


def _keys(table: pa.Table, key: Sequence[str]) -> list[str]:
    """Return each row's key as text: hashes may collide, and keys may be nested."""
    return [repr(list(row.values())) for row in table.select(list(key)).to_pylist()]

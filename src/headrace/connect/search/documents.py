"""Rows as documents of an index: JSON texts, by columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import pyarrow as pa
import pyarrow.compute as pc

from headrace.connect.entry_keys import entry_keys
from headrace.connect.formats.json_text import encode, json_of

if TYPE_CHECKING:
    from collections.abc import Sequence

KEY, ROW, WRITER = "_key", "_row", "_writer"
"""Fields of a document besides its columns: the row's key as text, the row as JSON; of a mark, its writer."""
Kind = Literal["text", "integer", "float", "boolean", "date"]
_NOTHING = pa.scalar("")
_LAST_MICROS = (1 << 63) // 1000
"""The index counts nanoseconds, in 64 bits."""


def kind_of(kind: pa.DataType) -> Kind | None:
    """Return how a column is searched; None: it is not, and is only in what is found."""
    if pa.types.is_string(kind) or (pa.types.is_list(kind) and pa.types.is_string(kind.value_type)):
        return "text"
    if pa.types.is_integer(kind):
        return "integer"
    if pa.types.is_floating(kind):
        return "float"
    if pa.types.is_boolean(kind):
        return "boolean"
    return "date" if pa.types.is_timestamp(kind) and kind.tz is not None else None


def documents(rows: pa.RecordBatch, *, columns: pa.Schema, key: Sequence[str]) -> pa.Array:
    """Return each row as a document; values that a field cannot have are in the row alone.

    These are nulls, numbers that are not finite, and instants that are not between 1677 and 2262.
    """
    parts: list[pa.Array | pa.Scalar] = [
        pa.scalar(f'{{"{ROW}":'),
        json_of(encode(rows.select(columns.names))),
    ]
    if key:
        parts += [pa.scalar(f',"{KEY}":'), json_of(entry_keys(rows, key))]
    for field in columns:
        if kind_of(field.type) is not None:
            values = rows.column(field.name)
            there = values.is_valid()
            if pa.types.is_floating(field.type):
                there = pc.and_(there, pc.fill_null(pc.is_finite(values), False))  # noqa: FBT003 -- a value
            elif pa.types.is_timestamp(field.type):
                micros = values.cast(pa.int64())
                in_time = pc.and_(pc.greater(micros, -_LAST_MICROS), pc.less(micros, _LAST_MICROS))
                there = pc.and_(there, pc.fill_null(in_time, False))  # noqa: FBT003 -- a value
            if pa.types.is_list(field.type):  # a null among texts is none
                values = _without_nulls(values)
            text = pc.binary_join_element_wise(pa.scalar(f',"{field.name}":'), json_of(values), _NOTHING)
            parts.append(pc.if_else(there, text, _NOTHING))
    return pc.binary_join_element_wise(*parts, pa.scalar("}"), _NOTHING)


def _without_nulls(lists: pa.Array) -> pa.Array:
    if not lists.flatten().null_count:
        return lists
    parents, values = pc.list_parent_indices(lists), lists.flatten()
    kept = values.is_valid()
    counts = pc.value_counts(parents.filter(kept))
    sizes = dict(zip(counts.field(0).to_pylist(), counts.field(1).to_pylist(), strict=True))
    offsets = pa.array([0, *(sizes.get(at, 0) for at in range(len(lists)))], pa.int32())
    return pa.ListArray.from_arrays(pc.cumulative_sum(offsets), values.filter(kept))

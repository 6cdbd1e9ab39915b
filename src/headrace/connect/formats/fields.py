"""The fields that are looked for in records, structs as trees; buffers of Arrow and numpy."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Field:
    """A field that is looked for: its place in the tree of structs, and its number in what the scan found."""

    path: str
    name: str
    type: pa.DataType
    number: int
    scope: int
    inside: tuple[Field, ...] = ()

    def all(self) -> Iterator[Field]:
        """Return the field and all that are inside it."""
        yield self
        for field in self.inside:
            yield from field.all()


def fields_of(schema: pa.Schema) -> tuple[Field, ...]:
    """Return the columns of a schema as fields, numbered with those inside them from 0."""
    return tuple(_tree(schema, "", -1, count()))


def bytes_of(values: pa.Array) -> tuple[Array, Array, Array]:
    """Return the bytes of text or binary values, where each begins and the last ends, and which are not null."""
    if pa.types.is_large_string(values.type) or pa.types.is_large_binary(values.type):
        values = values.cast(pa.large_binary())
        width: Any = np.int64
    else:
        values, width = values.cast(pa.binary()), np.int32
    _, places, data = values.buffers()
    offsets = np.frombuffer(places, width)[values.offset : values.offset + len(values) + 1].astype(np.int64)
    raw = np.frombuffer(data, np.uint8) if data is not None and data.size else np.zeros(1, np.uint8)
    return raw, offsets, values.is_valid().to_numpy(zero_copy_only=False)


def _tree(fields: Iterable[pa.Field], above: str, scope: int, numbers: Iterator[int]) -> Iterator[Field]:
    for field in fields:
        number, path = next(numbers), above + field.name
        inside: tuple[Field, ...] = ()
        if pa.types.is_struct(field.type):
            inside = tuple(_tree(list(field.type), f"{path}.", number, numbers))
        yield Field(path, field.name, field.type, number, scope, inside)


def decimals(numbers: Array, nulls: Array, kind: pa.DataType) -> pa.Array:
    """Return decimals from their steps, as 64-bit numbers, or pairs of the low and the high half."""
    wide = numbers
    if numbers.ndim == 1:
        wide = np.empty((len(numbers), 2), np.int64)
        wide[:, 0], wide[:, 1] = numbers, numbers >> 63
    valid = pa.py_buffer(np.packbits(~nulls, bitorder="little"))
    return pa.Array.from_buffers(kind, len(wide), [valid, pa.py_buffer(wide)])

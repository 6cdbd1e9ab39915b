"""Confluent's framing: a zero, the id of the schema in four bytes, then the record."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from headrace.connect.formats.fields import bytes_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    Array = np.ndarray[Any, Any]

LENGTH = 5
NO_FRAME = "it does not begin with a zero and the id of a schema"


class Records(NamedTuple):
    """Records as places in a buffer; `rows` are their numbers in the batch."""

    data: Array
    starts: Array
    ends: Array
    rows: Array


def header(number: int) -> bytes:
    """Return the first bytes of a record."""
    return struct.pack(">bI", 0, number)


def bare(values: pa.Array) -> Records:
    """Return the records that are not null, without a frame."""
    data, offsets, valid = bytes_of(values)
    rows = np.flatnonzero(valid)
    return Records(data, offsets[:-1][rows], offsets[1:][rows], rows)


def by_schema(records: Records) -> Iterator[tuple[int, Records]]:
    """Yield framed records by the id of their schema; those without a frame have -1."""
    data, starts, ends, rows = records
    framed = ends - starts >= LENGTH
    framed[framed] = data[starts[framed]] == 0
    numbers = np.full(len(rows), -1, np.int64)
    at = starts[framed]
    numbers[framed] = sum(data[at + place].astype(np.int64) << (8 * (4 - place)) for place in range(1, LENGTH))
    for number in np.unique(numbers).tolist():
        chosen = numbers == number
        yield number, Records(data, starts[chosen] + (LENGTH if number >= 0 else 0), ends[chosen], rows[chosen])

"""Rows as arguments of one command of Redis' protocol, by columns: no Python runs for a row."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from headrace.connect.entry_keys import entry_keys
from headrace.connect.formats.json_text import encode, text_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_NOTHING = pa.scalar("")
_LINE = pa.scalar("\r\n")


class Arguments(NamedTuple):
    """Arguments in the bytes of the protocol, and how many they are."""

    data: bytes
    number: int


def arguments(
    rows: pa.RecordBatch, *, key: Sequence[str], columns: Sequence[str], prefix: str, whole: bool
) -> Arguments:
    """Return for each row: how many values follow, the entry's key, the values; no value where the entry is deleted.

    Args:
        rows: `columns` and `_deleted`.
        key: the columns of the key.
        columns: what is written of a row.
        prefix: the beginning of each entry's key.
        whole: whether a value is the row as JSON; else it is the name and the text of each column that is not null.

    """
    keys = pc.binary_join_element_wise(pa.scalar(prefix), entry_keys(rows, key), _NOTHING)
    stays = pc.invert(rows.column("_deleted"))
    if whole:
        parts, counts = [_kept(_bulk(encode(rows.select(list(columns)))), stays)], pc.cast(stays, pa.int64())
    else:
        parts, counts = _fields(rows, columns, stays)
    texts = pc.binary_join_element_wise(_bulk(pc.cast(counts, pa.string())), _bulk(keys), *parts, _NOTHING)
    total: int = 2 * rows.num_rows + (pc.sum(counts).as_py() or 0)
    return Arguments(_bytes(texts), total)


def command(name: str, given: Sequence[str | int], rows: Iterable[Arguments]) -> list[bytes]:
    """Return a command with some arguments of its own, then those of rows, as what is sent."""
    rows = list(rows)
    count = 1 + len(given) + sum(each.number for each in rows)
    head = b"*%d\r\n" % count + b"".join(_one(str(each)) for each in (name, *given))
    return [head, *(each.data for each in rows)]


def _fields(rows: pa.RecordBatch, columns: Sequence[str], stays: pa.Array) -> tuple[list[pa.Array], pa.Array]:
    counts = pa.repeat(pa.scalar(0, pa.int64()), rows.num_rows)
    parts = []
    for name in columns:
        there = pc.and_(rows.column(name).is_valid(), stays)
        text = pc.fill_null(text_of(rows.column(name)), "")
        pair = pc.binary_join_element_wise(pa.scalar(_one(name).decode()), _bulk(text), _NOTHING)
        parts.append(_kept(pair, there))
        counts = pc.add(counts, pc.multiply(pc.cast(there, pa.int64()), 2))
    return parts, counts


def _kept(texts: pa.Array, where: pa.Array) -> pa.Array:
    return pc.if_else(where, texts, _NOTHING)


def _bulk(texts: pa.Array) -> pa.Array:
    length = pc.cast(pc.binary_length(texts), pa.string())
    return pc.binary_join_element_wise(pa.scalar("$"), length, _LINE, texts, _LINE, _NOTHING)


def _one(text: str) -> bytes:
    raw = text.encode()
    return b"$%d\r\n%s\r\n" % (len(raw), raw)


def _bytes(texts: pa.Array) -> bytes:
    """Return all texts, one after the other."""
    joined = pc.binary_join(pa.ListArray.from_arrays(pa.array([0, len(texts)], pa.int32()), texts), "")
    return bytes(joined[0].as_buffer()) if len(texts) else b""

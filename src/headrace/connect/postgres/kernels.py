"""Compiled loops over what PostgreSQL sends: messages of pgoutput, and rows of a binary COPY. No Python per row.

A length may be `UNCHANGED`, where the server did not send a value that is stored apart from its row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from headrace.connect.capture.cells import NULL, UNCHANGED
from headrace.connect.compiled import compiled

if TYPE_CHECKING:
    import numpy.typing as npt

    Bytes = npt.NDArray[np.uint8]
    Longs = npt.NDArray[np.int64]

KIND, TABLE, NEW, OLD, WHOLE, TRANSACTION, FIELDS = range(7)
"""Columns of what `scan` finds of a message: its kind, the table's number, where its tuples are (or 0), whether the old
one is whole, and the number of its transaction."""
FINAL, COMMITTED, XID, END, TRANSACTION_FIELDS = range(5)
"""Columns of what `scan` finds of a transaction."""
BROKEN = -1
_BEGIN, _COMMIT, _INSERT, _UPDATE, _DELETE = ord("B"), ord("C"), ord("I"), ord("U"), ord("D")
_NEW, _KEY, _WHOLE = ord("N"), ord("K"), ord("O")
_NULL, _UNCHANGED = ord("n"), ord("u")


@compiled
def _big(data: Bytes, at: int, size: int) -> int:
    value = np.int64(0)
    for place in range(size):
        value = (value << 8) | np.int64(data[at + place])
    spare = 64 - 8 * size
    return (value << spare) >> spare  # type: ignore[return-value]


@compiled
def _skip(data: Bytes, at: int, end: int) -> int:
    """Return the place behind a tuple, BROKEN if it is longer than the message."""
    if at + 2 > end:
        return BROKEN
    columns = _big(data, at, 2)
    at += 2
    for _ in range(columns):
        if at >= end:
            return BROKEN
        kind = data[at]
        at += 1
        if kind not in (_NULL, _UNCHANGED):
            if at + 4 > end:
                return BROKEN
            size = _big(data, at, 4)
            at += 4 + size
            if size < 0 or at > end:
                return BROKEN
    return at


@compiled
def scan(data: Bytes, ends: Longs, header: int, found: Longs, transactions: Longs) -> int:
    """Fill a row of `found` for each message and one of `transactions` for each transaction; return how many.

    `ends`: where each message ends in `data`; `header`: bytes before the plugin's own.
    """
    start, transaction = 0, -1
    for number in range(len(ends)):
        at, end, row = start + header, ends[number], found[number]
        start = end
        kind = data[at]
        row[KIND], row[TABLE], row[NEW], row[OLD], row[WHOLE] = kind, 0, 0, 0, 0
        if kind == _BEGIN:
            if end - at < 21:
                return BROKEN
            transaction += 1
            about = transactions[transaction]
            about[FINAL], about[COMMITTED] = _big(data, at + 1, 8), _big(data, at + 9, 8)
            about[XID] = _big(data, at + 17, 4) & 0xFFFFFFFF
        elif kind == _COMMIT:
            if end - at < 26:
                return BROKEN
            transactions[transaction][END] = _big(data, at + 10, 8)
        elif kind in (_INSERT, _UPDATE, _DELETE):
            row[TABLE] = _big(data, at + 1, 4) & 0xFFFFFFFF
            at += 5
            if at < end and data[at] != _NEW:
                if data[at] not in (_KEY, _WHOLE):
                    return BROKEN
                row[OLD], row[WHOLE] = at + 1, data[at] == _WHOLE
                at = _skip(data, at + 1, end)
            if at >= 0 and at < end:
                row[NEW] = at + 1
                at = _skip(data, at + 1, end)
            if at != end:
                return BROKEN
        row[TRANSACTION] = transaction
    return transaction + 1


@compiled
def cells(data: Bytes, tuples: Longs, starts: Longs, sizes: Longs) -> int:
    """Fill a row of `starts` and `sizes` for each tuple; where there is none (0), with nulls. BROKEN: other columns."""
    columns = starts.shape[1]
    for row in range(len(tuples)):
        at = tuples[row]
        if at == 0:
            starts[row], sizes[row] = 0, NULL
            continue
        if _big(data, at, 2) != columns:
            return BROKEN
        at += 2
        for column in range(columns):
            kind = data[at]
            at += 1
            starts[row, column] = at
            if kind == _NULL:
                sizes[row, column] = NULL
            elif kind == _UNCHANGED:
                sizes[row, column] = UNCHANGED
            else:
                size = _big(data, at, 4)
                starts[row, column], sizes[row, column] = at + 4, size
                at += 4 + size
    return 0


@compiled
def copied_cells(data: Bytes, at: int, starts: Longs, sizes: Longs) -> int:
    """Fill a column for each row of a binary COPY from a place on; return how many there were, BROKEN if cut off.

    `starts`, `sizes`: a row for each column of the table.
    """
    columns, row, end = len(starts), 0, len(data)
    while at + 2 <= end:
        fields = _big(data, at, 2)
        at += 2
        if fields == -1:
            return row
        if fields != columns or row >= starts.shape[1]:
            return BROKEN
        for column in range(columns):
            if at + 4 > end:
                return BROKEN
            size = _big(data, at, 4)
            at += 4
            starts[column, row], sizes[column, row] = at, size
            at += max(size, 0)
        row += 1
    return BROKEN


@compiled
def numbers(data: Bytes, starts: Longs, sizes: Longs) -> Longs:
    """Return cells as numbers; a null is 0."""
    result = np.zeros(len(starts), np.int64)
    for row in range(len(starts)):
        if sizes[row] > 0:
            value, start, size = np.int64(0), np.uint64(starts[row]), np.uint64(sizes[row])
            for place in range(size):
                value = (value << 8) | np.int64(data[start + place])
            spare = 64 - 8 * sizes[row]
            result[row] = (value << spare) >> spare
    return result


@compiled
def unhexed(data: Bytes, offsets: Longs, out_offsets: Longs, out: Bytes) -> int:
    r"""Turn texts like `\x00ff` into bytes; return the row that is none, or -1."""
    for row in range(len(out_offsets) - 1):
        at, target = offsets[row] + 2, out_offsets[row]
        for place in range(out_offsets[row + 1] - target):
            value = 0
            for digit in (data[at + 2 * place], data[at + 2 * place + 1]):
                low = digit | 0x20
                if 48 <= digit <= 57:
                    value = value * 16 + digit - 48
                elif 97 <= low <= 102:
                    value = value * 16 + low - 87
                else:
                    return row
            out[target + place] = value
    return -1

"""Compiled loops over what MySQL and MariaDB send: packets, events of the binary log, row images. No Python per row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from headrace.connect.capture.cells import NULL
from headrace.connect.compiled import compiled, inlined

if TYPE_CHECKING:
    import numpy.typing as npt

    Bytes = npt.NDArray[np.uint8]
    Longs = npt.NDArray[np.int64]

BROKEN, BAD_CHECKSUM, NOT_WHOLE = -1, -2, -3
HEADER = 20
"""Bytes before an event's own: a byte of the stream, then time, kind, server, size, position and flags."""
KIND, START, END, TABLE, ROWS, WIDTH, WHOLE, TRANSACTION, FIELDS = range(9)
"""Columns of what `scan` finds of an event: its kind, where its own bytes are, and for changes of rows the table's
number, where the rows begin, how many columns they have, and whether these are all of the table's."""
DOMAIN, SERVER, SEQUENCE, FLAGS, COMMITTED, FILE, POSITION, PREPARED, TRANSACTION_FIELDS = range(9)
"""Columns of what `scan` finds of a transaction. `FILE`: how many files were begun before, `COMMITTED` in seconds."""
QUERY, ROTATE, FORMAT, LOAD, TABLE_MAP, INCIDENT, XA_PREPARE = 2, 4, 15, 18, 19, 26, 38
WRITES, UPDATES, DELETES = (23, 30), (24, 31), (25, 32)
STANDALONE = 1
_LONGEST_PACKET = 0xFFFFFF
_CHECKSUM = 4


def _crc_table() -> npt.NDArray[np.uint32]:
    value = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        value = np.where(value & 1, (value >> 1) ^ np.uint32(0xEDB88320), value >> 1).astype(np.uint32)
    return value


CRC = _crc_table()


@inlined
def _little(data: Bytes, at: Any, size: int) -> Any:
    value = np.int64(0)
    for place in range(size):
        value |= np.int64(data[at + place]) << (8 * place)
    return value


@inlined
def _big(data: Bytes, at: Any, size: int) -> Any:
    value = np.int64(0)
    for place in range(size):
        value = (value << 8) | np.int64(data[at + place])
    return value


@compiled
def packets(raw: Bytes, out: Bytes, ends: Longs, read: Longs) -> int:
    """Copy the contents of whole packets behind each other; return how many contents there are.

    `ends`: where each ends in `out`; `read`: where it ends in `raw`.
    """
    at, used, count = 0, 0, 0
    while at + 4 <= len(raw):
        size = _little(raw, at, 3)
        if at + 4 + size > len(raw):
            break
        for place in range(size):
            out[used + place] = raw[at + 4 + place]
        used += size
        at += 4 + size
        if size < _LONGEST_PACKET:
            ends[count], read[count] = used, at
            count += 1
    return count


@compiled
def last_packet(  # compiled functions have no named arguments
    raw: Bytes,
    at: int,
    last: int,
    continues: bool,  # noqa: FBT001
) -> tuple[int, int, bool]:
    """Return where whole packets end, from one's beginning on, and where the last content begins (or `last`).

    `continues`, and the third of the results: whether the packet from there on goes on with the content before it, any
    bytes of a long value. It is none by itself.
    """
    while at + 4 <= len(raw) and at + 4 + _little(raw, at, 3) <= len(raw):
        if not continues:
            last = at
        continues = _little(raw, at, 3) == _LONGEST_PACKET
        at += 4 + _little(raw, at, 3)
    return at, last, continues


@compiled
def _checks(data: Bytes, start: int, end: int, table: npt.NDArray[np.uint32]) -> bool:
    crc = np.uint32(0xFFFFFFFF)
    for place in range(start, end):
        crc = table[(crc ^ data[place]) & np.uint32(0xFF)] ^ (crc >> np.uint32(8))
    return bool(np.int64(crc ^ np.uint32(0xFFFFFFFF)) == _little(data, end, _CHECKSUM))


@compiled
def _is(data: Bytes, at: int, end: int, word: Bytes) -> bool:
    if end - at != len(word):
        return False
    for place in range(len(word)):
        if data[at + place] & 0xDF != word[place]:
            return False
    return True


@compiled
def _rows(data: Bytes, at: int, end: int, kind: int, row: Longs) -> int:
    """Fill what is known of an event with rows; BROKEN if it is cut off."""
    row[TABLE] = _little(data, at, 6)
    at += 8
    if kind >= 30:
        at += _little(data, at, 2)
    columns: Any = np.int64(data[at])
    at += 1
    if columns == 0xFC:
        columns = _little(data, at, 2)
        at += 2
    images = 2 if kind in (24, 31) else 1
    row[WIDTH], row[WHOLE] = columns, 1
    for _ in range(images):
        for column in range(columns):
            if not data[at + column // 8] >> (column % 8) & 1:
                row[WHOLE] = 0
        at += (columns + 7) // 8
    row[ROWS] = at
    return BROKEN if at > end else 0


@compiled
def _begun(data: Bytes, first: int, about: Longs) -> int:
    """Fill what the event of a GTID says; return 0 where one statement follows, which ends it."""
    at = first + HEADER
    about[SEQUENCE], about[DOMAIN] = _little(data, at, 8), _little(data, at + 8, 4)
    about[SERVER], about[FLAGS] = _little(data, first + 6, 4), data[at + 12]
    about[PREPARED] = 0
    return 1 - (about[FLAGS] & STANDALONE)  # type: ignore[no-any-return]


@compiled
def _ends(data: Bytes, row: Longs, words: tuple[Bytes, Bytes, Bytes], about: Longs, begun: int) -> bool:
    """Whether an event ends the transaction; BEGIN, COMMIT and ROLLBACK lose their kind."""
    at, end, kind = row[START], row[END], row[KIND]
    if kind == 38:
        about[PREPARED] = data[at] == 0  # else it is committed in one phase
    if kind == 2:
        text = at + 13 + _little(data, at + 11, 2) + np.int64(data[at + 8]) + 1
        ending = _is(data, text, end, words[1]) or _is(data, text, end, words[2])
        if ending or _is(data, text, end, words[0]):
            row[KIND] = 0
        return begun == 0 or ending
    return kind == 16 or kind == 38  # type: ignore[no-any-return]


@compiled
def scan(
    data: Bytes,
    ends: Longs,
    crc: npt.NDArray[np.uint32],
    words: tuple[Bytes, Bytes, Bytes],
    results: tuple[Longs, Longs],
    state: Longs,
) -> tuple[int, int]:
    """Fill a row for each event and one for each transaction (of these, row 0 is for events of none).

    `ends`: where contents of packets end. `words`: BEGIN, COMMIT, ROLLBACK. `state`: how many files were begun before,
    and whether events have checksums. It returns the number of events up to the end of the last whole transaction, and
    0; or the number of a bad event, and BROKEN or BAD_CHECKSUM.
    """
    found, transactions = results
    start, whole, transaction, files, checked = 0, 0, 0, state[0], state[1]
    opened, begun = False, 0
    for number in range(len(ends)):
        first, at, end, row = start, start + HEADER, ends[number], found[number]
        start = end
        if end - first < HEADER or data[first] != 0:
            return number, BROKEN
        kind = np.int64(data[first + 5])
        if kind == 15:
            end -= _CHECKSUM
            checked = np.int64(data[end - 1])
        elif checked:
            end -= _CHECKSUM
            if end < at or not _checks(data, first + 1, end, crc):
                return number, BAD_CHECKSUM
        row[KIND], row[START], row[END] = kind, at, end
        row[TABLE], row[ROWS], row[WIDTH], row[WHOLE] = 0, 0, 0, 0
        if kind == 162:
            transaction += 1
            opened, begun = True, _begun(data, first, transactions[transaction])
        elif kind == 4:
            files += 1
        elif kind == 19:
            row[TABLE] = _little(data, at, 6)
        elif ((kind >= 23 and kind <= 25) or (kind >= 30 and kind <= 32)) and _rows(data, at, end, kind, row) < 0:
            return number, BROKEN
        row[TRANSACTION], about = transaction, transactions[transaction]
        if opened and _ends(data, row, words, about, begun):
            about[COMMITTED], about[FILE] = _little(data, first + 1, 4), files
            about[POSITION] = _little(data, first + 14, 4)
            opened = False
        if not opened:
            whole = number + 1
            state[0], state[1], state[2] = files, checked, transaction
    return whole, 0


@compiled
def images(data: Bytes, events: Longs, shape: Longs, starts: Longs, sizes: Longs) -> int:
    """Fill a row of cells for each row image of some events; return how many there are, BROKEN if one is cut off.

    Args:
        data: the bytes.
        events: where the images of each event begin and end.
        shape: of each column the bytes of a cell, or, negative, the bytes of the length that comes before it.
        starts: where cells begin; without rows, images are only counted.
        sizes: how long they are, NULL for nulls.

    """
    columns, count, fill = len(shape), 0, len(starts) > 0
    for event in range(len(events)):
        at, end = events[event, 0], events[event, 1]
        while at < end:
            nulls = at
            at += (columns + 7) // 8
            for column in range(columns):
                size: Any = np.int64(NULL)
                if not data[nulls + column // 8] >> (column % 8) & 1:
                    size = shape[column]
                    if size < 0:
                        prefix = -size
                        if at + prefix > end:
                            return BROKEN
                        size = _little(data, at, prefix)
                        at += prefix
                if fill:
                    starts[count, column], sizes[count, column] = at, size
                if size > 0:
                    at += size
            if at > end:
                return BROKEN
            count += 1
    return count


@compiled
def counted(data: Bytes, events: Longs, shape: Longs, counts: Longs) -> int:
    """Fill how many row images each event has; return how many there are in all, BROKEN if one is cut off."""
    nothing, total = np.empty((0, len(shape)), np.int64), 0
    for event in range(len(events)):
        count = images(data, events[event : event + 1], shape, nothing, nothing)
        if count < 0:
            return BROKEN
        counts[event] = count
        total += count
    return total


@compiled
def text_cells(data: Bytes, ends: Longs, starts: Longs, sizes: Longs) -> int:
    """Fill a row of cells for each row of a result in the text protocol; BROKEN if one has other columns."""
    at = 0
    for row in range(len(starts)):
        for column in range(starts.shape[1]):
            size: Any = np.int64(data[at])
            at += 1
            if size == 0xFB:
                size = np.int64(NULL)
            elif size > 0xFB:
                width = 2 if size == 0xFC else 3 if size == 0xFD else 8
                size = _little(data, at, width)
                at += width
            starts[row, column], sizes[row, column] = at, size
            at += max(size, 0)
            if at > ends[row]:
                return BROKEN
        if at != ends[row]:
            return BROKEN
    return 0


@compiled
def integers(data: Bytes, starts: Longs, sizes: Longs, form: tuple[bool, bool], out: Longs) -> None:
    """Fill the numbers of cells. `form`: whether the first byte is the highest, and whether there is a sign."""
    big, signed = form
    for row in range(len(starts)):
        size = sizes[row]
        if size < 0:
            out[row] = 0
            continue
        value = _big(data, starts[row], size) if big else _little(data, starts[row], size)
        spare = 64 - 8 * size
        out[row] = (value << spare) >> spare if signed else value


@inlined
def _digits(out: Bytes, at: Any, value: Any, width: int) -> Any:
    for place in range(width):
        out[at + width - 1 - place] = 48 + value % 10
        value //= 10
    return at + width


@inlined
def _size(digits: int) -> int:
    return 4 * (digits // 9) + (digits % 9 + 1) // 2


@compiled
def decimals(data: Bytes, starts: Longs, sizes: Longs, digits: tuple[int, int], results: tuple[Longs, Bytes]) -> None:
    """Write decimals as texts behind each other. `digits`: before and behind the point; `results`: offsets, bytes."""
    before, behind = digits
    offsets, out = results
    to = 0
    for row in range(len(starts)):
        offsets[row] = to
        if sizes[row] < 0:
            continue
        at = starts[row]
        negative = data[at] & 0x80 == 0
        flip = np.int64(0xFF) if negative else np.int64(0)
        if negative:
            out[to] = 45
            to += 1
        first, top = to, np.int64(0x80)
        for part in range(2):
            rest = before % 9 if part == 0 else 9
            left = before if part == 0 else behind
            if part == 1 and behind:
                out[to] = 46
                to += 1
            while left > 0:
                width = min(rest or 9, left) if part == 0 else min(9, left)
                value = np.int64(0)
                for _ in range(_size(width)):
                    value = (value << 8) | ((np.int64(data[at]) ^ top ^ flip) & 0xFF)
                    top = np.int64(0)
                    at += 1
                to = _digits(out, to, value, width)
                left -= width
                rest = 9
            if part == 0:
                zeros = 0
                while zeros < to - first - 1 and out[first + zeros] == 48:
                    zeros += 1
                for place in range(first, to - zeros):
                    out[place] = out[place + zeros]
                to -= zeros
                if to == first:
                    out[to] = 48
                    to += 1
    offsets[len(starts)] = to


@inlined
def _date(out: Bytes, at: Any, year: int, month: int, day: int) -> Any:
    at = _digits(out, at, year, 4)
    out[at] = 45
    at = _digits(out, at + 1, month, 2)
    out[at] = 45
    return _digits(out, at + 1, day, 2)


@inlined
def _time(out: Bytes, at: Any, hour: int, minute: int, second: int) -> Any:
    at = _digits(out, at, hour, 3 if hour > 99 else 2)
    out[at] = 58
    at = _digits(out, at + 1, minute, 2)
    out[at] = 58
    return _digits(out, at + 1, second, 2)


@compiled
def _civil(days: int) -> tuple[int, int, int]:
    """Return year, month and day of a number of days since 1970 (Howard Hinnant, chrono-compatible date algorithms)."""
    days += 719_468
    era = days // 146_097
    of_era = days - era * 146_097
    year = (of_era - of_era // 1460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * year + year // 4 - year // 100)
    shifted = (5 * of_year + 2) // 153
    month = shifted + 3 if shifted < 10 else shifted - 9
    return year + era * 400 + (1 if month <= 2 else 0), month, of_year - (153 * shifted + 2) // 5 + 1


@compiled
def moments(data: Bytes, starts: Longs, sizes: Longs, form: tuple[int, int], results: tuple[Longs, Bytes]) -> None:
    """Write dates and times as the server prints them. `form`: the column's kind, and digits of a second's parts."""
    kind, digits = form
    offsets, out = results
    to, extra = 0, (digits + 1) // 2
    for row in range(len(starts)):
        offsets[row] = to
        if sizes[row] < 0:
            continue
        at = starts[row]
        micros: Any = np.int64(0)
        if kind == 10:
            value = _little(data, at, 3)
            to = _date(out, to, value >> 9, value >> 5 & 15, value & 31)
            continue
        if kind == 17:
            value, at = _big(data, at, 4), at + 4
            if value == 0:
                to = _time(out, _date(out, to, 0, 0, 0) + 1, 0, 0, 0)
            else:
                year, month, day = _civil(value // 86_400)
                value %= 86_400
                to = _time(out, _date(out, to, year, month, day) + 1, value // 3600, value // 60 % 60, value % 60)
            out[to - 9] = 32
        elif kind == 18:
            value, at = _big(data, at, 5) - 0x8000000000, at + 5
            to = _date(out, to, (value >> 22) // 13, (value >> 22) % 13, value >> 17 & 31)
            out[to] = 32
            to = _time(out, to + 1, value >> 12 & 31, value >> 6 & 63, value & 63)
        else:
            value = _big(data, at, 3 + extra) - (np.int64(0x800000) << (8 * extra))
            if value < 0:
                out[to] = 45
                to += 1
                value = -value
            micros = value & ((np.int64(1) << (8 * extra)) - 1)
            value >>= 8 * extra
            to = _time(out, to, value >> 12 & 1023, value >> 6 & 63, value & 63)
        if kind != 19:
            micros = _big(data, at, extra)
        for _ in range(3 - extra):
            micros *= 100
        if digits:
            out[to] = 46
            for _ in range(6 - digits):
                micros //= 10
            to = _digits(out, to + 1, micros, digits)
    offsets[len(starts)] = to

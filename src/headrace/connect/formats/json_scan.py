"""Finds fields in JSON records, and reads common values, in compiled code: one pass over the bytes.

A value that it does not read itself is left to `json_values`, which has the rules: it says where the value stands.
What it accepts as JSON is exactly what `json_values.parsed` accepts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from headrace.connect.compiled import inlined
from headrace.connect.formats.json_bytes import (
    after_blanks,
    after_value,
    is_utf8,
    key_end,
    number,
    string_end,
    unescaped,
)
from headrace.connect.formats.json_times import day_of, micros_of

if TYPE_CHECKING:
    Array = np.ndarray[Any, Any]

TEXT, BOOLEAN, WHOLE, DOUBLE, SINGLE, DECIMAL, DATE, INSTANT, LOCAL, STRUCT, OTHER = range(11)
"""Kinds of fields: `OTHER` is always left to `json_values`."""
ABSENT, NULL, READ, SPAN, ESCAPED, HARD, LOOK = range(7)
"""What was found: nothing, null, a value in `numbers`, text, text with escapes, a number that is hard to round, or
something to be looked at."""
POWERS = np.array([float(f"1e{exponent}") for exponent in range(23)])
"""All are exact."""
HINTS = 256
DEPTH = 500
"""So many lists and objects may be inside each other."""


class Wanted(NamedTuple):
    """The fields that are read: all are arrays with one element a field, but `names`, which has their bytes."""

    names: Array
    starts: Array
    """Where its name begins in `names`; one more than there are fields."""
    scopes: Array
    """The field of kind STRUCT in which it is; -1: the record."""
    kinds: Array
    lows: Array
    """Of WHOLE: the smallest value."""
    highs: Array
    """Of WHOLE: the greatest value; of DECIMAL: the digits."""
    scales: Array


class Found(NamedTuple):
    """What was found, by field and record; `bad`, by record, says what is no JSON object."""

    states: Array
    numbers: Array
    starts: Array
    lengths: Array
    bad: Array


class Room(NamedTuple):
    """What the scan writes for itself: it allocates nothing."""

    hints: Array
    """Of each name of the last record: its scope, start, length and field."""
    stack: Array
    name: Array


def room_of(longest: int) -> Room:
    """Return room for records of so many bytes."""
    return Room(np.full((HINTS, 4), -1, np.int64), np.empty(DEPTH, np.int64), np.empty(longest, np.uint8))


def found_of(fields: int, records: int) -> Found:
    """Return room for what will be found."""
    shape = (fields, records)
    return Found(
        np.zeros(shape, np.uint8),
        np.empty(shape, np.int64),
        np.empty(shape, np.int64),
        np.empty(shape, np.int64),
        np.zeros(records, np.bool_),
    )


@inlined
def scan(data: Array, offsets: Array, valid: Array, wanted: Wanted, found: Found, room: Room) -> None:
    """Look through all records.

    Args:
        data: the bytes of all records.
        offsets: where each begins, and where the last ends.
        valid: whether it is a record at all.
        wanted: the fields.
        found: where the results go.

    """
    for at in range(len(offsets) - 1):
        if valid[at]:
            found.bad[at] = not _record(data, (offsets[at], offsets[at + 1]), at, wanted, found, room)
        else:
            found.bad[at] = True


@inlined
def _record(data: Array, span: Any, row: int, wanted: Wanted, found: Found, room: Room) -> bool:
    """Look through one record; return whether it is a JSON object."""
    stack = room.stack
    at, end = after_blanks(data, span[0], span[1]), span[1]
    if at >= end or data[at] != 123:
        return False
    scope, depth, key, wide = -1, 0, 0, False
    at = after_blanks(data, at + 1, end)
    ended = at < end and data[at] == 125
    while not ended:
        close, odd = key_end(data, at, end)
        if close < 0:
            return False
        wide |= odd > 1
        field = _field(data, (at + 1, close, odd & 1), scope, wanted, key, room)
        key += 1
        at = after_blanks(data, close + 1, end)
        if at >= end or data[at] != 58:
            return False
        at = after_blanks(data, at + 1, end)
        if field >= 0 and found.states[field, row] == ABSENT:
            if wanted.kinds[field] == STRUCT and at < end and data[at] == 123 and depth < DEPTH:
                found.states[field, row] = READ
                stack[depth] = scope
                depth += 1
                scope = field
                at = after_blanks(data, at + 1, end)
                if at >= end:
                    return False
                if data[at] != 125:
                    continue
            else:
                at, odd = _value(data, (at, end), (field, row), wanted, found, stack[depth:])
                wide |= odd > 1
        else:
            at, odd = after_value(data, at, end, stack[depth:])
            wide |= odd > 1
        if at < 0:
            return False
        while True:
            at = after_blanks(data, at, end)
            if at >= end:
                return False
            if data[at] == 44:
                at = after_blanks(data, at + 1, end)
                break
            if data[at] != 125:
                return False
            if depth == 0:
                ended = True
                break
            depth -= 1
            scope = stack[depth]
            at += 1
    if after_blanks(data, at + 1, end) != end:
        return False
    return not wide or is_utf8(data, span[0], end)


@inlined
def _field(data: Array, name: Any, scope: int, wanted: Wanted, key: int, room: Room) -> int:
    """Return the field of a name, which is escaped or not; -1: none is wanted. Records mostly have the same names."""
    start, close, escaped = name
    hints = room.hints
    if escaped:
        return _search(room.name, (0, unescaped(data, (start, close), room.name, 0)), scope, wanted)
    if key < HINTS:
        before, length = hints[key, 1], hints[key, 2]
        if length == close - start and hints[key, 0] == scope:
            same = 0
            while same < length and data[before + same] == data[start + same]:
                same += 1
            if same == length:
                return int(hints[key, 3])
    found = _search(data, (start, close), scope, wanted)
    if key < HINTS:
        hints[key, 0], hints[key, 1], hints[key, 2], hints[key, 3] = scope, start, close - start, found
    return found


@inlined
def _search(data: Array, name: Any, scope: int, wanted: Wanted) -> int:
    start, close = name
    for field in range(len(wanted.kinds)):
        first = wanted.starts[field]
        length = wanted.starts[field + 1] - first
        if wanted.scopes[field] == scope and length == close - start:
            same = 0
            while same < length and wanted.names[first + same] == data[start + same]:
                same += 1
            if same == length:
                return field
    return -1


@inlined
def _value(data: Array, span: Any, place: Any, wanted: Wanted, found: Found, stack: Array) -> Any:
    """Read or note the value of a field; return the place after it, or -1, and what bytes it has."""
    at, end = span
    if at >= end:
        return -1, 0
    byte = data[at]
    if byte == 34:
        close, odd = string_end(data, at + 1, end)
        if close < 0:
            return -1, odd
        _text(data, (at + 1, close, odd & 1), place, wanted, found)
        return close + 1, odd
    after, odd = after_value(data, at, end, stack)
    if after < 0:
        return -1, odd
    if byte == 45 or 48 <= byte <= 57:
        _number(data, (at, after), place, wanted, found)
    elif byte == 110:
        found.states[place] = NULL
    elif (byte == 116 or byte == 102) and wanted.kinds[place[0]] == BOOLEAN:
        found.states[place] = READ
        found.numbers[place] = byte == 116
    elif (byte == 116 or byte == 102) and wanted.kinds[place[0]] == TEXT:
        _note(SPAN, (at, after), place, found)
    else:
        _note(LOOK, (at, after), place, found)
    return after, odd


@inlined
def _note(state: int, span: Any, place: Any, found: Found) -> None:
    found.states[place] = state
    found.starts[place] = span[0]
    found.lengths[place] = span[1] - span[0]


@inlined
def _text(data: Array, span: Any, place: Any, wanted: Wanted, found: Found) -> None:
    """Read a string's content as what the field is."""
    start, close, escaped = span
    kind = wanted.kinds[place[0]]
    if kind == TEXT:
        _note(ESCAPED if escaped else SPAN, (start, close), place, found)
        return
    if not escaped and (WHOLE <= kind <= DECIMAL):
        after = number(data, start, close)[0]
        if after == close and close > start:
            _number(data, (start, close), place, wanted, found)
            if found.states[place] == READ or found.states[place] == HARD:
                return
    elif not escaped and (kind == INSTANT or kind == LOCAL):
        read, micros = micros_of(data, start, close, kind == LOCAL)
        if read:
            found.states[place] = READ
            found.numbers[place] = micros
            return
    elif not escaped and kind == DATE:
        read, day = day_of(data, start, close)
        if read and close - start == 10:
            found.states[place] = READ
            found.numbers[place] = day
            return
    _note(LOOK, (start - 1, close + 1), place, found)


@inlined
def _number(data: Array, span: Any, place: Any, wanted: Wanted, found: Found) -> None:
    """Read a number as what the field is. Beyond 18 digits it is looked at."""
    field = place[0]
    kind = wanted.kinds[field]
    if kind == TEXT:
        _note(SPAN, span, place, found)
        return
    after, digits, exponent, few, negative = number(data, span[0], span[1])
    if few and after == span[1]:
        value = -digits if negative else digits
        if kind == WHOLE and exponent == 0 and wanted.lows[field] <= value <= wanted.highs[field]:
            found.states[place] = READ
            found.numbers[place] = value
            return
        if (kind == INSTANT or kind == LOCAL) and exponent == 0 and digits < 9_000_000_000_000_000:
            found.states[place] = READ
            found.numbers[place] = value * 1000
            return
        if kind == DECIMAL and _decimal(value, exponent, place, wanted, found):
            return
        if (kind == DOUBLE or kind == SINGLE) and digits <= 1 << 53 and -22 <= exponent <= 22:
            size = digits / POWERS[-exponent] if exponent < 0 else digits * POWERS[exponent]  # one rounding (Clinger)
            if kind == DOUBLE or size < 3.4e38:
                found.states[place] = READ
                found.numbers.view(np.float64)[place] = -size if negative else size
                return
    if kind == DOUBLE or kind == SINGLE:
        _note(HARD, span, place, found)
        return
    _note(LOOK, span, place, found)


@inlined
def _decimal(value: int, exponent: int, place: Any, wanted: Wanted, found: Found) -> bool:
    """Keep a number as so many steps of the decimal's scale, if it is so many exactly."""
    field = place[0]
    more = wanted.scales[field] + exponent
    if not 0 <= more <= 18:
        return False
    limit = 10 ** (min(wanted.highs[field], 18) - more) if more <= min(wanted.highs[field], 18) else 0
    if not -limit < value < limit:
        return False
    found.states[place] = READ
    found.numbers[place] = value * 10**more
    return True

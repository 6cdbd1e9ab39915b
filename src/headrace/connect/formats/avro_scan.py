"""Avro records to columns, in compiled code: a schema is a list of instructions (Avro 1.12, binary encoding)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.connect.compiled import inlined

if TYPE_CHECKING:
    import numpy as np

    from headrace.connect.formats.json_scan import Found

    Array = np.ndarray[Any, Any]

BOOLEAN, LONG, FLOAT, DOUBLE, BYTES, FIXED, ENUM, OPTION, PRESENT = range(9)
"""Instructions: what is read next; OPTION is a union with null, PRESENT says that a struct is there.

An instruction is four numbers: what it is, the field to which it goes (-1: none), a number (the length of FIXED, the
symbols of ENUM, the branch of OPTION that is null or -1), and the place where OPTION goes on if it is null.
"""
READ, SPAN = 2, 3
"""As in `json_scan`."""


@inlined
def scan(data: Array, starts: Array, ends: Array, program: Array, found: Found) -> None:
    """Read records; `found.bad` says which do not follow the schema to their very end."""
    for row in range(len(starts)):
        found.bad[row] = _record(data, (starts[row], ends[row]), program, row, found) != ends[row]


@inlined
def _record(data: Array, span: Any, program: Array, row: int, found: Found) -> int:
    """Read a record; return the place after it, or -1."""
    at: int = span[0]
    end: int = span[1]
    step = 0
    while step < len(program):
        what, field, size = program[step, 0], program[step, 1], program[step, 2]
        step += 1
        if what == PRESENT:
            found.states[field, row] = READ
            continue
        value, length = 0, 0
        if what == LONG or what == ENUM or what == BYTES or what == OPTION:
            at, value = _long(data, at, end)
            if at < 0:
                return -1
            if what == OPTION:
                if value == size:
                    step = int(program[step - 1, 3])
                elif not 0 <= value <= 1 or (size < 0 and value > 0):
                    return -1
                continue
            if what == ENUM and not 0 <= value < size:
                return -1
            length = value if what == BYTES else 0
        elif what == BOOLEAN:
            length = 1
        elif what == FLOAT:
            length = 4
        elif what == DOUBLE:
            length = 8
        else:
            length = size
        if length < 0 or length > end - at:
            return -1
        if field >= 0:
            if what == BYTES or what == FIXED:
                found.states[field, row] = SPAN
                found.starts[field, row] = at
                found.lengths[field, row] = length
            else:
                for place in range(length - 1, -1, -1):
                    value = (value << 8) | data[at + place]
                if what == BOOLEAN and value > 1:
                    return -1
                found.states[field, row] = READ
                found.numbers[field, row] = value
        at += length
    return at


@inlined
def _long(data: Array, at: int, end: int) -> Any:
    """Read a number of variable length, zigzag: the place after it or -1, and the number."""
    value, shift = 0, 0
    while at < end and shift < 64:
        byte = int(data[at])
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return at, ((value >> 1) & 0x7FFFFFFFFFFFFFFF) ^ -(value & 1)
        shift += 7
    return -1, 0


@inlined
def whole(data: Array, starts: Array, lengths: Array, read: Array, out: Array, far: Array) -> None:
    """Read whole numbers, big-endian, as pairs of the low and the high half; `far`: more than 16 bytes."""
    for row in range(len(starts)):
        if not read[row]:
            continue
        start, length = starts[row], lengths[row]
        fill = 0xFF if length > 0 and data[start] >= 0x80 else 0
        extra = max(length - 16, 0)
        for place in range(extra):
            far[row] |= data[start + place] != fill
        if extra > 0 and (data[start + extra] >= 0x80) != (fill == 0xFF):
            far[row] = True
        low, high = 0, 0
        for place in range(16):
            at = length - 16 + place
            byte = int(data[start + at]) if at >= 0 else fill
            if place < 8:
                high = (high << 8) | byte
            else:
                low = (low << 8) | byte
        out[row, 0], out[row, 1] = low, high

"""Times of the years 1 to 9999 as ISO text, in compiled code: `2026-01-31T10:00:00.000000Z`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from headrace.connect.compiled import inlined
from headrace.connect.formats.calendar_text import DAY_MICROS

if TYPE_CHECKING:
    Array = np.ndarray[Any, Any]

_LENGTH = len("2026-01-31T10:00:00.000000")
_DASH, _T, _COLON, _DOT, _ZERO, _Z = (ord(each) for each in "-T:.0Z")


def written(times: pa.Array) -> pa.Array:
    """Return timestamps in microseconds as text, with `Z` where they are instants; null stays null."""
    ticks = times.view(pa.int64()).to_numpy(zero_copy_only=False) if not times.null_count else _filled(times)
    valid = np.ones(len(times), np.bool_) if not times.null_count else np.asarray(times.is_valid())
    zone = times.type.tz is not None
    out, offsets = np.empty(len(ticks) * (_LENGTH + zone), np.uint8), np.empty(len(ticks) + 1, np.int32)
    _write(ticks, valid, zone, out, offsets)
    mask = pa.py_buffer(np.packbits(valid, bitorder="little")) if times.null_count else None
    return pa.Array.from_buffers(pa.string(), len(ticks), [mask, pa.py_buffer(offsets), pa.py_buffer(out)])


def _filled(times: pa.Array) -> Array:
    filled: Array = times.view(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    return filled


@inlined
def _digits(number: int, count: int, out: Array, to: int) -> int:
    for at in range(count):
        out[to + count - 1 - at] = _ZERO + number % 10
        number //= 10
    return to + count


@inlined
def _date(days: int, out: Array, to: int) -> int:
    """Write a day (Hinnant, civil_from_days)."""
    era = (days + 719_468) // 146_097
    of_era = days + 719_468 - era * 146_097
    year = (of_era - of_era // 1_460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * year + year // 4 - year // 100)
    month = (5 * of_year + 2) // 153
    day = of_year - (153 * month + 2) // 5 + 1
    month = month + 3 if month < 10 else month - 9
    to = _digits(year + era * 400 + (1 if month <= 2 else 0), 4, out, to)
    out[to] = _DASH
    to = _digits(month, 2, out, to + 1)
    out[to] = _DASH
    return _digits(day, 2, out, to + 1)


@inlined
def _write(ticks: Array, valid: Array, zone: bool, out: Array, offsets: Array) -> None:  # noqa: FBT001 -- compiled
    to = 0
    for row in range(len(ticks)):
        offsets[row] = to
        if not valid[row]:
            continue
        days = ticks[row] // DAY_MICROS
        micros = ticks[row] - days * DAY_MICROS
        to = _date(days, out, to)
        out[to] = _T
        seconds = micros // 1_000_000
        to = _digits(seconds // 3_600, 2, out, to + 1)
        out[to] = _COLON
        to = _digits(seconds // 60 % 60, 2, out, to + 1)
        out[to] = _COLON
        to = _digits(seconds % 60, 2, out, to + 1)
        out[to] = _DOT
        to = _digits(micros % 1_000_000, 6, out, to + 1)
        if zone:
            out[to] = _Z
            to += 1
    offsets[len(ticks)] = to

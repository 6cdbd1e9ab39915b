"""JSON records to columns by compiled code, and by the rules of `json_values` what it left.

Importing this imports numba.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.base.schema import TIMESTAMP
from headrace.connect.formats import json_scan as scan
from headrace.connect.formats.fields import Field, bytes_of, decimals, fields_of
from headrace.connect.formats.gather import gather
from headrace.connect.formats.json_values import NO_OBJECT, BadValue, converter, parsed
from headrace.connect.formats.verdicts import Verdicts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.connect.format import Formatted

    Array = np.ndarray[Any, Any]

_LARGEST_FLOAT = 3.4028235677973362e38


class Scanned:
    """The columns of records that compiled code looked through."""

    def __init__(self, values: pa.Array, schema: pa.Schema) -> None:
        self.count = len(values)
        self.data, offsets, valid = bytes_of(values)
        self.fields = fields_of(schema)
        every = [each for field in self.fields for each in field.all()]
        self.found = scan.found_of(len(every), self.count)
        longest = int(np.diff(offsets).max(initial=1))
        scan.scan(self.data, offsets, valid, _wanted(every), self.found, scan.room_of(longest))
        self.verdicts = Verdicts(self.count)
        self.verdicts.refuse(self.found.bad, NO_OBJECT)

    def formatted(self) -> Formatted:
        """Return the columns of the good records."""
        columns = [self._column(field) for field in self.fields]
        names = [field.name for field in self.fields]
        return self.verdicts.formatted(columns, names)

    def _column(self, field: Field) -> pa.Array:
        if field.inside:
            return self._struct(field)
        states = self.found.states[field.number]
        kind = _kind(field.type)
        if kind == scan.OTHER:
            return self._looked(field, np.flatnonzero((states == scan.LOOK) & ~self.found.bad), None)
        if kind in (scan.DOUBLE, scan.SINGLE):
            self._round(field, states)
        rows = np.flatnonzero((states == scan.LOOK) & ~self.found.bad)
        read = states >= scan.READ
        if len(rows):
            read[rows] = False
        base = self._text(field, read) if kind == scan.TEXT else self._fixed(field, read)
        return self._looked(field, rows, base) if len(rows) else base

    def _struct(self, field: Field) -> pa.Array:
        states = self.found.states[field.number]
        self._looked(field, np.flatnonzero((states == scan.LOOK) & ~self.found.bad), None)  # none of them is an object
        columns = [self._column(each) for each in field.inside]
        kinds = [pa.field(each.name, each.type) for each in field.inside]
        return pa.StructArray.from_arrays(columns, fields=kinds, mask=pa.array(states != scan.READ))

    def _text(self, field: Field, read: Array) -> pa.Array:
        states, at = self.found.states[field.number], field.number
        starts, lengths = self.found.starts[at], self.found.lengths[at]
        return gather(self.data, starts, lengths, read, states == scan.ESCAPED)

    def _fixed(self, field: Field, read: Array) -> pa.Array:
        numbers, nulls = self.found.numbers[field.number], ~read
        if pa.types.is_floating(field.type):
            numbers = numbers.view(np.float64)
            if field.type == pa.float32():
                numbers = np.where(read, numbers, 0).astype(np.float32)
        elif pa.types.is_boolean(field.type):
            numbers = numbers == 1
        elif pa.types.is_decimal(field.type):
            return decimals(numbers, nulls, field.type)
        elif pa.types.is_integer(field.type):
            numbers = numbers.astype(field.type.to_pandas_dtype())
        elif pa.types.is_date(field.type):
            return pa.array(numbers.astype(np.int32), mask=nulls).view(field.type)
        else:
            return pa.array(numbers, mask=nulls).view(field.type)
        return pa.array(numbers, field.type, mask=nulls)

    def _round(self, field: Field, states: Array) -> None:
        """Read the numbers whose rounding is hard."""
        rows = np.flatnonzero((states == scan.HARD) & ~self.found.bad)
        if not len(rows):
            return
        at, largest = field.number, _LARGEST_FLOAT if field.type == pa.float32() else np.inf
        every = np.ones(len(rows), np.bool_)
        texts = gather(self.data, self.found.starts[at][rows], self.found.lengths[at][rows], every, ~every)
        try:
            read = pc.cast(texts, pa.float64()).to_numpy()
        except pa.ArrowInvalid:
            states[rows] = scan.LOOK
            return
        self.found.numbers.view(np.float64)[at, rows] = read
        states[rows[np.abs(read) >= largest]] = scan.LOOK

    def _looked(self, field: Field, rows: Array, base: pa.Array | None) -> pa.Array:
        """Return a column in which the values of some rows are read by the rules; `base` has the others."""
        values: list[Any] = []
        if len(rows):
            convert = converter(field.type)
            reasons = dict[int, str]()
            for row, value in zip(rows.tolist(), self._parsed(field, rows), strict=True):
                try:
                    values.append(convert(value))
                except BadValue as error:
                    values.append(None)
                    reasons[row] = error.reason(field.path)
            self.verdicts.refuse_each(reasons)
        others = pa.nulls(self.count, field.type) if base is None else base
        if not len(rows):
            return others
        order = np.arange(self.count)
        order[rows] = self.count + np.arange(len(rows))
        return pa.concat_arrays([others, pa.array(values, field.type)]).take(pa.array(order))

    def _parsed(self, field: Field, rows: Array) -> list[Any]:
        starts, lengths = self.found.starts[field.number][rows], self.found.lengths[field.number][rows]
        texts = gather(self.data, starts, lengths, np.ones(len(rows), np.bool_), np.zeros(len(rows), np.bool_))
        found: list[Any] = parsed(f"[{','.join(texts.to_pylist())}]")
        return found


def _kind(kind: pa.DataType) -> int:
    if pa.types.is_integer(kind):
        return scan.WHOLE
    if pa.types.is_decimal(kind):
        return scan.DECIMAL
    if pa.types.is_struct(kind):
        return scan.STRUCT
    if pa.types.is_timestamp(kind):
        return scan.INSTANT if kind == TIMESTAMP else scan.LOCAL
    return _KINDS.get(kind, scan.OTHER)


_KINDS = {
    pa.string(): scan.TEXT,
    pa.bool_(): scan.BOOLEAN,
    pa.float64(): scan.DOUBLE,
    pa.float32(): scan.SINGLE,
    pa.date32(): scan.DATE,
}


def _wanted(fields: Sequence[Field]) -> scan.Wanted:
    names = [field.name.encode() for field in fields]
    kinds = [_kind(field.type) for field in fields]
    lows, highs, scales = np.zeros((3, len(fields)), np.int64)
    for at, field in enumerate(fields):
        if kinds[at] == scan.WHOLE:
            top = 2 ** (field.type.bit_width - 1)
            lows[at], highs[at] = -top, top - 1
        elif kinds[at] == scan.DECIMAL:
            highs[at], scales[at] = field.type.precision, field.type.scale
    starts = np.cumsum([0, *map(len, names)], dtype=np.int64)
    scopes = np.array([field.scope for field in fields], np.int64)
    raw = np.frombuffer(b"".join(names) or b"\0", np.uint8)
    return scan.Wanted(raw, starts, scopes, np.array(kinds, np.int64), lows, highs, scales)

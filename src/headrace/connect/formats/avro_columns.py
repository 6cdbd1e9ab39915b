"""Avro records to columns. Importing this imports numba."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.base.schema import TIMESTAMP, TIMESTAMP_NTZ
from headrace.connect.formats import avro_scan, texts
from headrace.connect.formats.avro_schema import program
from headrace.connect.formats.avro_values import MICROS
from headrace.connect.formats.fields import Field, decimals, fields_of
from headrace.connect.formats.gather import gather
from headrace.connect.formats.json_scan import found_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headrace.connect.formats.avro_schema import Parsed
    from headrace.connect.formats.framing import Records

    Array = np.ndarray[Any, Any]


_SAFE = {
    (pa.int64(), pa.int32()), (pa.int64(), pa.int16()), (pa.int64(), pa.int8()), (pa.int64(), pa.float64()),
    (pa.float32(), pa.float64()),
}  # fmt: skip


class Columns:
    """Records of one schema as columns: `bad` and `reasons` say which are none, by their place."""

    def __init__(
        self, records: Records, written: Parsed, schema: pa.Schema, aliases: Mapping[str, Sequence[str]]
    ) -> None:
        fields = fields_of(schema)
        self.data, self.count = records.data, len(records.rows)
        self.program = program(written, fields, aliases)
        self.found = found_of(sum(1 for field in fields for _ in field.all()), self.count)
        avro_scan.scan(records.data, records.starts, records.ends, self.program.steps, self.found)
        self.bad = self.found.bad
        self.reasons: dict[int, str] = {}
        self.columns = [self._column(field) for field in fields]

    def _column(self, field: Field) -> pa.Array:
        read = (self.found.states[field.number] >= avro_scan.READ) & ~self.bad
        if field.inside:
            columns = [self._column(each) for each in field.inside]
            kinds = [pa.field(each.name, each.type) for each in field.inside]
            return pa.StructArray.from_arrays(columns, fields=kinds, mask=pa.array(~read))
        kind = self.program.kinds.get(field.number)
        if kind is None:
            return pa.nulls(self.count, field.type)
        return self._declared(field, self._natural(field, kind, read))

    def _natural(self, field: Field, kind: Any, read: Array) -> pa.Array:
        """Return the values as the type that Avro has."""
        name, logical, nulls = kind["type"], kind.get("logicalType"), ~read
        numbers = self.found.numbers[field.number]
        if name in ("string", "bytes", "fixed"):
            return self._bytes(field, kind, read)
        if name == "boolean":
            return pa.array(numbers == 1, mask=nulls)
        if name == "float":
            return pa.array(np.where(read, numbers, 0).astype(np.int32).view(np.float32), mask=nulls)
        if name == "double":
            return pa.array(numbers.view(np.float64), mask=nulls)
        if name == "enum":
            return pa.array(kind["symbols"], pa.string()).take(pa.array(numbers, mask=nulls))
        if logical == "date":
            return pa.array(np.where(read, numbers, 0).astype(np.int32), mask=nulls).view(pa.date32())
        if logical and "timestamp-" in logical:
            return self._times(field, logical, numbers, read)
        return pa.array(numbers, mask=nulls)

    def _times(self, field: Field, logical: str, numbers: Array, read: Array) -> pa.Array:
        factor = MICROS.get(logical.rpartition("-")[2], 1)
        if factor > 1:
            limit = (2**63 - 1) // factor
            far = read & ((numbers > limit) | (numbers < -limit))
            self._refuse(far, f"the field {field.path} is out of the range of times")
            read = read & ~far
        micros = np.where(read, numbers, 0)
        micros = micros * factor if factor else micros // 1_000
        return pa.array(micros, mask=~read).view(TIMESTAMP_NTZ if logical.startswith("local") else TIMESTAMP)

    def _bytes(self, field: Field, kind: Any, read: Array) -> pa.Array:
        starts, lengths = self.found.starts[field.number], self.found.lengths[field.number]
        if kind.get("logicalType") == "decimal":
            wide, far = np.zeros((self.count, 2), np.int64), np.zeros(self.count, np.bool_)
            avro_scan.whole(self.data, starts, lengths, read, wide, far)
            self._refuse(far, f"the field {field.path} has more than 38 digits")
            return decimals(wide, ~read | far, pa.decimal128(38, kind.get("scale", 0)))
        texts = gather(self.data, starts, lengths, read, np.zeros(self.count, np.bool_))
        is_text = pa.types.is_string(field.type) or (kind["type"] == "string" and not pa.types.is_binary(field.type))
        if not is_text:
            return texts.view(pa.binary())
        try:
            texts.validate(full=True)
        except pa.ArrowInvalid:
            raw = texts.view(pa.binary())
            texts = pa.array([_text(each) for each in raw.to_pylist()], pa.string())
            self._refuse(np.asarray(pc.is_null(texts)) & read, f"the field {field.path} is not UTF-8")
        return texts

    def _declared(self, field: Field, natural: pa.Array) -> pa.Array:
        """Return values as the declared type, by JSON's rules where that may fail."""
        if natural.type == field.type:
            return natural
        is_decimal = pa.types.is_decimal(natural.type) and pa.types.is_decimal(field.type)
        if is_decimal or (natural.type, field.type) in _SAFE:
            try:
                return pc.cast(natural, field.type)
            except pa.ArrowInvalid:
                pass
        read = texts.read([natural], pa.schema([(field.name, field.type)]))
        for row in np.flatnonzero(~np.asarray(read.good)).tolist():
            self.reasons.setdefault(row, read.reasons[row].as_py().replace(field.name, field.path, 1))
        return texts.spread(read)[0]

    def _refuse(self, rows: Array, reason: str) -> None:
        for row in np.flatnonzero(rows).tolist():
            self.reasons.setdefault(row, reason)


def _text(value: bytes | None) -> str | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return None

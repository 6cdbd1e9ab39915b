"""The format `debezium`: the envelope of change data, as JSON with or without its schema."""

from __future__ import annotations

import base64
import binascii
import json
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.base.errors import InvalidPlan
from headrace.connect.format import VALUE, Encoded, Format, Formatted
from headrace.connect.formats import texts
from headrace.connect.formats.calendar_text import date_text, time_text
from headrace.connect.formats.json_format import JsonFormat
from headrace.connect.formats.verdicts import Verdicts

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

UNITS = {"seconds": (1_000_000, 1), "millis": (1_000, 1), "micros": (1, 1), "nanos": (1, 1_000)}
"""How many microseconds a unit is, as a fraction."""
EMPTIED = (
    "a table was emptied (op t), and the event names no rows: in the other database, delete them by DELETE instead of "
    "TRUNCATE; here, write a tombstone for each key"
)
_UNITS = {
    "io.debezium.time.Timestamp": "millis",
    "io.debezium.time.MicroTimestamp": "micros",
    "io.debezium.time.NanoTimestamp": "nanos",
    "org.apache.kafka.connect.data.Timestamp": "millis",
}
_DECIMAL = "org.apache.kafka.connect.data.Decimal"
_NUMERIC = "io.debezium.data.VariableScaleDecimal"
"""A decimal of a column without a scale: an object with the value's scale and its bytes."""
_ABSENT = "__debezium_unavailable_value"
"""What Debezium writes for a long value that was not changed, so that PostgreSQL did not log it."""
_NOT_CARRIED = (
    "the field {} is not in the event, because it is long and was not changed: "
    "ALTER TABLE … REPLICA IDENTITY FULL in the other database lets events have it"
)
_OF_EVENT, _OF_SOURCE = "__", "__source_"
_ROWS = ("c", "r", "u", "d")
_PAYLOAD = b'"payload":'
_NUMBER = r"^-?[0-9]{1,19}$"
_BEFORE, _DELETED = "_before", "_deleted"
_SAID = {
    "before": '{"before":',
    "after": ',"after":',
    "op": ',"source":{"connector":"headrace"},"op":"',
    "end": '","ts_ms":null}',
}
"""What stands around the parts of an event that is written."""


class Part(NamedTuple):
    """Rows with the numbers of their records, and whether they are deletions."""

    rows: pa.RecordBatch
    at: Any
    gone: Any


class Encodings(NamedTuple):
    """How a connector writes what JSON has no type for: units of times and scales of decimals, by column."""

    times: Mapping[str, str]
    scales: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class DebeziumFormat(Format):
    """Debezium's envelope as JSON; `debezium` creates it."""

    takes_before: ClassVar[bool] = True

    times: str = "micros"
    decimals: str = "precise"

    @property
    def name(self) -> str:
        """`"debezium"`."""
        return "debezium"

    @property
    def identity(self) -> str:
        """The name and the options."""
        return f"debezium(times={self.times!r}, decimals={self.decimals!r})"

    def decode(self, values: pa.Array, schema: pa.Schema) -> Formatted:
        """Return changes as rows: of a deletion the row before it, and `deleted` is true."""
        verdicts = Verdicts(len(values))
        values = values.cast(pa.binary())
        parts = []
        for described, rows in _by_schema(values):
            read = JsonFormat().decode(values.take(pa.array(rows)), _envelope(schema))
            reasons = read.reasons.drop_null().to_pylist()
            verdicts.refuse_each(dict(zip(rows[~np.asarray(read.good)].tolist(), reasons, strict=True)))
            written = self._encodings(schema) if described is None else described
            parts.append(_changes(_event(read.rows), rows[np.asarray(read.good)], schema, written, verdicts))
        return _together(parts, schema, verdicts)

    def encode(self, rows: pa.RecordBatch) -> pa.Array:
        """Return rows as events: `u` with what a row was (`_before`), `c` where that is null, `d` if it is `_deleted`.

        A deleted row that does not say what it was has its key before it. Times are ISO text, decimals are numbers.
        """
        row = rows.select([name for name in rows.schema.names if name not in (_BEFORE, _DELETED)])
        after, nothing = JsonFormat().encode(row), pa.scalar("null")
        before, op = nothing, pa.scalar("c")
        if _BEFORE in rows.schema.names:
            old = rows.column(_BEFORE)
            before = pc.if_else(pc.is_valid(old), JsonFormat().encode(_unpacked(old)), nothing)
            op = pc.if_else(pc.is_valid(old), "u", op)
        if _DELETED in rows.schema.names:
            gone = rows.column(_DELETED)
            before = pc.if_else(gone, pc.if_else(pc.equal(before, nothing), after, before), before)
            after, op = pc.if_else(gone, nothing, after), pc.if_else(gone, "d", op)
        parts = [_SAID["before"], before, _SAID["after"], after, _SAID["op"], op, _SAID["end"]]
        return pc.binary_join_element_wise(*parts, pa.scalar(""))

    def encode_changes(self, rows: pa.RecordBatch, names: Sequence[str], keys: pa.Array) -> Encoded:
        """Return an event of each row, and after that of a deletion a tombstone, as Debezium does."""
        del keys
        said = rows.select([*names, *(name for name in (_BEFORE, _DELETED) if name in rows.schema.names)])
        values = self.encode(said)
        if _DELETED not in rows.schema.names or not rows.column(_DELETED).true_count:
            return Encoded(pa.record_batch({VALUE: values}))
        gone = np.asarray(rows.column(_DELETED))
        owners = np.repeat(np.arange(len(gone)), 1 + gone)
        events = np.searchsorted(owners, np.arange(len(gone)))
        tombstones = np.ones(len(owners), np.bool_)
        tombstones[events] = False
        values = values.take(pa.array(owners, mask=tombstones))
        return Encoded(pa.record_batch({VALUE: values}), pa.array(owners), pa.array(events))

    def _encodings(self, schema: pa.Schema) -> Encodings:
        precise = self.decimals == "precise"
        times = {
            field.name: self.times
            for field in schema
            if pa.types.is_timestamp(field.type) and not field.name.startswith(_OF_EVENT)
        }
        scales = {field.name: field.type.scale for field in schema if precise and pa.types.is_decimal(field.type)}
        return Encodings(times, scales)


def debezium(
    *,
    times: Literal["seconds", "millis", "micros", "nanos"] = "micros",
    decimals: Literal["precise", "string"] = "precise",
) -> DebeziumFormat:
    """Return the format of Debezium's change events in JSON: a table follows another database's table.

    An event may have its schema inside (`value.converter.schemas.enable`): it then says how columns are written. The
    options are for events without. Columns named `__op`, `__ts_ms` and `__source_NAME` are the event's, `source.NAME`.

    Args:
        times: the unit of numbers that are timestamps: `time.precision.mode`. ISO text is read as well.
        decimals: "precise": bytes in base64 with the declared scale, Debezium's default; "string": numbers and text.

    Raises:
        InvalidPlan: an option is none of these.

    """
    if times not in UNITS or decimals not in ("precise", "string"):
        raise InvalidPlan(
            f"debezium(times={times!r}, decimals={decimals!r}) is not known",
            detail=f'times is one of {", ".join(UNITS)}; decimals is "precise" or "string".',
        )
    return DebeziumFormat(times=times, decimals=decimals)


def _unpacked(rows: pa.Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(rows.flatten(), names=[field.name for field in rows.type])


def _by_schema(values: pa.Array) -> list[tuple[Encodings | None, Any]]:
    """Return the records that have a value, by how their schema says that they are written; None: they have none."""
    found: dict[bytes, tuple[Encodings | None, list[int]]] = {b"": (None, [])}
    last = b""
    for row, value in enumerate(values.to_pylist()):
        if value is None:  # a tombstone, which follows a deletion
            continue
        if not last or not value.startswith(last):
            at = value.find(_PAYLOAD) if value[:20].lstrip(b"{ \n\t").startswith(b'"schema"') else -1
            last = value[: at + len(_PAYLOAD)] if at >= 0 else b""
            if last not in found:
                found[last] = (_described(last), [])
        found[last][1].append(row)
    return [(described, np.array(rows, np.int64)) for described, rows in found.values() if rows]


def _described(start: bytes) -> Encodings:
    """Return what the schema at the start of an event says."""
    times: dict[str, str] = {}
    scales: dict[str, int] = {}
    try:
        schema = json.loads(start + b"null}")["schema"]
    except (ValueError, KeyError):
        return Encodings(times, scales)
    for row in (schema or {}).get("fields") or ():
        for field in (row.get("fields") or ()) if row.get("field") in ("after", "before") else ():
            name, kind = field.get("field"), field.get("name")
            if kind in _UNITS:
                times[name] = _UNITS[kind]
            elif kind == _NUMERIC:
                scales[name] = 0
            elif kind == _DECIMAL:
                scales[name] = int((field.get("parameters") or {}).get("scale", 0))
    return Encodings(times, scales)


def _raw(field: pa.Field) -> pa.Field:
    """Return a column as it is read first: what may be written in several ways is text."""
    kind = field.type
    is_text = pa.types.is_timestamp(kind) or pa.types.is_date(kind) or pa.types.is_decimal(kind)
    return pa.field(field.name, pa.string() if is_text else kind)


def _envelope(schema: pa.Schema) -> pa.Schema:
    inside = [_raw(field) for field in schema if not field.name.startswith(_OF_EVENT)]
    source = [
        pa.field(field.name.removeprefix(_OF_SOURCE), _raw(field).type)
        for field in schema
        if field.name.startswith(_OF_SOURCE)
    ]
    row = pa.struct(inside or [pa.field("_", pa.string())])
    event = [
        pa.field("before", row),
        pa.field("after", row),
        pa.field("op", pa.string()),
        pa.field("ts_ms", pa.string()),
    ]
    if source:
        event.append(pa.field("source", pa.struct(source)))
    return pa.schema([*event, pa.field("payload", pa.struct(event))])


def _event(rows: pa.RecordBatch) -> dict[str, pa.Array]:
    payload = rows.column("payload")
    within = pc.is_valid(payload)
    return {
        name: pc.if_else(within, pc.struct_field(payload, name), rows.column(name))
        for name in rows.schema.names
        if name != "payload"
    }


def _changes(event: Mapping[str, pa.Array], at: Any, schema: pa.Schema, written: Encodings, verdicts: Verdicts) -> Part:
    """Return the rows of events, which are the records `at`."""
    ops = event["op"].to_pylist()
    gone = np.array([op == "d" for op in ops], np.bool_)
    row = pc.if_else(pa.array(gone), event["before"], event["after"])
    absent = np.asarray(pc.is_null(row))
    for record, op, empty in zip(at.tolist(), ops, absent.tolist(), strict=True):
        if op == "t":
            verdicts.refuse_each({record: EMPTIED})
        elif op not in _ROWS and op != "m":  # m is a message in the other database's log
            verdicts.refuse_each({record: f"it is no change: its op is {op}"})
        elif op in _ROWS and empty:
            verdicts.refuse_each({record: f"its {'before' if op == 'd' else 'after'} is null"})
    kept = np.flatnonzero(~absent & np.array([op in _ROWS for op in ops], np.bool_))
    take = pa.array(kept)
    columns = _columns(schema, row.take(take), {name: each.take(take) for name, each in event.items()})
    found, failed = _converted(columns, schema, written)
    verdicts.refuse_each({int(at[kept[place]]): reason for place, reason in failed.items()})
    good = np.array([place not in failed for place in range(len(kept))], np.bool_)
    rows = pa.RecordBatch.from_arrays([each.filter(pa.array(good)) for each in found], names=schema.names)
    return Part(rows, at[kept[good]], gone[kept[good]])


def _columns(schema: pa.Schema, row: pa.Array, event: Mapping[str, pa.Array]) -> dict[str, pa.Array]:
    columns = {}
    for field in schema:
        if field.name.startswith(_OF_SOURCE):
            columns[field.name] = pc.struct_field(event["source"], field.name.removeprefix(_OF_SOURCE))
        elif field.name.startswith(_OF_EVENT):
            found = event.get(field.name.removeprefix(_OF_EVENT))
            columns[field.name] = pa.nulls(len(row), pa.string()) if found is None else found
        else:
            columns[field.name] = pc.struct_field(row, field.name)
    return columns


def _converted(
    columns: Mapping[str, pa.Array], schema: pa.Schema, written: Encodings
) -> tuple[list[pa.Array], dict[int, str]]:
    """Return columns as declared, and by row why one is not."""
    found, failed = [], dict[int, str]()
    for field in schema:
        column = columns[field.name]
        for row in _absent(column):
            failed.setdefault(row, _NOT_CARRIED.format(field.name))
        if column.type != field.type:
            if field.name in written.scales and pa.types.is_decimal(field.type):
                column = _from_bytes(column, written.scales[field.name])
            elif pa.types.is_date(field.type):
                column = _as_text(column, date_text)
            elif pa.types.is_timestamp(field.type):
                unit = UNITS[written.times.get(field.name, "millis")]
                column = _as_text(column, partial(_time_text, unit=unit))
            read = texts.read([column], pa.schema([field]))
            for row in np.flatnonzero(~np.asarray(read.good)).tolist():
                failed.setdefault(row, read.reasons[row].as_py())
            column = texts.spread(read)[0]
        found.append(column)
    return found, failed


def _absent(column: pa.Array) -> list[int]:
    """Return the rows in which a column has Debezium's placeholder: as text, bytes, a list of it or of its bytes."""
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        found = pc.equal(column, pa.scalar(_ABSENT if pa.types.is_string(kind) else _ABSENT.encode(), kind))
        return np.flatnonzero(np.asarray(pc.fill_null(found, fill_value=False))).tolist()
    if not pa.types.is_list(kind):
        return []
    written = [_ABSENT] if pa.types.is_string(kind.value_type) else list(_ABSENT.encode())
    alike = pc.fill_null(pc.equal(pc.list_value_length(column), len(written)), fill_value=False)
    return [row for row in np.flatnonzero(np.asarray(alike)).tolist() if column[row].as_py() == written]


def _time_text(number: int, *, unit: tuple[int, int]) -> str:
    return time_text(number * unit[0] // unit[1], "Z")


def _as_text(column: pa.Array, text: Callable[[int], str]) -> pa.Array:
    """Return times or dates as ISO text: numbers by a function, and text as it is."""
    number = pc.fill_null(pc.match_substring_regex(column, _NUMBER), fill_value=False)
    if not pc.any(number).as_py():
        return column
    written = [text(int(each)) for each in column.filter(number).to_pylist()]
    return pc.replace_with_mask(column, number, pa.array(written, pa.string()))


def _from_bytes(column: pa.Array, scale: int) -> pa.Array:
    found: list[str | None] = []
    for each in column.to_pylist():
        if each is None:
            found.append(None)
            continue
        try:
            own = json.loads(each) if each.startswith("{") else {"value": each, "scale": scale}
            steps = int.from_bytes(base64.b64decode(own["value"], validate=True), "big", signed=True)
            found.append(f"{Decimal((int(steps < 0), tuple(map(int, str(abs(steps)))), -int(own['scale']))):f}")
        except (binascii.Error, ValueError, KeyError, TypeError):
            found.append(each + " is no base64")
    return pa.array(found, pa.string())


def _together(parts: Sequence[Part], schema: pa.Schema, verdicts: Verdicts) -> Formatted:
    """Return the rows of all parts in the order of their records."""
    empty = pa.schema([(field.name, field.type) for field in schema]).empty_table()
    rows = pa.concat_tables([empty, *(pa.Table.from_batches([part.rows]) for part in parts)])
    at = np.concatenate([np.zeros(0, np.int64), *(part.at for part in parts)])
    gone = np.concatenate([np.zeros(0, np.bool_), *(part.gone for part in parts)])
    order = np.argsort(at, kind="stable")
    batches = rows.take(pa.array(order)).combine_chunks().to_batches()
    about = verdicts.formatted([], [])
    return Formatted(
        batches[0] if batches else pa.RecordBatch.from_pylist([], schema=empty.schema),
        about.good,
        about.reasons,
        pa.array(gone[order]),
        pa.array(at[order]),
    )

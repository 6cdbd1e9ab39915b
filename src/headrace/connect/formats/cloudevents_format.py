"""The format `cloudevents`: CloudEvents 1.0 in Kafka's binding, with data in JSON."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.base.errors import InvalidPlan
from headrace.connect.encoding import present_alone
from headrace.connect.format import HEADERS, HEADERS_TYPE, VALUE, Encoded, Format, Formatted
from headrace.connect.formats import texts
from headrace.connect.formats.json_format import JsonFormat
from headrace.connect.formats.json_text import encode as as_json
from headrace.connect.formats.json_text import json_of, text_of
from headrace.connect.formats.json_values import BadValue, json_text_of, parsed
from headrace.connect.formats.plain import NO_RECORD
from headrace.connect.formats.verdicts import Verdicts

if TYPE_CHECKING:
    from collections.abc import Sequence

PREFIX = "ce_"
NEEDED = ("specversion", "id", "source", "type")
_STRUCTURED, _BATCH = b"application/cloudevents", b"application/cloudevents-batch"
_DATA, _NOTHING = "data", ""
_LARGEST_BATCH = 1 << 18
"""So many bytes of events are in a batch, if one alone is not larger: brokers take a megabyte as they are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudEventsFormat(Format):
    """CloudEvents; `cloudevents` creates it."""

    columns: ClassVar[Sequence[str]] = (VALUE, HEADERS)

    source: str | None = None
    type: str | None = None
    mode: str = "structured"
    size: int = 100

    @property
    def name(self) -> str:
        """`"cloudevents"`."""
        return "cloudevents"

    def decode(self, values: pa.Array, schema: pa.Schema) -> Formatted:
        """Return records without headers as rows: events in structured mode, or batches."""
        headers = pa.nulls(len(values), HEADERS_TYPE)
        return self.decode_records(pa.record_batch({VALUE: values, HEADERS: headers}), schema)

    def decode_records(self, records: pa.RecordBatch, schema: pa.Schema) -> Formatted:
        """Return records as rows, in whatever mode each is; of a batch, a row an event."""
        values = records.column(VALUE).cast(pa.binary())
        verdicts = Verdicts(len(values))
        headers = _Headers(records.column(HEADERS))
        kind = headers.value("content-type")
        binary = np.asarray(pc.is_valid(headers.value("ce_specversion")))
        absent = np.asarray(pc.is_null(values)) & ~binary
        verdicts.refuse(absent, NO_RECORD)
        starts = np.asarray(pc.fill_null(pc.starts_with(kind, pattern=_BATCH.decode()), fill_value=False))
        batch = ~binary & ~absent & (starts | _begins(values, b"["))
        single = np.flatnonzero(~binary & ~absent & ~batch)
        parts = [_structured(values.take(pa.array(single)), single, schema, verdicts)]
        parts.append(_batches(values, np.flatnonzero(batch), schema, verdicts))
        parts.append(_binary(values, headers, np.flatnonzero(binary), schema, verdicts))
        return _together(parts, schema, verdicts)

    def encode(self, rows: pa.RecordBatch) -> pa.Array:
        """Return rows as events in structured mode."""
        attributes, data = self._attributes(rows)
        parts: list[Any] = []
        for at, (name, column) in enumerate(attributes.items()):
            present = pc.binary_join_element_wise(pa.scalar(f'{"," if at else ""}"{name}":'), json_of(column), _NOTHING)
            parts.append(pc.if_else(pc.is_valid(column), present, _NOTHING))
        end = pa.scalar("}")
        return pc.binary_join_element_wise(
            pa.scalar("{"), *parts, pa.scalar(',"datacontenttype":"application/json","data":'), data, end, _NOTHING
        )

    def encode_records(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return rows as events, with headers."""
        if self.mode != "binary":
            return pa.record_batch({VALUE: self.encode(rows), HEADERS: _typed(rows.num_rows, _STRUCTURED)})
        attributes, data = self._attributes(rows)
        columns = [(PREFIX + name, column.to_pylist()) for name, column in attributes.items()]
        columns.append(("content-type", ["application/json"] * rows.num_rows))
        headers = [
            [{"name": name, "value": values[row].encode()} for name, values in columns if values[row] is not None]
            for row in range(rows.num_rows)
        ]
        return pa.record_batch({VALUE: data, HEADERS: pa.array(headers, HEADERS_TYPE)})

    def encode_changes(self, rows: pa.RecordBatch, names: Sequence[str], keys: pa.Array) -> Encoded:
        """Return records of rows: in batches, where that is the mode, of events with one key in their order."""
        if self.mode != "batch" or not rows.num_rows:
            return Format.encode_changes(self, rows, names, keys)
        gone = np.zeros(rows.num_rows, np.bool_)
        if "_deleted" in rows.schema.names:
            gone = np.asarray(rows.column("_deleted"))
        events = present_alone(rows, names, self.encode_records).column(VALUE)
        order, records = _in_batches(events, keys, gone, self.size)
        starts = np.flatnonzero(np.diff(records, prepend=-1))
        lists = pa.ListArray.from_arrays(
            pa.array(np.append(starts, len(order)), pa.int32()), events.take(pa.array(order))
        )
        values = pc.binary_join_element_wise(pa.scalar("["), pc.binary_join(lists, ","), pa.scalar("]"), _NOTHING)
        lasts = order[np.append(starts[1:], len(order)) - 1]
        by_row = np.argsort(lasts)  # records come in the order of their last events
        places = np.empty(len(order), np.int64)
        places[order] = np.argsort(by_row)[records]
        headers = _typed(len(lasts), _BATCH)
        found = pa.record_batch({VALUE: values.take(pa.array(by_row)), HEADERS: headers})
        return Encoded(found, pa.array(lasts[by_row]), pa.array(places))

    def _attributes(self, rows: pa.RecordBatch) -> tuple[dict[str, pa.Array], pa.Array]:
        """Return the attributes of each event as text, and its data as JSON."""
        own = {
            name.removeprefix(PREFIX): text_of(rows.column(name))
            for name in rows.schema.names
            if name.startswith(PREFIX)
        }
        count = rows.num_rows
        given = {"specversion": "1.0", "source": self.source, "type": self.type}
        found = {name: pa.repeat(pa.scalar(value), count) for name, value in given.items() if value is not None}
        raw = os.urandom(16 * count).hex()
        ids = pa.array([raw[at * 32 : at * 32 + 32] for at in range(count)], pa.string())
        found["id"] = pc.coalesce(own.pop("id"), ids) if "id" in own else ids
        for name, column in own.items():
            found[name] = pc.coalesce(column, found[name]) if name in found else column
        for name in NEEDED:
            if name not in found or found[name].null_count:
                raise InvalidPlan(
                    f'an event has no "{name}", which CloudEvents needs',
                    hint=f'Say cloudevents({name}="…"), or give the rows a column "{PREFIX}{name}".',
                )
        names = [name for name in rows.schema.names if not name.startswith(PREFIX)]
        return found, as_json(rows.select(names))


def _typed(count: int, kind: bytes) -> pa.Array:
    """Return the headers of so many records of events in JSON."""
    return pa.array([[{"name": "content-type", "value": kind + b"+json; charset=UTF-8"}]] * count, HEADERS_TYPE)


def _in_batches(events: pa.Array, keys: pa.Array, gone: Any, size: int) -> tuple[Any, Any]:
    """Return the rows in the order of their batches, and the number of the batch of each; a deletion is alone."""
    codes = pc.fill_null(keys.dictionary_encode().indices, -1).to_numpy(zero_copy_only=False)
    order = np.argsort(codes, kind="stable")
    alone, code = gone[order], codes[order]
    begins = alone.copy()
    begins[0] = True
    begins[1:] |= alone[:-1] | (code[1:] != code[:-1])
    bytes_of = np.asarray(pc.fill_null(pc.binary_length(events), 0))[order]
    records, count, filled = np.empty(len(order), np.int64), 0, 0
    number = -1
    for place, (begin, length) in enumerate(zip(begins.tolist(), bytes_of.tolist(), strict=True)):
        if begin or count == size or filled + length > _LARGEST_BATCH:
            number, count, filled = number + 1, 0, 0
        records[place] = number
        count, filled = count + 1, filled + length
    return order, records


class _Headers:
    """The headers of records, by their names."""

    def __init__(self, headers: pa.Array) -> None:
        self.count = len(headers)
        self.owners = np.asarray(pc.list_parent_indices(headers))
        flat = pc.list_flatten(headers)
        self.names = pc.utf8_lower(pc.struct_field(flat, "name"))
        self.values = pc.struct_field(flat, "value")

    def value(self, name: str) -> pa.Array:
        """Return each record's first header of a name as text, null without one or where it is no text."""
        at = np.flatnonzero(np.asarray(pc.fill_null(pc.equal(self.names, name), fill_value=False)))
        places = np.full(self.count, -1, np.int64)
        places[self.owners[at[::-1]]] = at[::-1]
        return texts.text_or_null(self.values.take(pa.array(places, mask=places < 0)))


def _begins(values: pa.Array, mark: bytes) -> Any:
    trimmed = pc.ascii_ltrim_whitespace(texts.text_or_null(values))
    return np.asarray(pc.fill_null(pc.starts_with(trimmed, pattern=mark.decode()), fill_value=False))


def _split(schema: pa.Schema) -> tuple[list[pa.Field], list[pa.Field]]:
    """Return the columns that are attributes, and those of the data."""
    attributes = [field for field in schema if field.name.startswith(PREFIX)]
    return attributes, [field for field in schema if not field.name.startswith(PREFIX)]


def _structured(values: pa.Array, at: Any, schema: pa.Schema, verdicts: Verdicts) -> tuple[pa.RecordBatch, Any]:
    """Return events as rows with the numbers of their records."""
    attributes, inside = _split(schema)
    wanted = {field.name.removeprefix(PREFIX): field.type for field in attributes}
    wanted = dict.fromkeys(NEEDED, pa.string()) | wanted
    data = pa.struct(inside or [pa.field("_", pa.string())])
    fields = [pa.field(name, kind) for name, kind in wanted.items()]
    read = JsonFormat().decode(
        values, pa.schema([*fields, pa.field(_DATA, data), pa.field("data_base64", pa.string())])
    )
    reasons = read.reasons.drop_null().to_pylist()
    verdicts.refuse_each(dict(zip(at[~np.asarray(read.good)].tolist(), reasons, strict=True)))
    at = at[np.asarray(read.good)]
    bad = np.zeros(len(at), np.bool_)
    for name in NEEDED:
        absent = np.asarray(pc.is_null(read.rows.column(name)))
        verdicts.refuse_each(dict.fromkeys(at[absent].tolist(), f"it is no CloudEvent: it has no {name}"))
        bad |= absent
    encoded = np.asarray(pc.is_valid(read.rows.column("data_base64")))
    verdicts.refuse_each(dict.fromkeys(at[encoded].tolist(), "its data is binary, and not JSON"))
    good = pa.array(~(bad | encoded))
    found = read.rows.column(_DATA)
    columns = [
        read.rows.column(field.name.removeprefix(PREFIX))
        if field.name.startswith(PREFIX)
        else pc.struct_field(found, field.name)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays([each.filter(good) for each in columns], names=schema.names), at[np.asarray(good)]


def _batches(values: pa.Array, at: Any, schema: pa.Schema, verdicts: Verdicts) -> tuple[pa.RecordBatch, Any]:
    """Return the events of batches; if one of them is bad, its record is, and none of the others is taken."""
    events: list[str] = []
    owners: list[int] = []
    for record, value in zip(at.tolist(), values.take(pa.array(at)).to_pylist(), strict=True):
        try:
            found = parsed(value.decode())
            if not isinstance(found, list):
                raise BadValue("it is no batch of CloudEvents")
        except ValueError:
            verdicts.refuse_each({record: "it is no batch of CloudEvents"})
            continue
        events += [json_text_of(each) if isinstance(each, dict) else "null" for each in found]
        owners += [record] * len(found)
    rows, where = _structured(pa.array(events, pa.string()), np.array(owners, np.int64), schema, verdicts)
    good = verdicts.codes[where] < 0
    return rows.filter(pa.array(good)), where[good]


def _binary(
    values: pa.Array, headers: _Headers, at: Any, schema: pa.Schema, verdicts: Verdicts
) -> tuple[pa.RecordBatch, Any]:
    """Return the events whose attributes are headers."""
    take = pa.array(at)
    for name in NEEDED:
        absent = np.asarray(pc.is_null(headers.value(PREFIX + name).take(take)))
        verdicts.refuse_each(dict.fromkeys(at[absent].tolist(), f"it is no CloudEvent: it has no {PREFIX}{name}"))
    kind = headers.value("content-type").take(take)
    is_json = np.asarray(pc.fill_null(pc.match_substring_regex(kind, r"^[^;]*[/+]json\s*(;|$)"), fill_value=True))
    verdicts.refuse_each(dict.fromkeys(at[~is_json].tolist(), "its data is not JSON, by its content-type"))
    data = pc.fill_null(values.take(take), b"{}")  # an event may have no data
    columns: dict[str, pa.Array] = {}
    attributes, inside = _split(schema)
    for wanted, read in (
        (attributes, [headers.value(field.name).take(take) for field in attributes]),
        (inside, data),
    ):
        part = pa.schema(wanted)
        if isinstance(read, list):
            found = texts.read(read, part) if read else None
        else:
            found = JsonFormat().decode(read, part if len(part) else pa.schema([pa.field("_", pa.string())]))
        if found is None:
            continue
        rows = np.flatnonzero(~np.asarray(found.good))
        reasons = found.reasons.take(pa.array(rows)).to_pylist()
        verdicts.refuse_each(dict(zip(at[rows].tolist(), reasons, strict=True)))
        columns |= dict(zip(part.names, texts.spread(found), strict=False))
    good = verdicts.codes[at] < 0
    kept = [columns[name].filter(pa.array(good)) for name in schema.names]
    return pa.RecordBatch.from_arrays(kept, names=schema.names), at[good]


def _together(parts: Sequence[tuple[pa.RecordBatch, Any]], schema: pa.Schema, verdicts: Verdicts) -> Formatted:
    """Return the rows of all modes in the order of their records."""
    plain = pa.schema([(field.name, field.type) for field in schema])
    rows = pa.Table.from_batches([pa.RecordBatch.from_arrays(part.columns, schema=plain) for part, _ in parts])
    at = np.concatenate([where for _, where in parts])
    order = np.argsort(at, kind="stable")
    batches = rows.take(pa.array(order)).combine_chunks().to_batches()
    about = verdicts.formatted([], [])
    return Formatted(
        batches[0] if batches else pa.RecordBatch.from_pylist([], schema=plain),
        about.good,
        about.reasons,
        None,
        pa.array(at[order], pa.int64()),
    )


def cloudevents(
    *,
    source: str | None = None,
    type: str | None = None,  # noqa: A002 -- the attribute's name
    mode: Literal["structured", "binary", "batch"] = "structured",
    size: int = 100,
) -> CloudEventsFormat:
    """Return the format of CloudEvents 1.0 whose data is a JSON object.

    Columns named `ce_NAME` are attributes (`ce_id`, `ce_source`, `ce_type`, `ce_time`, `ce_subject`, extensions); the
    others are fields of the data. Any mode is read: structured, binary (attributes in headers), and batches, of which
    each event is a row. Without a column `ce_id` each written event has a random id.

    Args:
        source: of written events, where rows have no column `ce_source`.
        type: the same of `ce_type`.
        mode: how events are written: "structured" or "binary", one a record; or "batch", where a record of Kafka has
            events of one epoch with the same key in their order. In the embedded log a batch has one event.
        size: the most events of a batch, which has a quarter of a megabyte at most unless one event is larger.

    Raises:
        InvalidPlan: the mode is none of these, or the size is below 1.

    """
    if mode not in ("structured", "binary", "batch"):
        raise InvalidPlan(f"cloudevents(mode={mode!r}) is not known", hint='It is "structured", "binary" or "batch".')
    if size < 1:
        raise InvalidPlan(f"cloudevents(size={size}) is not possible", hint="A batch has at least one event.")
    return CloudEventsFormat(source=source, type=type, mode=mode, size=size)

"""Avro's values as JSON has them, one by one, and rows as Avro's values: what compiled code does not read or write."""

from __future__ import annotations

import base64
import math
from decimal import Context, Decimal
from io import BytesIO
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headrace.base.errors import InvalidPlan
from headrace.connect.formats.calendar_text import date_text, time_text
from headrace.connect.formats.json_text import plain
from headrace.connect.formats.json_values import Number

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headrace.connect.formats.avro_schema import Parsed

    Model = Callable[[Any], Any]

_WIDE = Context(prec=1_000)  # Python's own rounds to 28 digits
_READ_AS = {
    "boolean": bool,
    **dict.fromkeys(("int", "long"), int),
    **dict.fromkeys(("float", "double"), float),
    **dict.fromkeys(("bytes", "fixed"), bytes),
    **dict.fromkeys(("string", "enum"), str),
    "array": list,
    "map": dict,
}
MICROS = {"millis": 1_000, "micros": 1, "nanos": 0}


def bare(kind: Any) -> Any:
    """Return a schema without its logical types: values are then numbers and bytes, of all years and sizes."""
    if isinstance(kind, list):
        return [bare(each) for each in kind]
    if isinstance(kind, dict):
        return {
            name: bare(value) if name in ("type", "items", "values", "fields") else value
            for name, value in kind.items()
            if name not in ("logicalType", "__fastavro_parsed", "__named_schemas")
        }
    return kind


def read(record: bytes, schema: Any) -> Any:
    """Return a record's value by a schema that is `bare`.

    Raises:
        ValueError: it is none.

    """
    from fastavro import schemaless_reader

    stream = BytesIO(record)
    try:
        found = schemaless_reader(stream, schema, None)
    except (EOFError, ValueError, IndexError, KeyError, TypeError, OverflowError, MemoryError, RecursionError) as error:
        raise ValueError(str(error)) from error
    if stream.tell() != len(record):
        raise ValueError("bytes are left")
    return found


def model(written: Parsed, kind: Any) -> Model:
    """Return a function from a value of `read` to what JSON has for it, for `json_values.converter`."""
    kind = written.of(kind)
    if isinstance(kind, list):
        branches = [each for each in kind if written.of(each) != {"type": "null"}]
        inner = model(written, branches[0]) if len(branches) == 1 else _of_branches(written, branches)
        return lambda value: None if value is None else inner(value)
    name, logical = kind["type"], kind.get("logicalType")
    if name in ("record", "error"):
        fields: dict[str, Model] = {}

        def record(value: Any) -> Any:
            if not fields:  # built when it is needed: a record may have itself inside
                fields.update({each["name"]: model(written, each["type"]) for each in kind["fields"]})
            return {name: fields[name](inner) for name, inner in value.items()}

        return record
    if name == "array":
        items = model(written, kind["items"])
        return lambda value: [items(each) for each in value]
    if name == "map":
        values = model(written, kind["values"])
        return lambda value: {key: values(each) for key, each in value.items()}
    if logical == "decimal":
        return lambda value: Number(
            Decimal(int.from_bytes(value, "big", signed=True)).scaleb(-kind.get("scale", 0), _WIDE)
        )
    if logical == "date":
        return date_text
    if logical and "timestamp-" in logical:
        zone = "" if logical.startswith("local") else "Z"
        factor = MICROS.get(logical.rpartition("-")[2], 1)
        return lambda value: time_text(value * factor if factor else value // 1_000, zone)
    return _plain


def _of_branches(written: Parsed, branches: Sequence[Any]) -> Model:
    """Return a function that tells by a value which branch of a union it is of; what several may have stays plain."""
    models = [(written.of(each), model(written, each)) for each in branches]

    def convert(value: Any) -> Any:
        fitting = [inner for kind, inner in models if _is_of(kind, value)]
        return fitting[0](value) if len(fitting) == 1 else _plain(value)

    return convert


def _is_of(kind: Any, value: Any) -> bool:
    if kind["type"] in ("record", "error"):
        return isinstance(value, dict) and value.keys() == {each["name"] for each in kind["fields"]}
    return type(value) is _READ_AS.get(kind["type"])


def default(written: Parsed, kind: Any, value: Any) -> Any:
    """Return a field's default, which a schema has as JSON, as `read` returns values: bytes are letters there."""
    kind = written.of(kind)
    if value is None:
        return None
    if isinstance(kind, list):
        return default(written, next(each for each in kind if written.of(each) != {"type": "null"}), value)
    if kind["type"] in ("record", "error"):
        inside = {each["name"]: each for each in kind["fields"]}
        return {
            name: default(written, each["type"], value.get(name, each.get("default"))) for name, each in inside.items()
        }
    if kind["type"] == "array":
        return [default(written, kind["items"], each) for each in value]
    if kind["type"] == "map":
        return {key: default(written, kind["values"], each) for key, each in value.items()}
    return value.encode("latin-1") if kind["type"] in ("bytes", "fixed") else value


def _plain(value: Any) -> Any:
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return value
    if isinstance(value, int):
        return Number(value)
    if isinstance(value, float):
        return Number(value) if math.isfinite(value) else str(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return {key: _plain(each) for key, each in value.items()}


def write(rows: pa.RecordBatch, written: Parsed, head: bytes) -> pa.Array:
    """Return each row as a record, after `head`.

    Raises:
        InvalidPlan: a field of the schema has neither a column nor a default, or a value is none of its type.

    """
    from fastavro import schemaless_writer

    columns = {}
    for field in written.schema["fields"]:
        if field["name"] in rows.schema.names:
            values = plain(rows.column(field["name"]))
            convert = _to(written, field["type"], rows.schema.field(field["name"]).type)
            columns[field["name"]] = [convert(value) for value in values]
        elif "default" not in field:
            raise InvalidPlan(
                f'the Avro schema has a field "{field["name"]}" without a default, and the rows have no such column',
                hint="Add the column, or give the field a default.",
            )
    schema, records = bare(written.schema), []
    names = list(columns)
    for row in zip(*columns.values(), strict=True):
        stream = BytesIO(head)
        stream.seek(len(head))
        try:
            schemaless_writer(stream, schema, dict(zip(names, row, strict=True)))
        except (ValueError, TypeError, OverflowError, AttributeError) as error:
            raise InvalidPlan(
                f"a row cannot be written with the Avro schema {written.schema.get('name')}: {error}",
                hint="Its types must be those of the columns; without schema= one is derived from them.",
            ) from error
        records.append(stream.getvalue())
    return pa.array(records, pa.binary())


def _to(written: Parsed, kind: Any, arrow: pa.DataType) -> Model:
    """Return a function from a value of a column, as `plain` has it, to one that is written."""
    kind = written.of(kind)
    if isinstance(kind, list):
        branches = [each for each in kind if written.of(each) != {"type": "null"}]
        inner = _to(written, branches[0], arrow) if len(branches) == 1 else _same
        return lambda value: None if value is None else inner(value)
    name, logical = kind["type"], kind.get("logicalType")
    if name in ("record", "error") and pa.types.is_struct(arrow):
        inside = {
            each["name"]: _to(written, each["type"], arrow.field(each["name"]).type)
            for each in kind["fields"]
            if arrow.get_field_index(each["name"]) >= 0
        }
        return lambda value: {name: convert(value[name]) for name, convert in inside.items()}
    if name == "array" and pa.types.is_list(arrow):
        item = _to(written, kind["items"], arrow.value_type)
        return lambda value: [item(each) for each in value]
    if name == "map" and pa.types.is_map(arrow):
        of = _to(written, kind["values"], arrow.item_type)
        return lambda value: {key: of(each) for key, each in value}
    if logical == "decimal":
        return _decimal(kind)
    if logical and "timestamp-" in logical:
        factor = MICROS.get(logical.rpartition("-")[2], 1)
        return lambda value: value // factor if factor else value * 1_000
    if name in ("float", "double"):
        return float
    return _same


def _decimal(kind: Any) -> Model:
    def convert(value: Any) -> bytes:
        steps = int(Decimal(value).scaleb(kind.get("scale", 0), _WIDE))
        size = kind.get("size", (steps.bit_length() + 8) // 8)
        return steps.to_bytes(size, "big", signed=True)

    return convert


def _same(value: Any) -> Any:
    return value

"""Avro schemas: as instructions for compiled code, and of rows."""

from __future__ import annotations

import json
import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from headrace.base.errors import InvalidPlan
from headrace.base.schema import TIMESTAMP, type_name
from headrace.connect.formats import avro_scan as scan

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headrace.connect.formats.fields import Field

DEEP = 30
_PLAIN = {
    "boolean": scan.BOOLEAN,
    "int": scan.LONG,
    "long": scan.LONG,
    "float": scan.FLOAT,
    "double": scan.DOUBLE,
    "bytes": scan.BYTES,
    "string": scan.BYTES,
}
_NAME = re.compile("[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


class NotFlat(Exception):
    """A schema has lists, maps or unions, which compiled code does not read."""


class Mismatch(Exception):
    """A field of a schema cannot be what is declared, with the reason."""


class Parsed(NamedTuple):
    """A schema, with all names in full, and the types that have names."""

    schema: Any
    named: dict[str, Any]

    def of(self, kind: Any) -> Any:
        """Return a type's description, also where it is meant by its name: a dictionary, or a list for a union."""
        if isinstance(kind, str):
            return self.named.get(kind, {"type": kind})
        if isinstance(kind, dict) and not isinstance(kind["type"], str):
            return self.of(kind["type"])
        return kind


@lru_cache(maxsize=1000)
def parsed(text: str) -> Parsed:
    """Return a schema that is written as JSON.

    Raises:
        ValueError: it is no schema of Avro.

    """
    import fastavro

    named: dict[str, Any] = {}
    try:
        schema = fastavro.parse_schema(json.loads(text), named_schemas=named)
    except (fastavro.schema.SchemaParseException, fastavro.schema.UnknownType, KeyError, TypeError) as error:
        raise ValueError(str(error)) from error
    return Parsed(schema, named)


class Program(NamedTuple):
    """How records of a schema are read: the instructions, and by field's number the type that is read there."""

    steps: Any
    kinds: dict[int, Any]


def program(written: Parsed, fields: Sequence[Field], aliases: Mapping[str, Sequence[str]]) -> Program:
    """Return the instructions for fields of a schema's records.

    Args:
        written: the schema with which records were written; it is a record.
        fields: what is wanted.
        aliases: other names of columns.

    Raises:
        NotFlat: it has something that compiled code does not read.
        Mismatch: a field cannot be what is wanted.

    """
    steps: list[list[int]] = []
    kinds: dict[int, Any] = {}
    _record(written, written.schema, _Target(fields, aliases), steps, kinds)
    return Program(np.array(steps, np.int64).reshape(-1, 4), kinds)


class _Target(NamedTuple):
    fields: Sequence[Field]
    aliases: Mapping[str, Sequence[str]]

    def by_name(self, names: Sequence[str]) -> dict[str, Field]:
        found = {}
        for field in self.fields:
            known = (field.name, *self.aliases.get(field.name, ()))
            match = next((name for name in known if name in names), None)
            if match is not None:
                found[match] = field
        return found


def _record(
    written: Parsed, record: Any, target: _Target, steps: list[list[int]], kinds: dict[int, Any], depth: int = 0
) -> None:
    wanted = target.by_name([each["name"] for each in record["fields"]])
    for each in record["fields"]:
        _type(written, each["type"], wanted.get(each["name"]), steps, kinds, depth)


def _type(
    written: Parsed, kind: Any, field: Field | None, steps: list[list[int]], kinds: dict[int, Any], depth: int
) -> None:
    kind, number = written.of(kind), -1 if field is None else field.number
    if depth > DEEP:
        raise NotFlat
    if isinstance(kind, list):
        branches = [each for each in kind if written.of(each) != {"type": "null"}]
        if len(branches) != 1 or len(kind) > 2:
            raise NotFlat
        step = [scan.OPTION, -1, next((at for at, each in enumerate(kind) if each not in branches), -1), 0]
        steps.append(step)
        _type(written, branches[0], field, steps, kinds, depth + 1)
        step[3] = len(steps)
        return
    name = kind["type"]
    if name == "null":
        return
    if name in ("record", "error"):
        if field is not None and not field.inside:
            raise Mismatch(f"the field {field.path} is a record, and cannot be read as {type_name(field.type)}")
        if field is not None:
            steps.append([scan.PRESENT, number, 0, 0])
        _record(written, kind, _Target(() if field is None else field.inside, {}), steps, kinds, depth + 1)
        return
    if name not in _PLAIN and name not in ("fixed", "enum"):
        raise NotFlat
    if field is not None:
        if pa.types.is_nested(field.type):
            raise Mismatch(f"the field {field.path} is {name}, and cannot be read as {type_name(field.type)}")
        kinds[number] = kind
    size = kind["size"] if name == "fixed" else len(kind["symbols"]) if name == "enum" else 0
    steps.append([{"fixed": scan.FIXED, "enum": scan.ENUM}.get(name, _PLAIN.get(name, -1)), number, size, 0])


def of_rows(schema: pa.Schema, name: str) -> str:
    """Return the schema with which rows are written: every column may be null, and is by default.

    Raises:
        InvalidPlan: a column's name is none of Avro's, or a map has keys that are not text.

    """
    return json.dumps(_of_struct(list(schema), name))


def _of_struct(fields: Sequence[pa.Field], name: str) -> dict[str, Any]:
    described = []
    for field in fields:
        if not _NAME.fullmatch(field.name):
            raise InvalidPlan(
                f'the column "{field.name}" cannot be written as Avro: its names are letters, digits and _',
                hint="Rename it: .select(…).",
            )
        described.append(
            {"name": field.name, "type": ["null", _of_type(field.type, f"{name}_{field.name}")], "default": None}
        )
    return {"type": "record", "name": name, "fields": described}


def _of_type(kind: pa.DataType, name: str) -> Any:
    if pa.types.is_struct(kind):
        return _of_struct(list(kind), name)
    if pa.types.is_list(kind):
        return {"type": "array", "items": ["null", _of_type(kind.value_type, name)]}
    if pa.types.is_map(kind):
        if not pa.types.is_string(kind.key_type):
            raise InvalidPlan(f"{type_name(kind)} cannot be written as Avro: the keys of its maps are text")
        return {"type": "map", "values": ["null", _of_type(kind.item_type, name)]}
    if pa.types.is_decimal(kind):
        return {"type": "bytes", "logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
    if pa.types.is_timestamp(kind):
        logical = "timestamp-micros" if kind == TIMESTAMP else "local-timestamp-micros"
        return {"type": "long", "logicalType": logical}
    if pa.types.is_date(kind):
        return {"type": "int", "logicalType": "date"}
    if pa.types.is_integer(kind):
        return "long" if kind == pa.int64() else "int"
    return {pa.bool_(): "boolean", pa.float32(): "float", pa.float64(): "double", pa.binary(): "bytes"}.get(
        kind, "string"
    )

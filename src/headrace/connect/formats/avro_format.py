"""The format `avro`: with a schema registry (Confluent's framing), or bare with a given schema."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from headrace.base.errors import InvalidPlan
from headrace.connect.compiled import has_compiler, worth_compiling
from headrace.connect.formats import framing
from headrace.connect.formats.json_values import BadValue, converter
from headrace.connect.formats.plain import NO_RECORD as NO_VALUE
from headrace.connect.formats.registered import RegisteredFormat
from headrace.connect.formats.registry import Registry, registry_of
from headrace.connect.formats.verdicts import Verdicts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headrace.connect.format import Formatted
    from headrace.connect.formats.avro_schema import Parsed

NO_RECORD = "it is no Avro record of the schema"


class Part(NamedTuple):
    """Records of one schema as columns: the good ones, with their numbers in the batch."""

    columns: list[pa.Array]
    rows: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class AvroFormat(RegisteredFormat):
    """Avro's binary encoding; `avro` creates it."""

    schema: str | None = None

    @property
    def name(self) -> str:
        """`"avro"`."""
        return "avro"

    @property
    def identity(self) -> str:
        """The name, and the schema with which records are read."""
        return f"avro({self.schema or ''})"

    def decode(self, values: pa.Array, schema: pa.Schema) -> Formatted:
        """Return records as rows, in columns where their schema is flat and numba is installed.

        Raises:
            Unavailable: the registry does not answer.
            RegistryRefused: it refuses.

        """
        verdicts = Verdicts(len(values))
        verdicts.refuse(np.asarray(values.is_null()), NO_VALUE)
        records = framing.bare(values)
        parts = []
        for number, chosen in [(0, records)] if self.registry is None else framing.by_schema(records):
            written = self._written(number)
            if isinstance(written, str):
                verdicts.refuse_each(dict.fromkeys(chosen.rows.tolist(), written))
            elif len(chosen.rows):
                parts.append(self._part(chosen, written, schema, verdicts))
        return verdicts.formatted(_in_order(parts, schema, len(values)), schema.names)

    def encode(self, rows: pa.RecordBatch) -> pa.Array:
        """Return each row as a record; with a registry the schema is registered.

        Raises:
            Unavailable: the registry does not answer.
            RegistryRefused: it does not take the schema.
            InvalidPlan: the rows cannot be written with the schema, or no subject is known.

        """
        from headrace.connect.formats import avro_schema, avro_values

        text = self.schema or avro_schema.of_rows(rows.schema, "Row")
        head = b""
        if self.registry is not None:
            if self.subject is None:
                raise InvalidPlan("avro has no subject for its schema", hint='Say avro(…, subject="orders-value").')
            head = framing.header(self.registry.register(self.subject, text, "AVRO"))
        written = avro_schema.parsed(text)
        if worth_compiling(rows.num_rows):
            from headrace.connect.formats import avro_cells, cells

            with suppress(cells.NotInColumns):
                return avro_cells.write(rows, written, head)
        return avro_values.write(rows, written, head)

    def _written(self, number: int) -> Parsed | str:
        """Return the schema with which records were written, or why there is none."""
        from headrace.connect.formats.avro_schema import parsed

        if self.registry is None:
            return parsed(self.schema or "")
        if number < 0:
            return framing.NO_FRAME
        found = self.registry.schema(number)
        if found is None:
            return f"the registry has no schema {number}"
        if found.kind != "AVRO":
            return f"the schema {number} is one of {found.kind}"
        if found.references:
            return f"the schema {number} refers to other schemas, which is not supported"
        try:
            written = parsed(found.text)
        except ValueError as error:
            return f"the schema {number} cannot be read: {error}"
        is_record = isinstance(written.schema, dict) and written.schema["type"] == "record"
        return written if is_record else f"the schema {number} is no record"

    def _part(self, records: framing.Records, written: Parsed, schema: pa.Schema, verdicts: Verdicts) -> Part:
        from headrace.connect.formats.avro_schema import Mismatch, NotFlat

        aliases, defaults = _of_reader(self.schema)
        present = {each["name"] for each in written.schema["fields"]}
        try:
            if not has_compiler():
                raise NotFlat  # noqa: TRY301 -- the same way
            columns, bad, reasons = _compiled(records, written, schema, aliases)
        except Mismatch as error:
            verdicts.refuse_each(dict.fromkeys(records.rows.tolist(), str(error)))
            return Part([pa.nulls(0, field.type) for field in schema], records.rows[:0])
        except NotFlat:
            columns, bad, reasons = _one_by_one(records, written, schema, aliases)
        for at, field in enumerate(schema):
            if field.name in defaults and not present & {field.name, *aliases.get(field.name, ())}:
                try:
                    value = converter(field.type)(defaults[field.name])
                except BadValue as error:
                    reasons = dict.fromkeys(range(len(records.rows)), f"the default of {error.reason(field.name)}")
                    continue
                columns[at] = pa.array([value], field.type).take(pa.array(np.zeros(len(records.rows), np.int64)))
        verdicts.refuse_each({int(records.rows[row]): reason for row, reason in reasons.items()})
        verdicts.refuse_each(dict.fromkeys(records.rows[bad].tolist(), NO_RECORD))
        return Part(columns, records.rows)


@lru_cache(maxsize=64)
def _of_reader(schema: str | None) -> tuple[Mapping[str, Sequence[str]], Mapping[str, Any]]:
    """Return the other names and the defaults of fields, by the schema with which records are read."""
    from headrace.connect.formats import avro_values
    from headrace.connect.formats.avro_schema import parsed

    if schema is None:
        return {}, {}
    reader = parsed(schema)
    fields = reader.schema["fields"]
    aliases = {each["name"]: each["aliases"] for each in fields if each.get("aliases")}
    defaults = {
        each["name"]: avro_values.model(reader, each["type"])(
            avro_values.default(reader, each["type"], each["default"])
        )
        for each in fields
        if "default" in each
    }
    return aliases, defaults


def _compiled(
    records: framing.Records, written: Parsed, schema: pa.Schema, aliases: Mapping[str, Sequence[str]]
) -> tuple[list[pa.Array], Any, dict[int, str]]:
    from headrace.connect.formats.avro_columns import Columns

    found = Columns(records, written, schema, aliases)
    return found.columns, found.bad, found.reasons


def _one_by_one(
    records: framing.Records, written: Parsed, schema: pa.Schema, aliases: Mapping[str, Sequence[str]]
) -> tuple[list[pa.Array], Any, dict[int, str]]:
    """Read records by fastavro, and their values by JSON's rules."""
    from headrace.connect.formats import avro_values

    plain, model = avro_values.bare(written.schema), avro_values.model(written, written.schema)
    bad, reasons = np.zeros(len(records.rows), np.bool_), dict[int, str]()
    columns: list[list[Any]] = [[] for _ in schema]
    for row, (start, end) in enumerate(zip(records.starts.tolist(), records.ends.tolist(), strict=True)):
        found: Any = {}
        try:
            found = model(avro_values.read(records.data[start:end].tobytes(), plain))
        except ValueError:
            bad[row] = True
        for field, column in zip(schema, columns, strict=True):
            name = next((name for name in (field.name, *aliases.get(field.name, ())) if name in found), field.name)
            try:
                column.append(converter(field.type)(found.get(name)))
            except BadValue as error:
                column.append(None)
                reasons.setdefault(row, error.reason(field.name))
    return [pa.array(column, field.type) for field, column in zip(schema, columns, strict=True)], bad, reasons


def _in_order(parts: Sequence[Part], schema: pa.Schema, count: int) -> list[pa.Array]:
    """Return the columns of all records of a batch, null where one is in no part."""
    rows = np.concatenate([part.rows for part in parts] or [np.zeros(0, np.int64)])
    if len(parts) == 1 and len(rows) == count:
        return parts[0].columns
    places = np.full(count, -1, np.int64)
    places[rows] = np.arange(len(rows))
    take = pa.array(places, mask=places < 0)
    empty = [pa.nulls(0, field.type) for field in schema]
    return [
        pa.concat_arrays([empty[at], *(part.columns[at] for part in parts)]).take(take) for at in range(len(schema))
    ]


def avro(
    *, registry: str | Registry | None = None, schema: str | Mapping[str, Any] | None = None, subject: str | None = None
) -> AvroFormat:
    """Return the format of Avro records, read by name into the declared columns.

    Needs the extra: `pip install headrace[avro]`.

    Args:
        registry: the address of a schema registry, or `registry(…)`: records have Confluent's framing. None: records
            are bare, all of them written with `schema`.
        schema: a schema, as JSON or a dictionary. Without a registry that of all records. With one it is what records
            are read with: its aliases are other names of a field, its defaults fill fields that a record's own schema
            does not have; and it is what records are written with. None: it follows from the columns.
        subject: under which the schema of written records is registered; None: `<topic>-value`, or `<topic>-key`.

    Raises:
        InvalidPlan: neither a registry nor a schema is given, or it is no record's schema.

    """
    if find_spec("fastavro") is None:
        raise InvalidPlan("avro needs a package that is not installed", hint="pip install headrace[avro]")
    from headrace.connect.formats.avro_schema import parsed

    text = schema if schema is None or isinstance(schema, str) else json.dumps(schema)
    if registry is None and text is None:
        raise InvalidPlan(
            "avro needs a registry or a schema",
            hint='Say avro(registry="http://…"), or avro(schema=…) for bare records.',
        )
    if text is not None:
        try:
            found = parsed(text).schema
        except ValueError as error:
            raise InvalidPlan("schema= is no schema of Avro", detail=str(error)) from error
        if not isinstance(found, dict) or found["type"] != "record":
            raise InvalidPlan("schema= is not the schema of a record", hint='It has "type": "record" and "fields".')
        try:
            _of_reader(text)
        except UnicodeEncodeError as error:
            raise InvalidPlan("schema= has a default of bytes with letters beyond 255", detail=str(error)) from error
    return AvroFormat(registry=registry_of(registry), schema=text, subject=subject)

"""How a topic's schema may change, and how old records are read under the new one.

Every value that was valid stays valid and the same: columns are added, types widen to types that hold every value of
the old type exactly, "not null" is dropped. Columns are not renamed or dropped.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from headrace.base.errors import HeadraceError, InvalidTopic, SchemaRefused, did_you_mean
from headrace.base.schema import to_ddl, type_name
from headrace.log.rows import to_column
from headrace.log.widening import refused

if TYPE_CHECKING:
    from collections.abc import Mapping


def compare(
    old: pa.Schema, new: pa.Schema, *, topic: str, key: tuple[str, ...], defaults: Mapping[str, object]
) -> list[str]:
    """Return a text for each change of a new schema; none if it is the same.

    Raises:
        SchemaRefused: old records could not be read under it, or would have other values. The error lists every
            difference that is not possible, with its reason.

    """
    wrong = [_defaulted_twice(name, old, new) for name in defaults if name in old.names or name not in new.names]
    changes = []
    for field in old:
        if field.name in new.names:
            wanted = new.field(field.name)
            why = refused(field, wanted, keyed=field.name in key)
            wrong += [f'the column "{field.name}" {why}'] if why else []
            changes += _changed(field, wanted)
        else:
            wrong.append(_dropped(field, new, old))
    for field in new:
        if field.name not in old.names:
            value = defaults.get(field.name)
            wrong += _without_value(field) if value is None and not field.nullable else []
            by_default = "" if value is None else f", by default {value!r}"
            changes.append(f'"{field.name}" added, {type_name(field.type)}{by_default}')
    if wrong:
        raise SchemaRefused(topic, wrong, old=to_ddl(old), new=to_ddl(new))
    return changes or (["the order of the columns changes"] if old.names != new.names else [])


def _changed(old: pa.Field, new: pa.Field) -> list[str]:
    widened = f'"{old.name}" widened from {type_name(old.type)} to {type_name(new.type)}'
    may_be_null = f'"{old.name}" may be null'
    return [widened] * (old.type != new.type) + [may_be_null] * (new.nullable and not old.nullable)


def _without_value(field: pa.Field) -> list[str]:
    return [f'the new column "{field.name}" is not null and has no default, so older records would have no value']


def merged(old: pa.Schema, wanted: pa.Schema) -> pa.Schema:
    """Return the old schema with the columns of `wanted`: replaced where a name is in both, else appended."""
    fields = [wanted.field(field.name) if field.name in wanted.names else field for field in old]
    return pa.schema([*fields, *(field for field in wanted if field.name not in old.names)])


def may_become(old: pa.Schema, new: pa.Schema, key: tuple[str, ...]) -> bool:
    """Tell whether a topic with the old schema could take the new one without defaults."""
    try:
        compare(old, new, topic="", key=key, defaults={})
    except SchemaRefused:
        return False
    return True


def _dropped(field: pa.Field, new: pa.Schema, old: pa.Schema) -> str:
    added = [name for name in new.names if name not in old.names]
    suggestion = did_you_mean(field.name, added)
    renamed = f" ({suggestion} Columns are not renamed.)" if suggestion else ""
    return f'the column "{field.name}" is missing: records have values in it{renamed}'


def _defaulted_twice(name: str, old: pa.Schema, new: pa.Schema) -> str:
    if name in old.names:
        return f'the default of "{name}" cannot be set: the column exists, and its old records keep their values'
    return f'there is a default for "{name}", which is not a column. {did_you_mean(name, new.names)}'.strip()


# ---- defaults ------------------------------------------------------------------------------------------


def as_json(name: str, value: object, field: pa.Field, *, topic: str) -> Any:
    """Return a default as it is stored in the topic's description.

    Raises:
        InvalidTopic: it is not a value of the column, or one that JSON cannot represent.

    """
    try:
        parsed = to_column([value], field)[0].as_py()
    except HeadraceError as error:
        what = error.what.replace("rows[0]: ", "")
        raise InvalidTopic(f'topic "{topic}": the default of "{name}": {what}', hint=error.hint) from None
    plain = json.loads(json.dumps(parsed, default=str))
    try:
        same = bool(to_column([plain], field)[0].as_py() == parsed)
    except HeadraceError:
        same = False
    if not same:
        kind = type_name(field.type)
        raise InvalidTopic(f'topic "{topic}": a column of type {kind} cannot have the default {value!r}')
    return plain


def constant(value: object, field: pa.Field, rows: int) -> pa.Array:
    """Return a column that repeats one value, which is as in a row."""
    if value is None:
        return pa.nulls(rows, field.type)
    return pa.repeat(to_column([value], field)[0], rows)


# ---- reading old records -------------------------------------------------------------------------------


def column_as(batch: pa.RecordBatch, field: pa.Field, default: object) -> pa.Array:
    """Return a column of an old batch under a newer schema: unchanged, widened, or filled with the default.

    A tombstone has no values, so it gets no default.
    """
    names = batch.schema.names
    if field.name in names:
        column = batch.column(field.name)
        return column if column.type == field.type else column.cast(field.type)
    column = constant(default, field, batch.num_rows)
    if default is None or "_deleted" not in names:
        return column
    return pc.if_else(batch.column("_deleted"), pa.scalar(None, field.type), column)

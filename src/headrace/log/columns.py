"""Arrow tables that nearly fit a schema → tables that do. Values never change, only their types."""

from __future__ import annotations

import pyarrow as pa

from headrace.base.errors import InvalidRows, did_you_mean
from headrace.base.schema import type_name
from headrace.log.segments.payload import SYSTEM_COLUMNS, WRITABLE_COLUMNS


def fit_table(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return a table with exactly the schema's columns, followed by the system columns that the table has.

    Integers and floats may be narrower or wider than declared as long as every value fits; text is never read as a
    number, a number never as a time.

    Raises:
        InvalidRows: a column is unknown, is there twice, or has values of another kind than declared.

    """
    if table.schema.equals(schema):
        return table
    given = table.column_names
    for name in given:
        if name not in schema.names and name not in WRITABLE_COLUMNS:
            raise _unknown(name, schema)
        if given.count(name) > 1:
            raise InvalidRows(f'the table has the column "{name}" twice')
    fields = [*schema, *(pa.field(name, SYSTEM_COLUMNS[name]) for name in WRITABLE_COLUMNS if name in given)]
    columns = [_fit(table, field) for field in fields]
    return pa.table(columns, schema=pa.schema(fields))


def _unknown(name: str, schema: pa.Schema) -> InvalidRows:
    hint = did_you_mean(name, [*schema.names, *WRITABLE_COLUMNS])
    return InvalidRows(
        f'there is no column "{name}"',
        detail=f"The columns are: {', '.join(schema.names)}.",
        hint="The log gives offsets itself: drop _offset." if name == "_offset" else hint,
    )


def _fit(table: pa.Table, field: pa.Field) -> pa.ChunkedArray:
    if field.name not in table.column_names:
        return pa.chunked_array([pa.nulls(table.num_rows, field.type)])
    column = table.column(field.name)
    if column.type == field.type:
        return column
    if not _alike(column.type, field.type):
        raise InvalidRows(
            f'column "{field.name}" expects {type_name(field.type)}, got Arrow\'s {column.type}',
            hint="Cast the column before it is appended.",
        )
    try:
        return column.cast(field.type)
    except pa.ArrowException as error:
        raise _misfit(column, field, error) from None


def _misfit(column: pa.ChunkedArray, field: pa.Field, error: Exception) -> InvalidRows:
    for at in range(len(column)):
        try:
            column.slice(at, 1).cast(field.type)
        except pa.ArrowException:
            return InvalidRows(
                f'rows[{at}]: column "{field.name}" expects {type_name(field.type)}, got {column[at].as_py()!r}',
                detail=str(error),
            )
    return InvalidRows(f'column "{field.name}" cannot be written as {type_name(field.type)}: {error}')


def _alike(given: pa.DataType, wanted: pa.DataType) -> bool:
    """Tell whether both types hold the same kind of value."""
    kinds = pa.types
    if kinds.is_null(given):
        return True
    if kinds.is_dictionary(given):
        return _alike(given.value_type, wanted)
    if kinds.is_struct(given) and kinds.is_struct(wanted):
        same = [field.name for field in given] == [field.name for field in wanted]
        return same and all(_alike(a.type, b.type) for a, b in zip(given, wanted, strict=True))
    if kinds.is_map(given) and kinds.is_map(wanted):
        return _alike(given.key_type, wanted.key_type) and _alike(given.item_type, wanted.item_type)
    if _is_list(given) and _is_list(wanted):
        return _alike(given.value_type, wanted.value_type)
    return any(is_kind(given) and is_kind(wanted) for is_kind in _KINDS)


def _is_list(kind: pa.DataType) -> bool:
    lists = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    return any(is_kind(kind) for is_kind in lists)


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or kind == pa.string_view())


def _is_bytes(kind: pa.DataType) -> bool:
    binary = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary)
    return any(is_kind(kind) for is_kind in binary) or bool(kind == pa.binary_view())


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


_KINDS = (_is_number, _is_text, _is_bytes, pa.types.is_boolean, pa.types.is_timestamp, pa.types.is_date)

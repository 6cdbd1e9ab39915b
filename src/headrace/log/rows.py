"""Rows of users → Arrow: dicts, tables and batches become one table with a schema's columns.

Rows are converted a column at a time. Only if a column fails, its values are converted one by one, to name the first
that does not fit.
"""

from __future__ import annotations

import reprlib
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from itertools import accumulate, chain
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.base.errors import HeadraceError, InvalidRows, InvalidTime, did_you_mean
from headrace.base.schema import type_name
from headrace.base.time import MICROS, instant
from headrace.log.columns import fit_table
from headrace.log.segments.payload import SYSTEM_COLUMNS, WRITABLE_COLUMNS

if TYPE_CHECKING:
    from collections.abc import Callable

Rows: TypeAlias = Iterable[Mapping[str, Any]] | pa.Table | pa.RecordBatch

_DAY = 86_400 * MICROS
_FAILURES = (pa.ArrowException, ArithmeticError, ValueError, TypeError, InvalidTime)


def rows_to_table(rows: Rows, schema: pa.Schema, defaults: Mapping[str, object] | None = None) -> pa.Table:
    """Return rows as a table with exactly the schema's columns; columns that rows lack have their default, or null.

    Rows are mappings, a table or a record batch. They may carry `_time`, `_deleted` and `_headers`; those that
    at least one row has follow the schema's columns. In mappings a time is ISO text, a datetime (naive
    means UTC) or *milliseconds* since 1970. Nothing is rounded or cut: 2.5 is not a bigint, and "1" is not an int.

    Raises:
        InvalidRows: a column is unknown, a value has another type, or a null is not allowed. The error
            names the row as `rows[i]`, the column, the expected type and the value.

    """
    if isinstance(rows, pa.RecordBatch):
        rows = pa.Table.from_batches([rows])
    if isinstance(rows, pa.Table):
        rows = _with_defaults(rows, schema, defaults) if defaults else rows
        table = fit_table(rows, schema)
    else:
        table = _from_mappings(rows, schema, defaults or {})
    _refuse_nulls(table, schema)
    return table


def unknown_column(name: object, schema: pa.Schema, *, where: str) -> InvalidRows:
    """Return the error for a column that the schema does not have."""
    columns = [*schema.names, *WRITABLE_COLUMNS]
    return InvalidRows(
        f"{where}: there is no column {name!r}",
        detail=f"The columns are: {', '.join(schema.names)}.",
        hint="The log gives offsets itself: leave _offset out."
        if name == "_offset"
        else did_you_mean(str(name), columns),
    )


def _with_defaults(table: pa.Table, schema: pa.Schema, defaults: Mapping[str, object]) -> pa.Table:
    for name, value in defaults.items():
        if name not in table.column_names:
            column = to_column([value], schema.field(name))
            table = table.append_column(schema.field(name), pa.repeat(column[0], table.num_rows))
    return table


def _from_mappings(rows: object, schema: pa.Schema, defaults: Mapping[str, object]) -> pa.Table:
    records = _as_records(rows)
    used = set(chain.from_iterable(records))
    fields = [*schema, *(pa.field(name, SYSTEM_COLUMNS[name]) for name in WRITABLE_COLUMNS if name in used)]
    names = {field.name for field in fields}
    if not used <= names:
        at, name = next((i, name) for i, row in enumerate(records) for name in row if name not in names)
        raise unknown_column(name, schema, where=f"rows[{at}]")
    columns = [to_column(_values(records, field.name, defaults.get(field.name)), field) for field in fields]
    return pa.table(columns, schema=pa.schema(fields))


def _values(records: Sequence[Mapping[str, Any]], name: str, default: object) -> list[Any]:
    if default is None:
        return [row.get(name) for row in records]
    return [None if row.get("_deleted") else row.get(name, default) for row in records]


def _as_records(rows: object) -> Sequence[Mapping[str, Any]]:
    if isinstance(rows, Mapping | str | bytes) or not isinstance(rows, Iterable):
        raise InvalidRows(
            f"rows must be a list of dicts, a pyarrow.Table or a RecordBatch, not {_shown(rows)}",
            hint="For a single row write [row]." if isinstance(rows, Mapping) else "",
        )
    records = rows if isinstance(rows, list) else list(rows)
    if not all(issubclass(kind, Mapping) for kind in set(map(type, records))):
        at, row = next((i, row) for i, row in enumerate(records) if not isinstance(row, Mapping))
        raise InvalidRows(f"rows[{at}] is no dict: {_shown(row)}")
    return records


def to_column(values: list[Any], field: pa.Field) -> pa.Array:
    """Return values of rows as a column.

    Raises:
        InvalidRows: a value does not fit; the error names the row.

    """
    try:
        return to_array(values, field.type)
    except _FAILURES as error:
        for at, value in enumerate(values):
            try:
                to_array([value], field.type)
            except _FAILURES as why:
                raise _misfit(at, field, value, why) from None
        raise InvalidRows(f'column "{field.name}" cannot be written as {type_name(field.type)}: {error}') from error


def _misfit(at: int, field: pa.Field, value: object, why: BaseException) -> InvalidRows:
    reason = why.hint or why.what if isinstance(why, HeadraceError) else str(why)
    return InvalidRows(
        f'rows[{at}]: column "{field.name}" expects {type_name(field.type)}, got {_shown(value)}',
        detail=reason if isinstance(why, _Misfit) or not isinstance(why, InvalidTime) else "",
        hint=reason if isinstance(why, InvalidTime) else "",
    )


def _shown(value: object) -> str:
    return f"{reprlib.repr(value)} ({type(value).__name__})"


class _Misfit(TypeError):
    """The Python type of a value does not fit the column."""


def to_array(values: list[Any], kind: pa.DataType) -> pa.Array:
    """Return Python values as an array, or fail with one of `_FAILURES`; None is null."""
    for is_kind, convert in _CONVERSIONS:
        if is_kind(kind):
            return convert(values, kind)
    return pa.array(values, type=kind)


def _only(values: Iterable[Any], *allowed: type, but: tuple[type, ...] = ()) -> bool:
    """Check the types of values; return whether any is not None."""
    kinds = set(map(type, values)) - {type(None)}
    for kind in kinds:
        if not issubclass(kind, allowed) or issubclass(kind, but):
            raise _Misfit(f"a value of type {kind.__name__} does not fit")
    return bool(kinds)


def _integers(values: list[Any], kind: pa.DataType) -> pa.Array:
    _only(values, int, np.integer, but=(bool,))
    return pa.array(values, type=kind)


def _floats(values: list[Any], kind: pa.DataType) -> pa.Array:
    _only(values, float, int, np.floating, np.integer, but=(bool,))
    return pa.array(values, type=kind)


def _booleans(values: list[Any], kind: pa.DataType) -> pa.Array:
    _only(values, bool, np.bool_)
    return pa.array(values, type=kind)


def _strings(values: list[Any], kind: pa.DataType) -> pa.Array:
    _only(values, str)
    return pa.array(values, type=kind)


def _binaries(values: list[Any], kind: pa.DataType) -> pa.Array:
    _only(values, bytes, bytearray, memoryview)
    return pa.array(values, type=kind)


def _decimals(values: list[Any], kind: pa.DataType) -> pa.Array:
    _only(values, Decimal, int, float, str, but=(bool,))
    try:
        decimals = [Decimal(str(v)) if isinstance(v, float | str) else v for v in values]
    except InvalidOperation:
        raise _Misfit("the text is no number") from None
    return pa.array(decimals, type=kind)


def _instants(values: list[Any], kind: pa.DataType) -> pa.Array:
    kinds = set(map(type, values))
    if kinds <= {datetime, type(None)}:
        return pa.array(values, type=kind)
    return pa.array([None if v is None else instant(v) for v in values], type=pa.int64()).cast(kind)


def _dates(values: list[Any], kind: pa.DataType) -> pa.Array:
    kinds = set(map(type, values))
    if kinds <= {date, type(None)}:
        return pa.array(values, type=kind)
    days = [None if v is None else instant(v) // _DAY for v in values]
    return pa.array(days, type=pa.int32()).cast(kind)


def _mask(values: list[Any]) -> pa.Array:
    return pa.array([v is None for v in values], type=pa.bool_())


def _bounds(values: list[Any]) -> pa.Array:
    return pa.array([0, *accumulate(0 if v is None else len(v) for v in values)], type=pa.int32())


def _lists(values: list[Any], kind: pa.DataType) -> pa.Array:
    _only(values, list, tuple, np.ndarray)
    inner = to_array(list(chain.from_iterable(v for v in values if v is not None)), kind.value_type)
    return pa.ListArray.from_arrays(_bounds(values), inner, type=kind, mask=_mask(values))


def _structs(values: list[Any], kind: pa.DataType) -> pa.Array:
    _only(values, Mapping)
    given = [v for v in values if v is not None]
    names = [field.name for field in kind]
    unknown = set(chain.from_iterable(given)) - set(names)
    if unknown:
        name = str(min(unknown, key=str))
        raise _Misfit(f'there is no field "{name}". {did_you_mean(name, names)}'.strip())
    fields = [to_array([None if v is None else v.get(name) for v in values], kind.field(name).type) for name in names]
    for field, column in zip(kind, fields, strict=True):
        if not field.nullable and column.null_count > len(values) - len(given):
            raise _Misfit(f'the field "{field.name}" may not be null')
    return pa.StructArray.from_arrays(fields, fields=list(kind), mask=_mask(values))


def _maps(values: list[Any], kind: pa.DataType) -> pa.Array:
    _only(values, Mapping, list, tuple)
    pairs = [v if v is None else list(v.items()) if isinstance(v, Mapping) else v for v in values]
    flat = list(chain.from_iterable(v for v in pairs if v is not None))
    keys, items = to_array([k for k, _ in flat], kind.key_type), to_array([v for _, v in flat], kind.item_type)
    if keys.null_count:
        raise _Misfit("a map's key may not be null")
    return pa.MapArray.from_arrays(_bounds(pairs), keys, items, type=kind, mask=_mask(pairs))


_CONVERSIONS: tuple[tuple[Callable[[pa.DataType], bool], Callable[[list[Any], pa.DataType], pa.Array]], ...] = (
    (pa.types.is_string, _strings),
    (pa.types.is_integer, _integers),
    (pa.types.is_floating, _floats),
    (pa.types.is_timestamp, _instants),
    (pa.types.is_boolean, _booleans),
    (pa.types.is_date, _dates),
    (pa.types.is_decimal, _decimals),
    (pa.types.is_binary, _binaries),
    (pa.types.is_map, _maps),
    (pa.types.is_list, _lists),
    (pa.types.is_struct, _structs),
)


def _refuse_nulls(table: pa.Table, schema: pa.Schema) -> None:
    """Refuse nulls in columns that are not null. A tombstone has no values, so it may have them."""
    for field in schema:
        column = table.column(field.name)
        if field.nullable or not column.null_count:
            continue
        wrong = pc.is_null(column)
        if "_deleted" in table.column_names:
            wrong = pc.and_(wrong, pc.invert(pc.fill_null(table.column("_deleted"), fill_value=False)))
        at = pc.index(wrong, value=True).as_py()
        if at >= 0:
            raise InvalidRows(
                f'rows[{at}]: column "{field.name}" is null, but it was declared not null',
                hint=f"Give {field.name} a value.",
            )

"""Instants as DuckDB holds them here: their readings in UTC."""

from __future__ import annotations

import pyarrow as pa


def without_zones(table: pa.Table) -> pa.Table:
    """Return the table with instants as their UTC readings, which is how DuckDB holds them here; no copy."""
    for at, field in enumerate(table.schema):
        if _has_zone(field.type):
            column = table.column(at)
            plain = _plain(field.type)
            if pa.types.is_timestamp(field.type):
                readings = pa.chunked_array([chunk.view(plain) for chunk in column.chunks], plain)
            else:
                readings = column.cast(plain)
            table = table.set_column(at, pa.field(field.name, plain), readings)
    return table


def _has_zone(kind: pa.DataType) -> bool:
    if pa.types.is_timestamp(kind):
        return kind.tz is not None
    return any(_has_zone(kind.field(i).type) for i in range(kind.num_fields))


def _plain(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind):
        return pa.timestamp(kind.unit)
    if pa.types.is_list(kind):
        return pa.list_(_plain(kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(_plain(kind.key_type), _plain(kind.item_type))
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, _plain(field.type)) for field in kind])
    return kind

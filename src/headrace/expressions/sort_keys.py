"""The order of structs and arrays with nulls inside: in Spark a null is less than every value, in DuckDB greater."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from headrace.base.names import literal
from headrace.expressions import kinds as k

if TYPE_CHECKING:
    from headrace.expressions.values import Value


def sort_key(value: Value) -> Value:
    """Return a value that DuckDB orders as Spark orders `value`; null where that is null.

    A flag before each element says whether it is not null.
    """
    return value.to(*_key(value.sql, value.type, depth=0))


def _key(sql: str, kind: pa.DataType, *, depth: int) -> tuple[str, pa.DataType]:
    if k.is_struct(kind):
        inner_keys = [_key(f"struct_extract({sql}, {literal(field.name)})", field.type, depth=depth) for field in kind]
        present = [
            f"n{i} := (struct_extract({sql}, {literal(field.name)})) IS NOT NULL" for i, field in enumerate(kind)
        ]
        parts = [
            f"{flag}, v{i} := {inner}" for i, (flag, (inner, _)) in enumerate(zip(present, inner_keys, strict=True))
        ]
        fields = [pair for i, (_, inner) in enumerate(inner_keys) for pair in ((f"n{i}", k.BOOLEAN), (f"v{i}", inner))]
        return f"(CASE WHEN ({sql}) IS NOT NULL THEN struct_pack({', '.join(parts)}) END)", pa.struct(fields)
    if k.is_array(kind):
        element = f"_headrace_e{depth}"
        inner, of = _key(element, kind.value_type, depth=depth + 1)
        pair = f"struct_pack(n := {element} IS NOT NULL, v := {inner})"
        return f"list_transform({sql}, lambda {element}: {pair})", pa.list_(pa.struct([("n", k.BOOLEAN), ("v", of)]))
    return sql, kind

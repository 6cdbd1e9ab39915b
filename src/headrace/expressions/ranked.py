"""The order of structs and arrays with nulls inside: in Spark a null is less than every value, in DuckDB greater."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from headrace.base.names import literal
from headrace.expressions import kinds as k

if TYPE_CHECKING:
    from headrace.expressions.values import Value


def ranked(value: Value) -> Value:
    """Return a value that DuckDB orders as Spark orders `value`; null where that is null.

    Before each element stands whether there is one.
    """
    return value.to(*_key(value.sql, value.type, depth=0))


def _key(sql: str, kind: pa.DataType, *, depth: int) -> tuple[str, pa.DataType]:
    if k.is_struct(kind):
        made = [_key(f"struct_extract({sql}, {literal(field.name)})", field.type, depth=depth) for field in kind]
        there = [f"n{i} := (struct_extract({sql}, {literal(field.name)})) IS NOT NULL" for i, field in enumerate(kind)]
        parts = [f"{flag}, v{i} := {inner}" for i, (flag, (inner, _)) in enumerate(zip(there, made, strict=True))]
        fields = [pair for i, (_, inner) in enumerate(made) for pair in ((f"n{i}", k.BOOLEAN), (f"v{i}", inner))]
        return f"(CASE WHEN ({sql}) IS NOT NULL THEN struct_pack({', '.join(parts)}) END)", pa.struct(fields)
    if k.is_array(kind):
        each = f"_headrace_e{depth}"
        inner, of = _key(each, kind.value_type, depth=depth + 1)
        pair = f"struct_pack(n := {each} IS NOT NULL, v := {inner})"
        return f"list_transform({sql}, lambda {each}: {pair})", pa.list_(pa.struct([("n", k.BOOLEAN), ("v", of)]))
    return sql, kind

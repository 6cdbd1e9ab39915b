"""Outputs before the commit: netted, put in order, and written where nobody reads them yet."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import pyarrow as pa

from headrace.base.names import quote
from headrace.kernels.duck import typed
from headrace.kernels.op import Op

if TYPE_CHECKING:
    from headrace.kernels.duck import Duck

TIME = pa.field("_time", pa.int64())
WEIGHT = pa.field("_weight", pa.int32())
DELETED = pa.field("_deleted", pa.bool_())
BEFORE = "_before"
_NTH = "_headrace_nth"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage(Op):
    """Rows to a sink, as files that nobody reads before the commit.

    `key` of a changelog: one upsert or tombstone for each key; `form` says what the sink takes. `net`: rows may cancel
    out within the epoch. `before`: a changelog also says what the key's row was. `needs_key`: it is a compacted
    topic, which makes dead letters of rows whose key is null.
    """

    sink: str
    schema: pa.Schema
    form: Literal["rows", "changelog", "delta"]
    key: tuple[str, ...] | None
    net: bool
    before: bool = False
    needs_key: bool = False


def staged(duck: Duck, op: Stage, rows: str) -> pa.Table:
    """Return what the sink takes of relation `rows`: the columns of its schema and what its form adds.

    `rows`: a stream's rows with `_time`. `changelog`: one row a key, with `_time` and `_deleted`, perhaps `_before`.
    `delta`: rows with `_weight` and `_time`, at most one of each weight a key.
    """
    columns = [quote(name) for name in op.schema.names]
    if op.form == "rows":
        inserted = duck.large(f"SELECT {', '.join(columns)}, _time FROM {rows} WHERE _weight > 0")
        return typed(inserted, staged_schema(op))
    source = _netted(op.schema, rows) if op.net else rows
    if op.form == "delta":
        delta = duck.large(f"SELECT {', '.join(columns)}, _weight::INTEGER AS _weight, _time FROM {source}")
        return typed(delta, staged_schema(op))
    return typed(duck.large(_changelog(op, source)), staged_schema(op))


def staged_schema(op: Stage) -> pa.Schema:
    """Return the columns of a sink's staged rows."""
    more = {"rows": (TIME,), "delta": (WEIGHT, TIME), "changelog": (TIME, DELETED)}[op.form]
    columns = [pa.field(field.name, field.type) for field in op.schema]
    before = [pa.field(BEFORE, pa.struct(columns))] if op.before else []
    return pa.schema([*columns, *more, *before])


def _netted(schema: pa.Schema, rows: str) -> str:
    """Let rows that were inserted and withdrawn within the epoch cancel out; 0.0 and -0.0 are not the same row."""
    columns = ", ".join(quote(name) for name in schema.names)
    signs = "".join(f", {_sign(field)}" for field in schema if _has_floats(field.type))
    return (
        f"(SELECT {columns}, sum(_weight) AS _weight, max(_time) AS _time FROM {rows} "
        f"GROUP BY {columns}{signs} HAVING sum(_weight) <> 0)"
    )


def _sign(field: pa.Field) -> str:
    """Return what tells 0.0 and -0.0 of a column apart."""
    name = quote(field.name)
    return f"CASE WHEN {name} = 0 THEN signbit({name}) END" if pa.types.is_floating(field.type) else f"{name}::VARCHAR"


def _has_floats(kind: pa.DataType) -> bool:
    children = (kind.field(at).type for at in range(kind.num_fields))
    return pa.types.is_floating(kind) or any(_has_floats(each) for each in children)


def _changelog(op: Stage, source: str) -> str:
    """Keep the inserted row of a key, or a tombstone where one was only withdrawn; in order of time, then key."""
    key = [quote(name) for name in op.key or ()]
    others = [quote(name) for name in op.schema.names if name not in (op.key or ())]
    columns = [quote(name) for name in op.schema.names]
    by = f"PARTITION BY {', '.join(key)} " if key else ""
    window = f"({by}ORDER BY _weight DESC ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING)"
    packed = ", ".join(f"{name} := {name}" for name in columns)
    before = f", last(CASE WHEN _weight < 0 THEN struct_pack({packed}) END) OVER {window} AS {BEFORE}"
    kept = f"SELECT *, row_number() OVER {window} AS {_NTH}{before if op.before else ''} FROM {source}"
    emptied = [f"CASE WHEN _weight > 0 THEN {name} END AS {name}" if name in others else name for name in columns]
    order = ", ".join(["_time", *key])
    found = [*emptied, "_time", "_weight < 0 AS _deleted", *([BEFORE] if op.before else [])]
    return f"SELECT {', '.join(found)} FROM ({kept}) WHERE {_NTH} = 1 ORDER BY {order}"

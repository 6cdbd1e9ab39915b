"""Key columns as the keys of rows: -0.0 is 0.0, so that a key has one form in state, outputs and views.

All of them compare keys as Spark does, so both forms and all kinds of NaN are one key. The form that comes out would be
that of whichever row was last. Where a row is identified by all of its columns, as in a bag, all are its key: else it
could be withdrawn in another form than the one in which it was inserted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from headrace.base.names import quote
from headrace.base.schema import has_floats

if TYPE_CHECKING:
    from collections.abc import Iterable


def replaced(names: Iterable[str], schema: pa.Schema) -> dict[str, str]:
    """Return the key columns that may have two forms of one key, each with SQL for the form that is used."""
    chosen = {name: schema.field(name).type for name in names}
    return {name: one_form(quote(name), kind) for name, kind in chosen.items() if has_floats(kind)}


def one_form(sql: str, kind: pa.DataType, depth: int = 0) -> str:
    """Return SQL for a value with 0.0 in the place of each -0.0."""
    if not has_floats(kind):
        return sql
    if pa.types.is_floating(kind):
        return f"({sql} + 0)"
    if pa.types.is_struct(kind):
        fields = [kind.field(index) for index in range(kind.num_fields)]
        parts = [
            f"{quote(field.name)} := {one_form(f'{sql}.{quote(field.name)}', field.type, depth)}" for field in fields
        ]
        return f"CASE WHEN {sql} IS NOT NULL THEN struct_pack({', '.join(parts)}) END"
    return f"list_transform({sql}, lambda _e{depth}: {one_form(f'_e{depth}', kind.value_type, depth + 1)})"

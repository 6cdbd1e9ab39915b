"""The types of columns in MariaDB, and DuckDB's SQL that turns values into literals of statements.

| column | MariaDB |
|---|---|
| tinyint, smallint, int, bigint, boolean | tinyint, smallint, int, bigint, tinyint |
| float, double, decimal(p, s) | float, double, decimal(p, s) |
| date, timestamp (in UTC), timestamp_ntz | date, datetime(6), datetime(6) |
| string, binary | longtext, longblob; in a key varchar, varbinary |
| array, struct, map | json |
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pyarrow as pa

from headrace.base.errors import InvalidPlan
from headrace.base.names import quote
from headrace.connect.json_texts import json_of

if TYPE_CHECKING:
    from collections.abc import Callable

EXACT = "utf8mb4_nopad_bin"
"""The collation in which texts are equal only if they are the same: others ignore case, or spaces at the end."""
_PLAIN: tuple[tuple[Callable[[pa.DataType], bool], str], ...] = (
    (pa.types.is_boolean, "tinyint"),
    (pa.types.is_int8, "tinyint"),
    (pa.types.is_int16, "smallint"),
    (pa.types.is_int32, "int"),
    (pa.types.is_int64, "bigint"),
    (pa.types.is_float32, "float"),
    (pa.types.is_float64, "double"),
    (pa.types.is_date, "date"),
    (pa.types.is_timestamp, "datetime(6)"),
    (pa.types.is_nested, "json"),
    (lambda kind: pa.types.is_binary(kind) or pa.types.is_large_binary(kind), "longblob"),
    (lambda kind: pa.types.is_string(kind) or pa.types.is_large_string(kind), f"longtext COLLATE {EXACT}"),
)
_INTEGERS = {"tinyint": 3, "smallint": 5, "mediumint": 7, "int": 10, "bigint": 19}
"""The signed integers, the narrower first, and how many digits each has."""
_TEXTS = {"varchar", "tinytext", "text", "mediumtext", "longtext"}
_BYTES = {"varbinary", "tinyblob", "blob", "mediumblob", "longblob"}
_KEY_SIZE = 700
"""So many characters of four bytes fit into an index."""


def is_text(kind: pa.DataType) -> bool:
    """Whether a type is that of texts."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def declared(kind: pa.DataType, *, in_key_of: int = 0) -> str:
    """Return the type of MariaDB for a column, `in_key_of`: of a key with so many columns.

    Raises:
        InvalidPlan: there is none.

    """
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    found = next((name for fits, name in _PLAIN if fits(kind)), None)
    if found is None or (in_key_of and found == "json"):
        raise InvalidPlan(
            f"MariaDB has no type for {kind}{' in a key' if in_key_of else ''}",
            hint="Cast the column: .select('CAST(x AS string)').",
        )
    if in_key_of:
        size = f"({_KEY_SIZE // in_key_of})"
        return found.replace("longtext", f"varchar{size}").replace("longblob", f"varbinary{size}")
    return found


def holds(found: str, kind: pa.DataType) -> bool:
    """Whether a column of a type of MariaDB can store all values of a column unchanged, or refuses them."""
    wanted = declared(kind)
    name = re.split(r"[ (]", found, maxsplit=1)[0]
    sizes = [int(each) for each in re.findall(r"\d+", found)]
    if is_text(kind) or pa.types.is_nested(kind):
        return name in _TEXTS
    if wanted == "longblob":
        return name in _BYTES
    if pa.types.is_timestamp(kind):
        return found == "datetime(6)" or (found == "timestamp(6)" and kind.tz is not None)
    if wanted in _INTEGERS:
        if name == "decimal" and "unsigned" not in found:
            return sizes[0] - sizes[1] >= _INTEGERS[wanted]
        return "unsigned" not in found and _INTEGERS.get(name, 0) >= _INTEGERS[wanted]
    if pa.types.is_decimal(kind):
        fits = name == "decimal" and "unsigned" not in found
        return fits and sizes[1] >= kind.scale and sizes[0] - sizes[1] >= kind.precision - kind.scale
    return found == wanted or (wanted == "float" and found == "double")


def literal(field: pa.Field) -> str:
    """Return DuckDB's SQL for the literal of a column's value, where backslashes mean nothing."""
    kind, name = field.type, quote(field.name)
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return f"coalesce('x''' || hex({name}) || '''', 'NULL')"
    if pa.types.is_nested(kind):
        text = f"CASE WHEN {name} IS NULL THEN NULL ELSE {json_of(kind, name)} END"
    elif pa.types.is_boolean(kind):
        text = f"CAST(CAST({name} AS TINYINT) AS VARCHAR)"
    elif pa.types.is_timestamp(kind):
        text = f"CAST(CAST({name} AS TIMESTAMP) AS VARCHAR)"
    else:
        text = f"CAST({name} AS VARCHAR)"
    return f"coalesce('''' || replace({text}, '''', '''''') || '''', 'NULL')"

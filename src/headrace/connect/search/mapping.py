"""The fields of an index of OpenSearch for the columns of a step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Mapping

_LONGEST_KEYWORD = 8_191
"""So many characters has a text at most that is also found as a whole: the server's limit is 32 766 bytes."""
_PLAIN: dict[pa.DataType, str] = {
    pa.int8(): "byte",
    pa.int16(): "short",
    pa.int32(): "integer",
    pa.int64(): "long",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.bool_(): "boolean",
    pa.binary(): "binary",
}


def field_of(kind: pa.DataType) -> dict[str, Any]:
    """Return the mapping of a column: how its values are searched. A list is searched as its values are."""
    if kind in _PLAIN:
        return {"type": _PLAIN[kind]}
    if pa.types.is_list(kind):
        return field_of(kind.value_type)
    if pa.types.is_struct(kind):
        return {"properties": {each.name: field_of(each.type) for each in kind}}
    if pa.types.is_string(kind):
        return {"type": "text", "fields": {"keyword": {"type": "keyword", "ignore_above": _LONGEST_KEYWORD}}}
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return {"type": "date", "format": "strict_date_optional_time_nanos"}
    if pa.types.is_decimal(kind):
        return {"type": "double"}
    return {"type": "object", "enabled": False}  # a map: any number of fields


def flat(properties: Mapping[str, Any], above: str = "") -> dict[str, str]:
    """Return the types of fields by their paths."""
    found: dict[str, str] = {}
    for name, field in properties.items():
        if "properties" in field:
            found |= flat(field["properties"], f"{above}{name}.")
        else:
            found[f"{above}{name}"] = field.get("type", "object")
    return found

"""Which types can replace a type: those that hold every value of it exactly."""

from __future__ import annotations

import pyarrow as pa

from headrace.base.schema import TIMESTAMP_NTZ, type_name

_DIGITS = {pa.int8(): 3, pa.int16(): 5, pa.int32(): 10, pa.int64(): 19}
_EXACT_IN_DOUBLE = (pa.int8(), pa.int16(), pa.int32(), pa.float32())


def refused(old: pa.Field, new: pa.Field, *, keyed: bool) -> str:
    """Return why a column cannot become another one; an empty text if it can.

    Key columns may widen among integers only: their hash does not depend on their width.
    """
    if old.nullable and not new.nullable:
        return "would be not null, but may hold nulls"
    if old.type == new.type:
        return ""
    why = narrowed(old.type, new.type)
    if why:
        return f"is {type_name(old.type)} and cannot become {type_name(new.type)}: {why}"
    if keyed and not (pa.types.is_integer(old.type) and pa.types.is_integer(new.type)):
        return (
            f"belongs to the key and cannot become {type_name(new.type)}: equal keys would go to other partitions than "
            "before"
        )
    return ""


def narrowed(old: pa.DataType, new: pa.DataType) -> str:
    """Return why not every value of the old type is exactly one of the new; an empty text if it is."""
    kinds = pa.types
    if old == new:
        return ""
    if kinds.is_list(old) and kinds.is_list(new):
        return narrowed(old.value_type, new.value_type)
    if kinds.is_map(old) and kinds.is_map(new):
        return narrowed(old.key_type, new.key_type) or narrowed(old.item_type, new.item_type)
    if kinds.is_struct(old) and kinds.is_struct(new):
        return _narrowed_struct(old, new)
    return _narrowed_decimal(old, new) if kinds.is_decimal(new) else _narrowed_simple(old, new)


def _narrowed_simple(old: pa.DataType, new: pa.DataType) -> str:
    if old in _DIGITS and new in _DIGITS:
        return "" if _DIGITS[old] < _DIGITS[new] else "not every value fits"
    if new == pa.float64() and old in (*_EXACT_IN_DOUBLE, pa.int64()):
        return "" if old in _EXACT_IN_DOUBLE else "a double has 53 bits, a bigint 64"
    if (old, new) == (pa.float64(), pa.float32()):
        return "not every value fits"
    if pa.types.is_date(old) and new == TIMESTAMP_NTZ:
        return ""
    if pa.types.is_timestamp(new) and (pa.types.is_date(old) or pa.types.is_timestamp(old)):
        return "which instant it is would depend on a time zone"
    return "that is another kind of value"


def _narrowed_decimal(old: pa.DataType, new: pa.DataType) -> str:
    before = new.precision - new.scale
    if old in _DIGITS:
        return "" if before >= _DIGITS[old] else f"{_DIGITS[old]} digits are needed before the point"
    if not pa.types.is_decimal(old):
        return "that is another kind of value"
    if new.scale < old.scale:
        return "digits behind the point would be lost"
    return "" if before >= old.precision - old.scale else "digits before the point would be lost"


def _narrowed_struct(old: pa.DataType, new: pa.DataType) -> str:
    if [field.name for field in old] != [field.name for field in new]:
        return "the fields of a struct stay as they are"
    for a, b in zip(old, new, strict=True):
        why = refused(a, b, keyed=False)
        if why:
            return f'its field "{a.name}" {why}'
    return ""

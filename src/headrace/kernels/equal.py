"""Columns compared by Arrow as DuckDB compares them: every NaN is equal to every NaN, and -0.0 to 0.0."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Mask = NDArray[np.bool_]


def comparable(kind: pa.DataType) -> bool:
    """Return whether values of a type are compared here; the others, such as nested ones, are left to DuckDB."""
    types = pa.types
    fixed = types.is_signed_integer(kind) or types.is_boolean(kind) or types.is_date32(kind)
    moment = types.is_timestamp(kind) and kind.unit == "us" and kind.tz is None
    texts = types.is_string(kind) or types.is_binary(kind)
    return fixed or moment or texts or types.is_decimal128(kind) or kind in (pa.float32(), pa.float64())


def comparable_with(kind: pa.DataType, other: pa.DataType) -> bool:
    """Return whether values of two types are compared here: they are of one type, or whole numbers."""
    whole = pa.types.is_signed_integer(kind) and pa.types.is_signed_integer(other)
    return whole or (kind == other and comparable(kind))


def equal(left: pa.Array, right: pa.Array, *, nulls: bool) -> Mask:
    """Return where two columns, of types that are `comparable_with` each other, are equal.

    `nulls`: whether null equals null; else it equals nothing.
    """
    missing = left.null_count or right.null_count
    if not missing and pa.types.is_signed_integer(left.type):
        there: Mask = left.to_numpy() == right.to_numpy()
        return there
    same = pc.equal(left, right)
    if pa.types.is_floating(left.type):
        same = pc.or_(same, pc.and_(pc.is_nan(left), pc.is_nan(right)))
    if not missing:
        return _mask(same)
    same = _mask(same.fill_null(False))  # noqa: FBT003 -- Arrow's own
    return same | (_mask(left.is_null()) & _mask(right.is_null())) if nulls else same


def is_valid(column: pa.Array) -> Mask:
    """Return where a column is not null."""
    return _mask(column.is_valid())


def _mask(values: pa.Array) -> Mask:
    mask: Mask = values.to_numpy(zero_copy_only=False)
    return mask

"""Filters that Spark offers to the reader: rows that cannot pass are not read, or not handed over.

Spark checks every filter again on what it gets, so a filter here may let rows through that do not pass; it must never
hold back one that does. Offsets, partitions, topics and event times are pruned by the log's index.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import datasource as spark

from headrace.base.schema import TIMESTAMP

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_COMPARE: dict[type, Callable[[pa.Array, pa.Scalar], pa.Array]] = {
    spark.EqualTo: pc.equal,
    spark.GreaterThan: pc.greater,
    spark.GreaterThanOrEqual: pc.greater_equal,
    spark.LessThan: pc.less,
    spark.LessThanOrEqual: pc.less_equal,
}
_TEXT: dict[type, Callable[..., pa.Array]] = {
    spark.StringStartsWith: pc.starts_with,
    spark.StringEndsWith: pc.ends_with,
    spark.StringContains: pc.match_substring,
}
_FROM, _UNTIL = (spark.GreaterThan, spark.GreaterThanOrEqual), (spark.LessThan, spark.LessThanOrEqual)
_LEAST, _GREATEST = -(1 << 63), (1 << 63) - 1


class ColumnTest(NamedTuple):
    """A filter on one column, with its literal as a scalar of that column's type, or an array of them."""

    column: str
    kind: type
    value: Any
    negated: bool = False

    def passes(self, values: pa.Array) -> pa.Array:
        """Return for each value whether it may pass; null is no."""
        passed = self._plain(values)
        return pc.invert(passed) if self.negated else passed

    def _plain(self, values: pa.Array) -> pa.Array:
        if self.kind is spark.IsNull:
            return pc.is_null(values)
        if self.kind is spark.IsNotNull:
            return pc.is_valid(values)
        if self.kind is spark.In:
            return pc.if_else(pc.is_null(values), None, pc.is_in(values, self.value))
        if self.kind in _TEXT:
            return _TEXT[self.kind](values, self.value)
        return _COMPARE[self.kind](values, self.value)


def column_tests(filters: Sequence[spark.Filter], schema: pa.Schema) -> tuple[ColumnTest, ...]:
    """Return those filters that can be tested here exactly as Spark does; the others are Spark's."""
    return tuple(test for each in filters if (test := _test(each, schema)) is not None)


def _test(given: spark.Filter, schema: pa.Schema) -> ColumnTest | None:
    negated = isinstance(given, spark.Not)
    plain: Any = given.child if negated else given
    if len(plain.attribute) != 1 or plain.attribute[0] not in schema.names:
        return None
    name, kind = plain.attribute[0], type(plain)
    of_type = schema.field(name).type
    if kind in (spark.IsNull, spark.IsNotNull):
        return ColumnTest(name, kind, None, negated)
    if kind in _TEXT:
        return ColumnTest(name, kind, plain.value, negated) if pa.types.is_string(of_type) else None
    if not _compares_alike(of_type) or (kind not in _COMPARE and kind is not spark.In):
        return None
    try:
        if kind is spark.In:
            return ColumnTest(name, kind, pa.array([_literal(v, of_type) for v in plain.value], of_type), negated)
        return ColumnTest(name, kind, pa.scalar(_literal(plain.value, of_type), of_type), negated)
    except (pa.ArrowException, OverflowError, TypeError, ValueError):
        return None


def _compares_alike(kind: pa.DataType) -> bool:
    """Tell whether Arrow orders values of a type as Spark does: not so for floats (NaN, -0.0)."""
    of = pa.types
    return bool(of.is_integer(kind) or of.is_string(kind) or of.is_date32(kind) or of.is_timestamp(kind))


def _literal(value: object, kind: pa.DataType) -> object:
    if value is None or isinstance(value, bool):
        raise TypeError("a comparison with null or a truth value is Spark's")
    if isinstance(value, datetime) and (value.tzinfo is not None) != (kind == TIMESTAMP):
        raise TypeError("only Spark compares an instant with a local time")
    return value


def passing(batch: pa.RecordBatch, tests: Sequence[ColumnTest]) -> pa.RecordBatch:
    """Return the rows that may pass all tests; the batch itself where that is all of them."""
    mask = None
    for test in tests:
        passed = test.passes(batch.column(test.column))
        mask = passed if mask is None else pc.and_(mask, passed)
    if mask is None or (not mask.null_count and pc.all(mask).as_py()):
        return batch
    return batch.filter(mask)


def may_hold(tests: Sequence[ColumnTest], column: str, value: object, kind: pa.DataType) -> bool:
    """Tell whether records that all have one value in a column may pass."""
    one_value = pa.array([value], kind)
    return all(test.passes(one_value)[0].as_py() for test in tests if test.column == column)


def span(tests: Sequence[ColumnTest], column: str) -> tuple[int, int]:
    """Return the least and the greatest value of an integer or time column that may pass, both inside."""
    least, greatest = _LEAST, _GREATEST
    for test in tests:
        if test.column != column or test.negated or test.kind in (spark.IsNull, spark.IsNotNull):
            continue
        values = _numbers(test.value)
        if not values:
            continue
        if test.kind not in _UNTIL:
            least = max(least, min(values))
        if test.kind not in _FROM:
            greatest = min(greatest, max(values))
    return least, greatest


def _numbers(value: Any) -> list[int]:
    values = value if isinstance(value, pa.Array) else pa.array([value.as_py()], value.type)
    return [number for number in values.cast(pa.int64()).to_pylist() if number is not None]

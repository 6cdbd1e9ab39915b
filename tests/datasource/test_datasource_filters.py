"""A filter never holds back a row that Spark would let pass, and prunes what the index can tell."""

from datetime import UTC, date, datetime

import pyarrow as pa
import pytest
from pyspark.sql import datasource as spark

from headrace.base.schema import TIMESTAMP
from headrace.connect.source import OffsetRange
from headrace.engine.spark.datasource import filters, read_tasks

ROWS = pa.record_batch(
    {
        "row": [0, 1, 2, 3],
        "n": pa.array([1, 2, None, 4], pa.int32()),
        "s": pa.array(["ab", "b", None, "é"]),
        "f": pa.array([float("nan"), 1.0, None, -0.0]),
        "at": pa.array([0, 1_000_000, None, 2_000_000], TIMESTAMP),
        "d": pa.array([date(2026, 1, 1), None, date(2026, 1, 2), date(1, 1, 1)]),
        "ok": pa.array([True, False, None, True]),
    }
)
N, S, AT = ("n",), ("s",), ("at",)
PASSES = [
    (spark.EqualTo(N, 2), [1]),
    (spark.Not(spark.EqualTo(N, 2)), [0, 3]),
    (spark.GreaterThan(N, 1), [1, 3]),
    (spark.GreaterThanOrEqual(N, 4), [3]),
    (spark.LessThan(N, 2), [0]),
    (spark.LessThanOrEqual(N, 2), [0, 1]),
    (spark.In(N, (1, 4, 9)), [0, 3]),
    (spark.Not(spark.In(N, (1, 4))), [1]),
    (spark.IsNull(N), [2]),
    (spark.Not(spark.IsNull(N)), [0, 1, 3]),
    (spark.IsNotNull(N), [0, 1, 3]),
    (spark.StringStartsWith(S, "a"), [0]),
    (spark.StringEndsWith(S, "b"), [0, 1]),
    (spark.StringContains(S, "é"), [3]),
    (spark.GreaterThan(S, "b"), [3]),
    (spark.EqualTo(AT, datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)), [1]),
    (spark.LessThan(("d",), date(2026, 1, 1)), [3]),
]
LEFT_TO_SPARK = [
    spark.EqualTo(("f",), 1.0),
    spark.GreaterThan(("f",), 0.0),
    spark.EqualNullSafe(N, None),
    spark.EqualTo(N, None),
    spark.EqualTo(N, 1 << 40),
    spark.EqualTo(AT, datetime(1970, 1, 1)),  # noqa: DTZ001 -- a clock's reading is no instant
    spark.EqualTo(("ok",), value=True),
    spark.EqualTo(("a", "b"), 1),
    spark.EqualTo(("missing",), 1),
    spark.In(N, (1, None)),
]


@pytest.mark.parametrize(("given", "rows"), PASSES, ids=[str(each[0]) for each in PASSES])
def test_rows_that_pass_are_kept(given, rows):
    tests = filters.column_tests([given], ROWS.schema)
    assert len(tests) == 1
    assert filters.passing(ROWS, tests).column("row").to_pylist() == rows


@pytest.mark.parametrize("given", LEFT_TO_SPARK, ids=str)
def test_what_arrow_might_see_otherwise_is_left_to_spark(given):
    assert filters.column_tests([given], ROWS.schema) == ()


def test_a_batch_that_passes_whole_is_not_copied():
    tests = filters.column_tests([spark.GreaterThan(N, 0), spark.IsNotNull(N)], ROWS.schema)
    batch = ROWS.slice(0, 2)
    assert filters.passing(batch, tests) is batch
    assert filters.passing(batch, ()) is batch


def test_bounds_narrow_each_other():
    def span(*given):
        return filters.span(filters.column_tests(given, ROWS.schema), "n")

    assert span(spark.GreaterThan(N, 1), spark.LessThanOrEqual(N, 7), spark.IsNotNull(N)) == (1, 7)
    assert span(spark.In(N, (3, 5))) == (3, 5)
    assert span(spark.EqualTo(N, 4), spark.GreaterThan(N, 2)) == (4, 4)
    assert span(spark.Not(spark.EqualTo(N, 4))) == span()


def test_the_index_prunes_partitions_offsets_and_times(searches):
    schema = pa.schema([*searches.schema, ("_topic", pa.string()), ("_partition", pa.int32()), ("_offset", pa.int64())])

    def ranges(*given):
        tests = filters.column_tests(given, schema)
        range_ = OffsetRange(source="searches", partition="1", start=0, end=5)
        return [(each.start, each.end) for each in read_tasks.pruned(searches, range_, tests)]

    minute = [datetime(1970, 1, 1, 0, n, tzinfo=UTC) for n in range(10)]
    assert ranges() == [(0, 5)]
    assert ranges(spark.EqualTo(("_partition",), 0)) == []
    assert ranges(spark.StringStartsWith(("_topic",), "click")) == []
    assert ranges(spark.GreaterThan(("_offset",), 2), spark.LessThan(("_offset",), 4)) == [(2, 5)]
    assert ranges(spark.EqualTo(("_offset",), 9)) == []
    assert ranges(spark.GreaterThanOrEqual(AT, minute[5])) == [(2, 5)]
    assert ranges(spark.In(AT, (minute[1], minute[3]))) == [(0, 2)]
    assert ranges(spark.LessThan(AT, minute[1])) == [(0, 1)]
    assert ranges(spark.GreaterThan(AT, minute[9]), spark.LessThan(AT, minute[1])) == []

"""`cast` and `try_cast`: from every type to every type, as Spark does it, or refused as Spark refuses it."""

import pytest
from adversaries import SCHEMA
from comparison import differences

from headrace.base.errors import WrongType
from headrace.base.schema import type_name
from headrace.expressions import scalar

COLUMNS = (*"bhilfdmwups", "bin", "day", "at", "ntz", "ints", "texts", "counts", "pair")
TYPES = (
    "tinyint", "smallint", "int", "bigint", "float", "double", "decimal(10,2)", "decimal(38,10)", "decimal(3,3)",
    "boolean", "string", "binary", "date", "timestamp", "timestamp_ntz", "array<int>", "array<string>",
    "array<bigint>", "map<string,bigint>", "struct<a:bigint,b:string>",
)  # fmt: skip
# what docs/expressions.md states as known differences: (cast, what its only differing row shows)
KNOWN = (
    ("(l as timestamp)", "9223372036854775807"),  # beyond what microseconds hold, Spark returns the last instant
    ("(w as timestamp)", "9999999999999999999999999999"),  # the same, and Spark's wraps around
    ("(f as string)", "1.401298464324817e-45"),  # the shortest digits that read back, as newer Java versions
    ("(d as string)", "5e-324"),
    ("(s as decimal", "\uff11\uff12"),  # digits that are not ASCII
    ("(bin as string)", "\\xff"),  # bytes that are no text
)
REFUSED = ("ints as string", "texts as string", "counts as string", "pair as string")  # by us alone


def allowed(text):
    try:
        scalar(text, SCHEMA, step="cast")
    except WrongType:
        return False
    return True


@pytest.mark.spark
def test_a_cast_is_allowed_where_spark_allows_it(spark):
    frame = spark.createDataFrame([], ", ".join(f"`{f.name}` {type_name(f.type)}" for f in SCHEMA))
    texts = [f"{column} as {kind}" for column in COLUMNS for kind in TYPES]
    found = [text for text in texts if allowed(f"cast({text})") is not spark_allows(frame, f"cast({text})")]
    assert sorted(found) == sorted(REFUSED)


def spark_allows(frame, text):
    from pyspark.errors import AnalysisException

    try:
        frame.selectExpr(text)
    except AnalysisException:
        return False
    return True


@pytest.mark.spark
def test_a_cast_gives_what_spark_gives(rivals):
    texts = [f"cast({column} as {kind})" for column in COLUMNS for kind in TYPES]
    texts += [f"try_cast({column} as {kind})" for column in ("s", "d", "w", "l") for kind in TYPES]
    found = differences(rivals, [(text, 0) for text in texts if allowed(text)])
    unknown = [line for line in found if not any(cast in line and shown in line for cast, shown in KNOWN)]
    assert not unknown, "\n" + "\n".join(unknown)

"""Upper, lower and title case: every letter of Unicode, and the places of the final sigma."""

import pyarrow as pa
import pytest
from rivals import Duck

from headrace.base.schema import parse
from headrace.expressions import scalar

pytestmark = pytest.mark.spark
CALLS = (
    "upper(s)",
    "lower(s)",
    "initcap(s)",
    "lower(concat('a', s))",
    "lower(concat(s, '\u03a3', 'b'))",
    "lower(concat('a\u03a3', s))",
)
WORDS = (
    "\u0391\u03a3 \u0391\u03a3\u0391 \u03a3 \u0391\u03a3.\u0391 \u0391\u03a3. \u0391\u03a3\u03a3 \u03a3\u03a3",
    "a'\u03a3 b",
    "\u03a3\u0301\u0391",
    "\u0391\u03a3\u0301",
    "1\u03a3",
    "\u2160\u03a3",
    "\u0130\u03a3",
    "fußball \u01c6 \ufb01n \u0130x",
    "\u03a3-\u03a3 \u0391\u03a3-\u0391",
    "o'neil x.y",
)


def test_every_letter_has_the_case_that_spark_gives_it(spark):
    letters = [chr(c) for c in (*range(1, 0xD800), *range(0xE000, 0x1F200), *range(0xE0000, 0xE0200))]
    table = pa.table({"_row": pa.array(range(len(letters) + len(WORDS)), pa.int32()), "s": [*letters, *WORDS]})
    theirs = spark.createDataFrame(table).selectExpr("_row", *(f"{text} as c{i}" for i, text in enumerate(CALLS)))
    theirs = theirs.toArrow().sort_by("_row")
    duck = Duck()
    duck.load(table)
    for place, text in enumerate(CALLS):
        expression = scalar(text, parse("s string"), step="letters")
        ours = duck.column(f"SELECT {expression.sql} FROM rows ORDER BY _row").to_pylist()
        found = [
            (given, hex(ord(given[0])), want, got)
            for given, want, got in zip(table["s"].to_pylist(), theirs[f"c{place}"].to_pylist(), ours, strict=True)
            if want != got
        ]
        assert not found, (text, len(found), found[:20])

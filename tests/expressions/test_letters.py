"""Upper, lower and title case: every code point of Unicode, and the places of the final sigma."""

import pyarrow as pa
import pytest
from rivals import Duck

from headrace.base.schema import parse
from headrace.plan.expressions import scalar

pytestmark = pytest.mark.spark
CALLS = ("upper(s)", "lower(s)", "initcap(s)", "lower(concat('a', s))", "lower(concat(s, 'Σ', 'b'))", "lower(concat('aΣ', s))")
WORDS = ("ΑΣ ΑΣΑ Σ ΑΣ.Α ΑΣ. ΑΣΣ ΣΣ", "a'Σ b", "Σ\u0301Α", "ΑΣ\u0301", "1Σ", "ⅠΣ", "İΣ", "fußball ǆ ﬁn İx", "Σ-Σ ΑΣ-Α", "o'neil x.y")


def test_every_letter_has_the_case_that_spark_gives_it(spark):
    letters = [chr(c) for c in range(1, 0x110000) if not 0xD800 <= c <= 0xDFFF and c < 0x10FFFE]
    table = pa.table({"_row": pa.array(range(len(letters) + len(WORDS)), pa.int32()), "s": [*letters, *WORDS]})
    theirs = spark.createDataFrame(table).selectExpr("_row", *(f"{text} as c{i}" for i, text in enumerate(CALLS)))
    theirs = theirs.toArrow().sort_by("_row")
    duck = Duck()
    duck.load(table)
    for place, text in enumerate(CALLS):
        made = scalar(text, parse("s string"), step="letters")
        ours = duck.column(f"SELECT {made.sql} FROM rows ORDER BY _row").to_pylist()
        found = [
            (given, hex(ord(given[0])), want, got)
            for given, want, got in zip(table["s"].to_pylist(), theirs[f"c{place}"].to_pylist(), ours, strict=True)
            if want != got
        ]
        assert not found, (text, len(found), found[:20])

"""The least and the greatest struct or array: a null inside is less than any value, as in Spark."""

from __future__ import annotations

import pytest

import headrace as hr
from headrace.testing import Driver

pytestmark = pytest.mark.spark

ROWS = [
    {"id": "a", "g": 1, "m": 1.0, "xs": [1, 2]},
    {"id": "b", "g": 1, "m": None, "xs": [1, None]},
    {"id": "c", "g": 1, "m": 2.0, "xs": [1]},
    {"id": "d", "g": 1, "m": 2.0, "xs": None},
    {"id": "e", "g": 2, "m": None, "xs": [None]},
    {"id": "f", "g": 2, "m": None, "xs": []},
    {"id": "g", "g": 3, "m": float("nan"), "xs": None},
]
ASKED = {
    "most": "max(struct(m, id))",
    "least": "min(struct(m, id))",
    "last": "max_by(id, struct(m, id))",
    "first": "min_by(id, struct(m, struct(id, xs)))",
    "longest": "max(xs)",
    "shortest": "min(xs)",
    "of_some": "max(struct(m, id)) filter (where id < 'c')",
    "deep": "max(array(struct(m, xs)))",
}
SCHEMA = "id string, g int, m double, xs array<int>"


@pytest.mark.parametrize("table", [False, True])
def test_the_extremes_of_what_has_nulls_inside_are_those_of_spark(spark, table):
    """From streams, and from tables, from which rows go away again."""
    app = hr.App("extremes")
    rows = app.table("rows", SCHEMA, key="id") if table else app.stream("rows", SCHEMA)
    rows.group_by("g").agg(**ASKED).to_view("made")
    kept = ROWS
    with Driver(app, shards=2) as driver:
        driver.send("rows", *ROWS[:3])
        driver.step()
        driver.send("rows", *ROWS[3:])
        driver.step()
        if table:
            driver.delete("rows", id="c")
            driver.step()
            kept = [row for row in ROWS if row["id"] != "c"]
        ours = driver.view("made")
    spark.createDataFrame(kept, SCHEMA).createOrReplaceTempView("nested")
    columns = ", ".join(f"{text} AS {name}" for name, text in ASKED.items())
    theirs = spark.sql(f"SELECT g, {columns} FROM nested GROUP BY g ORDER BY g").toArrow().to_pylist()
    assert list(map(repr, ours)) == list(map(repr, theirs))

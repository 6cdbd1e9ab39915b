"""The law on versions: whatever the cut and the order, each row meets what a batch as-of join over all gives."""

from __future__ import annotations

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from version_rules import play, random_case

import headrace as hr
from budget import examples
from headrace.testing import Driver

LEFT = "id int, k int, at timestamp"
RIGHT = "k int, v int, since timestamp"
FIRST = 1_767_225_600_000
LAST = 20

keys, times = st.integers(1, 3), st.integers(0, LAST)
asks = st.tuples(st.just("l"), st.one_of(st.none(), keys, keys), times)
upserts = st.tuples(st.just("r"), keys, times, st.one_of(st.none(), st.integers(0, 3)))
deletes = st.tuples(st.just("d"), keys, times)
parts = st.lists(st.lists(st.one_of(asks, asks, upserts, deletes), max_size=10), min_size=1, max_size=5)

ORACLE = """
WITH versions AS (
    FROM records QUALIFY row_number() OVER (PARTITION BY k, since ORDER BY nr DESC) = 1
), found AS (
    SELECT a.id, a.k, CASE WHEN NOT r.gone THEN r.v END AS v, r.k IS NOT NULL AND NOT r.gone AS there
    FROM asks a ASOF LEFT JOIN versions r ON a.k = r.k AND a.at >= r.since
)
SELECT id, k, v FROM found WHERE there OR $left ORDER BY id
"""
PLAIN = """
SELECT id, k, CASE WHEN NOT gone THEN v END AS v FROM (
    SELECT a.id, a.k, r.v, r.gone, row_number() OVER (PARTITION BY a.id ORDER BY r.since DESC, r.nr DESC) AS place
    FROM asks a LEFT JOIN records r ON a.k = r.k AND r.since <= a.at
) WHERE place = 1 AND (gone = false OR {left}) ORDER BY id
"""


def send(driver, part, first):
    stream, table = [], []
    for nr, (kind, key, second, *value) in enumerate(part, first):
        time = FIRST + second * 1000
        if kind == "l":
            stream.append({"id": nr, "k": key, "at": time})
        elif kind == "r":
            table.append({"k": key, "v": value[0], "since": time})
        else:
            table.append({"k": key, "since": time, "_deleted": True})
    driver.send("l", *stream)
    driver.send("r", *table)


def tables(sent):
    """What was asked, and what was recorded, as tables for the oracles."""
    asked = [{"id": nr, "k": key, "at": at} for nr, (kind, key, at, *_) in enumerate(sent) if kind == "l"]
    records = [
        {"k": key, "v": value[0] if value else None, "since": at, "nr": nr, "gone": kind == "d"}
        for nr, (kind, key, at, *value) in enumerate(sent)
        if kind != "l"
    ]
    kinds = [("k", pa.int32()), ("v", pa.int32()), ("since", pa.int64()), ("nr", pa.int64()), ("gone", pa.bool_())]
    return (
        pa.Table.from_pylist(asked, schema=pa.schema([("id", pa.int64()), ("k", pa.int32()), ("at", pa.int64())])),
        pa.Table.from_pylist(records, schema=pa.schema(kinds)),
    )


def app_of(how):
    """Both sources may be out of order as far as times go, so nothing is late."""
    app = hr.App("law", shards=2)
    stream = app.stream("l", LEFT, event_time="at", out_of_order="5 s")
    table = app.table("r", RIGHT, key="k", event_time="since", out_of_order="5 s")
    stream.join(table, on="k", as_of="at", grace=f"{LAST} s", how=how).named("dated").to_topic("out")
    return app


def run(cut, how):
    """The rows that come out, of whatever epoch; each exactly once."""
    nr, made = 0, []
    with Driver(app_of(how)) as driver:
        for part in cut:
            send(driver, part, nr)
            driver.step()
            nr += len(part)
        driver.finish()
        assert driver.late("dated") == []
        made = [(row["id"], row["k"], row["v"]) for row in driver.read("out")]
    assert len({row[0] for row in made}) == len(made)
    return sorted(made)


@settings(max_examples=examples(4))
@given(cut=parts, how=st.sampled_from(["inner", "left"]))
def test_each_row_meets_the_version_of_its_time(cut, how):
    """Against DuckDB's own as-of join over all that was sent."""
    asks, records = tables([each for part in cut for each in part])
    oracle = duckdb.connect()
    oracle.register("asks", asks)
    oracle.register("records", records)
    batch = ORACLE.replace("$left", "true" if how == "left" else "false")
    assert run(cut, how) == oracle.sql(batch).fetchall()


@pytest.mark.parametrize("seed", [*range(5), 1088])  # the last: a shard without input has rows that become final
def test_each_epoch_follows_the_rules(seed):
    """Also of rows that are late, that ask for times long past or to come, and of old versions that are forgotten."""
    play(random_case(seed))


@pytest.mark.spark
@settings(max_examples=examples(2))
@given(cut=parts, how=st.sampled_from(["inner", "left"]))
def test_each_row_meets_what_plain_spark_finds(spark, cut, how):
    asks, records = tables([each for part in cut for each in part])
    spark.createDataFrame(asks).createOrReplaceTempView("asks")
    spark.createDataFrame(records).createOrReplaceTempView("records")
    plain = spark.sql(PLAIN.format(left="true" if how == "left" else "false")).toArrow().to_pylist()
    assert run(cut, how) == [(row["id"], row["k"], row["v"]) for row in plain]

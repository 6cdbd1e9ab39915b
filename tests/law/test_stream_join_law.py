"""Joins of two streams are those of the batch however the input is cut, and every epoch gives what the rules give."""

from __future__ import annotations

from collections import Counter

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from stream_rules import KEYS, SCHEMA, START, Case, play, random_case

import headrace as hr
from budget import examples
from headrace.testing import Driver, check_deltas

HOWS = ["inner", "left", "right", "full"]
QUIET = list(HealthCheck)

# ---- every epoch, against the rules ----

rows = st.tuples(st.sampled_from(KEYS), st.integers(0, 3), st.integers(0, 30))
sides = st.lists(rows, max_size=6)
ends = st.integers(-12, 12)
cases = st.builds(
    Case,
    how=st.sampled_from([*HOWS, "semi", "anti"]),
    within=st.tuples(ends, ends).map(lambda both: tuple(sorted(both))),
    grace=st.sampled_from([0, 3, 15]),
    delay=st.sampled_from([0, 4, 20]),
    where=st.booleans(),
    epochs=st.lists(st.tuples(sides, sides), min_size=1, max_size=6),
    restarts=st.frozensets(st.integers(0, 5), max_size=2),
    shards=st.sampled_from([1, 3]),
)


@settings(max_examples=examples(4), suppress_health_check=QUIET)
@given(case=cases)
def test_every_epoch_gives_what_the_rules_give(case):
    """Disorder, late rows, nulls, equal rows, empty epochs: pairs once, who is alone as soon as it is sure."""
    play(case)


@pytest.mark.parametrize("seed", range(4))
def test_cases_of_the_long_script(seed):
    """`scripts/random_joins.py` runs thousands; these have drift and skew."""
    play(random_case(seed))


# ---- the end, against the batch ----

ON = "l.k = r.k AND l.at + {low} <= r.at AND r.at <= l.at + {high} AND l.v + r.v < 9"
COLUMNS = "l.k AS k, l.v AS v, l.at AS at, r.k AS k_right, r.v AS v_right, r.at AS at_right"
QUERY = f"SELECT {COLUMNS} FROM l {{how}} JOIN r ON {{on}}"


def streamed(how, within, left, right, cuts):
    """Return all that comes out of epochs of these sizes and at the end; nothing is late."""
    app = hr.App("law")
    ups = [app.stream(name, SCHEMA, event_time="at", out_of_order="2 days") for name in "lr"]
    low, high = (f"{end} s" for end in within)
    both = ups[0].join(ups[1], on={"k": "k"}, within=(low, high), how=how, where="v + v_right < 9").named("j")
    both.to_topic("out")
    check_deltas(both)
    made, ats = [], [0, 0]
    with Driver(app, shards=2) as driver:
        for size in [*cuts, left.num_rows + right.num_rows]:
            for side, (name, sent) in enumerate((("l", left), ("r", right))):
                driver.log.topic(name).append(sent.slice(ats[side], size))
                ats[side] = min(ats[side] + size, sent.num_rows)
            driver.step()
        driver.finish()
        made = driver.read("out")
        assert driver.late("j") == []
    return Counter((r["k"], r["v"], r["at"], r["v_right"], r["at_right"]) for r in made)


def counted(table):
    """Return the batch's rows, the key that either side has."""
    return Counter(
        (r["k"] if r["k"] is not None else r["k_right"], r["v"], r["at"], r["v_right"], r["at_right"])
        for r in table.to_pylist()
    )


def table(seed, size, *, span, keys):
    """Return a side's rows: skewed keys, some null, some rows twice, times in disorder over `span` seconds."""
    random = np.random.default_rng(seed)
    places = random.integers(0, size, size)  # some rows are there twice
    key = np.floor(random.random(size) ** 3 * keys).astype(int)[places]
    nulls = (random.random(size) < 0.05)[places]
    at = START * 1000 + random.integers(0, span * 4, size)[places] * 250_000
    return pa.table(
        {
            "k": pa.array([None if null else f"k{k}" for k, null in zip(key, nulls, strict=True)]),
            "v": pa.array(random.integers(0, 8, size)[places], pa.int32()),
            "at": pa.array(at, pa.timestamp("us", tz="UTC")),
        }
    )


@pytest.mark.parametrize("how", HOWS)
@settings(max_examples=examples(2), suppress_health_check=QUIET)
@given(
    seed=st.integers(0, 1 << 20),
    within=st.tuples(ends, ends).map(lambda both: tuple(sorted(both))),
    span=st.sampled_from([20, 600, 20_000]),
    keys=st.sampled_from([1, 30]),
    cuts=st.lists(st.integers(1, 200), max_size=2),
)
def test_the_whole_is_the_range_join_of_the_batch(how, seed, within, span, keys, cuts):
    """And the unmatched rows are those of the batch's outer join; also where one key has rows over a long time."""
    left, right = (table([seed, side], 250, span=span, keys=keys) for side in (0, 1))
    low, high = (f"INTERVAL ({end}) SECOND" for end in within)
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    for name, side in (("l", left), ("r", right)):
        connection.register(name, side)
    batch = connection.sql(QUERY.format(how=how, on=ON.format(low=low, high=high))).to_arrow_table()
    assert streamed(how, within, left, right, cuts) == counted(batch)


@pytest.mark.spark
@pytest.mark.parametrize("how", HOWS)
def test_the_whole_is_the_range_join_of_spark(spark, how):
    """The same against the rival that everybody trusts."""
    for seed, within, cuts in ((1, (-3, 7), [100, 1, 150]), (2, (2, 9), [])):
        left, right = (table([seed, side], 300, span=60, keys=12) for side in (0, 1))
        for name, side in (("l", left), ("r", right)):
            spark.createDataFrame(side).createOrReplaceTempView(name)
        low, high = (f"INTERVAL '{end}' SECOND" for end in within)
        batch = spark.sql(QUERY.format(how=how, on=ON.format(low=low, high=high))).toArrow()
        assert sum(counted(batch).values()) > 100
        assert streamed(how, within, left, right, cuts) == counted(batch)

"""The law on lookups: each row of the stream meets what a replay, one change after the other, says is there."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st
from lookup_rules import GROUPS, LEFT, RIGHT, SECONDS, Case, Replayed, expected, play, send

import headrace as hr
from budget import examples
from headrace.testing import Driver

keys, groups, times = st.integers(1, 3), st.sampled_from(GROUPS), st.integers(0, SECONDS - 1)
asks = st.tuples(st.just("l"), st.one_of(st.none(), keys), groups, times)
upserts = st.tuples(st.just("r"), keys, groups, st.sampled_from([0, 1, 2, None]), times)
deletes = st.tuples(st.just("d"), keys, times)
parts = st.lists(st.lists(st.one_of(asks, asks, upserts, upserts, deletes), max_size=12), min_size=1, max_size=5)
hows = st.sampled_from(["inner", "left"])


@settings(max_examples=examples(6))
@given(epochs=parts, how=hows, on=st.sampled_from("kg"), where=st.booleans())
def test_a_lookup_is_its_replay(epochs, how, on, where):
    """By the table's key and by another column, with and without a condition; scripts/random_joins.py plays more."""
    play(Case(on=on, how=how, where=where, epochs=epochs))


@settings(max_examples=examples(2))
@given(epochs=parts, how=hows)
def test_rows_without_a_key_are_those_of_the_table_between_epochs(epochs, how):
    """A bag has no changes of a row, so inside an epoch only times that go forward say what is there."""
    app = hr.App("law", shards=2)
    stream = app.stream("l", LEFT, event_time="at")
    bag = app.table("r", RIGHT, key="k", event_time="since").select("g", "n")
    stream.join(bag, on="g", how=how).named("bag").to_topic("bag")
    case, table, nr = Case(on="g", how=how, where=False, epochs=epochs), Replayed(), 0
    with Driver(app) as driver:
        for part in epochs:
            changes, asked = ([each for each in part if (each[0] == "l") == asks] for asks in (False, True))
            send(driver, changes, nr)
            driver.step()
            table.epoch(changes)
            send(driver, asked, nr)
            driver.step()
            theirs = Counter()
            for (at, _, _, n), count in expected(case, asked, nr, table.epoch([])).items():
                theirs[(at, n)] += count
            assert Counter((row["id"], row["n"]) for row in driver.read("bag")) == theirs
            nr += len(part)

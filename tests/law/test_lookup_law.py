"""The law on lookups: each row of the stream meets what a replay says is there when it arrives, for every cut."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st
from lookup_rules import FIRST, GROUPS, LEFT, RIGHT, SECONDS, Case, play, play_cut, send

import headrace as hr
from budget import examples
from headrace.testing import Driver

keys, groups, times = st.integers(1, 3), st.sampled_from(GROUPS), st.integers(0, SECONDS - 1)
asks = st.tuples(st.just("l"), st.one_of(st.none(), keys), groups, times)
upserts = st.tuples(st.just("r"), keys, groups, st.sampled_from([0, 1, 2, None]), times)
deletes = st.tuples(st.just("d"), keys, times)
records = st.lists(st.one_of(asks, asks, upserts, upserts, deletes), max_size=12)
parts = st.lists(records, min_size=1, max_size=5)
hows = st.sampled_from(["inner", "left"])
cuts = st.lists(st.integers(1, 9), max_size=6)


@settings(max_examples=examples(6))
@given(epochs=parts, how=hows, on=st.sampled_from("kg"), where=st.booleans())
def test_a_lookup_is_its_replay(epochs, how, on, where):
    """By the table's key and by another column, with and without a condition; scripts/random_joins.py plays more."""
    play(Case(on=on, how=how, where=where, epochs=epochs))


@settings(max_examples=examples(8))
@given(epochs=parts, how=hows, on=st.sampled_from("kg"), limits=cuts)
def test_a_lookup_is_the_same_for_every_cut(epochs, how, on, limits):
    """All is there already, event times in any order, both sides in two partitions, epochs of any size."""
    play_cut(Case(on=on, how=how, where=False, epochs=epochs), limits)


@settings(max_examples=examples(4))
@given(part=st.lists(st.tuples(st.sampled_from("lab"), keys, times), max_size=20), limits=cuts)
def test_a_chain_of_lookups_is_the_same_for_every_cut(part, limits):
    """Two tables, one of them `latest` of a stream: of equal keys the row of the greatest event time is there."""
    app = hr.App("law", shards=2)
    stream = app.stream("l", "id int, k int, at timestamp", event_time="at", partitions=2)
    one = app.table("a", "k int, a int, at timestamp", key="k", event_time="at").drop("at")
    other = app.stream("b", "k int, b int, at timestamp", event_time="at").latest("k").drop("at")
    both = stream.where("id >= 0").join(one, on="k", how="left").named("one").join(other, on="k", how="left")
    both.named("other").to_topic("out")
    there, expected = {"a": {}, "b": {}}, Counter()
    with Driver(app, shards=2) as driver:
        for nr, (kind, key, second) in enumerate(part):
            if kind == "l":
                driver.send("l", {"id": nr, "k": key, "at": FIRST + second * 1000}, partition=nr % 2)
                expected[(nr, *(there[name].get(key, (None, None))[1] for name in "ab"))] += 1
                continue
            driver.send(kind, {"k": key, kind: nr, "at": FIRST + second * 1000})
            if kind == "a" or second >= there["b"].get(key, (0, 0))[0]:
                there[kind][key] = second, nr
        for limit in limits:
            driver.step(limit=limit)
        driver.run()
        assert Counter((row["id"], row["a"], row["b"]) for row in driver.read("out")) == expected


@settings(max_examples=examples(3))
@given(epochs=parts, how=hows, limits=cuts)
def test_a_lookup_in_a_bag_is_the_same_for_every_cut(epochs, how, limits):
    """A table without a key: the changes of a row have no order but their arrival."""
    app = hr.App("law", shards=2)
    stream = app.stream("l", LEFT, event_time="at", partitions=2)
    bag = app.table("r", RIGHT, key="k", event_time="since").select("g", "n")
    stream.join(bag, on="g", how=how).named("bag").to_topic("bag")
    part, rows, expected = [each for epoch in epochs for each in epoch], {}, Counter()
    for nr, (kind, key, *more) in enumerate(part):
        if kind == "l":
            found = [n for g, n in rows.values() if g is not None and g == more[0]]
            expected.update((nr, n) for n in found or [None] * (how == "left"))
        elif kind == "r":
            rows[key] = more[:2]
        else:
            rows.pop(key, None)
    with Driver(app) as driver:
        send(driver, part, 0)
        for limit in limits:
            driver.step(limit=limit)
        driver.run()
        assert Counter((row["id"], row["n"]) for row in driver.read("bag")) == expected

"""The law on searches: each document meets the queries that a replay says are there when it arrives, for every cut."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from budget import examples
from headrace.testing import Driver, check_deltas
from search_oracle import meets, terms_of, tree_of

QUERIES = ["dog", "cat", "dog OR cat", '"hot dog"', "do*", "dog -hot", "(cat OR hot) dog", "-dog", '"', None]
UNREADABLE = ("-dog", '"')
TEXTS = ["dog", "Hot DOG", "cat", "dog hot", "", None, "doge cat", "hot cat dog"]
keys = st.integers(1, 4)
documents = st.tuples(st.just("d"), st.sampled_from(TEXTS))
upserts = st.tuples(st.just("q"), keys, st.sampled_from(QUERIES))
deletes = st.tuples(st.just("x"), keys)
records = st.lists(st.one_of(documents, documents, upserts, upserts, deletes), max_size=14)
parts = st.lists(records, min_size=1, max_size=5)
cuts = st.lists(st.integers(1, 9), max_size=6)


def app_of():
    app = hr.App("law", shards=2)
    stream = app.stream("d", "id int, text string", partitions=2)
    table = app.table("q", "k int, query string, nr int", key="k", partitions=2)
    met = stream.search(table, text="text").named("met")
    met.to_topic("out")
    check_deltas(met)
    return app


def send(driver, part, first):
    for nr, (kind, value, *more) in enumerate(part, first):
        if kind == "d":
            driver.send("d", {"id": nr, "text": value}, partition=nr % 2)
        elif kind == "q":
            driver.send("q", {"k": value, "query": more[0], "nr": nr})
        else:
            driver.delete("q", k=value)


class Replayed:
    """All records, one after the other."""

    def __init__(self):
        self.queries, self.nr = {}, 0

    def part(self, part):
        """Return what comes out of some more records: the document, the key of the query, and its version."""
        found = Counter()
        for kind, value, *more in part:
            if kind == "q":
                self.queries[value] = (*more, self.nr)
            elif kind == "x":
                self.queries.pop(value, None)
            else:
                for key, (query, version) in self.queries.items():
                    if query is not None and query not in UNREADABLE and meets(tree_of(query), terms_of(value)):
                        found[(self.nr, key, version)] += 1
            self.nr += 1
        return found


def published(driver):
    return Counter((row["id"], row["k"], row["nr"]) for row in driver.read("out"))


@settings(max_examples=examples(6))
@given(epochs=parts, restarts=st.sets(st.integers(0, 4)))
def test_a_search_is_its_replay(epochs, restarts):
    """Queries are added, changed, deleted and refused among the documents; the app starts again in between."""
    replayed, nr = Replayed(), 0
    with Driver(app_of(), shards=2) as driver:
        for number, part in enumerate(epochs):
            if number in restarts:
                driver.restart()
            send(driver, part, nr)
            driver.step()
            assert published(driver) == replayed.part(part), f"epoch {number}"
            nr += len(part)


@settings(max_examples=examples(8))
@given(epochs=parts, limits=cuts)
def test_a_search_is_the_same_for_every_cut(epochs, limits):
    part = [each for epoch in epochs for each in epoch]
    with Driver(app_of(), shards=2) as driver:
        send(driver, part, 0)
        for limit in limits:
            driver.step(limit=limit)
        driver.run()
        assert published(driver) == Replayed().part(part)

"""The queries that simulated programs search with: what their SQL says is what the page of searches says."""

from __future__ import annotations

import itertools

import duckdb
import pytest

import headrace as hr
from headrace.testing import Driver
from headrace.testing.simulation.vocabulary import QUERIES
from search_oracle import meets, terms_of, tree_of

LETTERS = ("a", "b", "é", "")
TEXTS = [" ".join(words) for words in itertools.product(LETTERS, ("0", "1", "2"), ("3", "-1", "2", "7"))]


@pytest.mark.parametrize(("query", "meant"), QUERIES)
def test_a_query_of_the_simulation_means_what_the_oracle_of_searches_says(query, meant):
    words = "(concat(' ', replace(l.text, '-', ''), ' '))"
    for letter in LETTERS[:3]:
        tree = tree_of(
            duckdb.execute(f"SELECT {query.replace('upper(k)', 'k')} FROM (SELECT ? AS k)", [letter])
            .fetchone()[0]
            .replace("+", "")
        )
        rows = duckdb.execute(
            f"SELECT l.text, {meant.format(l=words)} FROM (SELECT unnest(?) AS text) l, (SELECT ? AS k) r",
            [TEXTS, letter],
        ).fetchall()
        assert rows == [(text, meets(tree, terms_of(text))) for text in TEXTS]
        assert len({met for _, met in rows}) == 2


@pytest.mark.parametrize("query", [query for query, _ in QUERIES])
def test_a_query_of_an_empty_word_is_dead_and_of_null_meets_nothing(query):
    app = hr.App("empty", shards=1)
    docs, table = app.stream("d", "text string"), app.table("t", "id int, k string", key="id")
    docs.search(table.with_columns(query=query), text="text", query="query").named("met").to_topic("out")
    with Driver(app) as driver:
        driver.send("t", {"id": 1, "k": ""}, {"id": 2, "k": None})
        driver.send("d", {"text": "2"}, {"text": "1"}, {"text": ""})
        driver.run()
        assert driver.read("out") == []
        assert len(driver.read("t.dead")) == 1

"""Searches: how queries are read, texts cut into terms, and both compared, against plain Python."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from budget import examples
from headrace.kernels.duck import Duck
from headrace.kernels.search import matching
from headrace.kernels.search.analysis import analysed
from headrace.kernels.search.matching import During, Queries, matches
from headrace.kernels.search.query import MOST_NESTED, MOST_TEXT, MOST_WORDS, QueryError, parsed, words_of
from headrace.kernels.search.stored_query import stored
from search_oracle import meets, terms_of, tree_of


@pytest.fixture(scope="module")
def duck():
    opened = Duck()
    yield opened
    opened.close()


def stored_of(duck, text):
    tree = parsed(text)
    return stored(tree, analysed(duck, list(words_of(tree))))


def columns(queries):
    """Return stored queries as columns."""
    kinds = [pa.list_(pa.string())] * 2 + [pa.list_(pa.int32())] * 2
    lists = [[list(query[place]) for query in queries] for place in range(4)]
    return Queries(*(pa.chunked_array([pa.array(each, kind)]) for each, kind in zip(lists, kinds, strict=True)))


def found(duck, texts, queries, during=None):
    """Return the pairs of a text and a query that it meets, in order."""
    known = analysed(duck, [text for text in texts if text is not None])
    terms = pa.chunked_array([pa.array([known.get(text) for text in texts], pa.list_(pa.string()))])
    stored_queries = columns([stored_of(duck, query) for query in queries])
    parts = matches(terms, stored_queries, during)
    return [(int(d), int(q)) for documents, which in parts for d, q in zip(documents, which, strict=True)]


def meet(duck, text, query):
    return found(duck, [text], [query]) == [(0, 0)]


# ---- the language ----


@pytest.mark.parametrize(
    ("query", "yes", "no"),
    [
        ("Fast cars", "cars, fast", "fast"),
        ("a OR b", "b", "c"),
        ("a b OR c", "c", "a"),
        ("a (b OR c)", "c a", "c"),
        ("a AND b", "b a", "b"),
        ("+a -b", "a", "a b"),
        ("a NOT b", "a", "b a"),
        ("a -(b OR c)", "a d", "a c"),
        ("a -(b -c)", "a b c", "a b"),
        ('"new york"', "in New-York!", "york new"),
        ("new-york", "new york", "york new"),
        ('a -"b c"', "a c b", "b c a"),
        ('"a a b"', "a a a b", "a b a"),
        ("mi*", "Miami mitten", "ami"),
        ("OR*", "orchid", "for"),
        ('"or"', "this or that", "this"),
        ("don't", "I don't", "don"),
        (r"c\:\\temp", "C:\\Temp", "c"),
        (r"\-a", "a", "b"),
        ("a …", "a", "…"),
        ("and not", "not and", "and"),
    ],
)
def test_the_language_of_queries(duck, query, yes, no):
    assert meet(duck, yes, query)
    assert not meet(duck, no, query)


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ("", "a word is missing, at character 1"),
        (" \n", "a word is missing, at character 3"),
        ("...", "a query without a word, at character 1"),
        ('say "hello', "a quotation is not closed, at character 5"),
        ("a (b OR c", "a ( is not closed, at character 3"),
        ("a )", "a ) closes nothing, at character 3"),
        ("()", "a word is missing, at character 2"),
        ("a OR", "a word is missing, at character 5"),
        ("OR a", "a word is missing beside OR, at character 1"),
        ("a NOT", "a word is missing, at character 6"),
        ("a NOT NOT b", "a word is missing beside NOT, at character 7"),
        ("a - b", "nothing follows the -, at character 3"),
        ("a --b", "two signs follow each other, at character 4"),
        ("-a", "documents without any of its words meet"),
        ("a OR -b", "documents without any of its words meet"),
        ("title:dog", "a query has no fields (in quotes it is text), at character 6"),
        ("wor?d", "? has no meaning in a query (in quotes it is text), at character 4"),
        ("dog^2", "^ has no meaning"),
        ("a && b", "&& has no meaning"),
        ("!a", "! has no meaning"),
        ("*", "a * is only possible at the end of a word, at character 1"),
        ("a*b", "a * is only possible at the end of a word, at character 2"),
        ("new-yor*", "a * is only possible after one word, at character 1"),
        ("a \\", "nothing follows the \\, at character 3"),
        ("(" * (MOST_NESTED + 2) + "a", f"more than {MOST_NESTED} parts in each other"),
        ("a " * (MOST_WORDS + 1), f"more than {MOST_WORDS} words"),
        ("a" * (MOST_TEXT + 1), f"at most {MOST_TEXT} characters"),
    ],
)
def test_a_query_that_cannot_be_read_says_where(duck, query, why):
    with pytest.raises(QueryError) as refused:
        stored_of(duck, query)
    assert why in str(refused.value)


def test_texts_become_terms_by_one_rule(duck):
    expected = {
        "ΟΔΟΣ οδος": ["οδοσ", "οδοσ"],
        "cafe\u0301 CAF\u00c9": ["caf\u00e9", "caf\u00e9"],
        "Straße": ["straße"],
        "snake_case x2, 3.5": ["snake_case", "x2", "3", "5"],
        "東京 Зима": ["東京", "зима"],
        "हिन्दी": ["हिन्दी"],
        "😀 \u200b": [],
        "é\0b dog": ["é", "b", "dog"],
        "": [],
    }
    assert analysed(duck, list(expected)) == expected


def test_a_query_is_found_by_its_longest_word(duck):
    assert stored_of(duck, 'the "united nations" of').cover == ("nations",)
    assert stored_of(duck, "(cat OR hippopotamus) rhinoceros").cover == ("rhinoceros",)
    assert set(stored_of(duck, "of (dogs OR cats*)").cover) == {"dogs", "cats*"}
    assert set(stored_of(duck, "a OR b c").cover) == {"a", "b"}


def test_a_thousand_words_are_possible(duck):
    words = [f"w{i}" for i in range(1000)]
    assert meet(duck, " ".join(reversed(words)), " ".join(words))
    assert not meet(duck, " ".join(words[1:]), " ".join(words))
    assert meet(duck, "w999", " OR ".join(words))
    assert meet(duck, "a w7", "a (" + " OR ".join(words) + ") -b")


def test_a_document_meets_the_queries_that_are_there_when_it_arrives(duck):
    """A query is there from its first time on, and not any more at its last one."""
    arrivals, first, until = (pa.array(each).to_numpy() for each in ([4, 5, 9], [0, 5], [5, 9]))
    pairs = found(duck, ["a", "a", "a"], ["a", "a OR b"], During(arrivals, first, until))
    assert pairs == [(0, 0), (1, 1)]


# ---- against plain Python ----

LETTERS = ["a", "b", "ab", "abc", "É", "e\u0301", "ß", "ΟΣ", "ος", "1", "_", "-", "😀", "\u200b", "İ", "東", "\0"]
texts = st.one_of(st.none(), st.lists(st.sampled_from([*LETTERS, " ", " ", "."]), max_size=12).map("".join))
words = st.sampled_from(["a", "b", "ab", "É", "ος", "abc", "東", "1"])
leaves = st.one_of(
    words, words.map(lambda word: f"{word}*"), st.lists(words, min_size=1, max_size=3).map(lambda w: f'"{" ".join(w)}"')
)
queries = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, min_size=2, max_size=3).map(lambda parts: f"({' OR '.join(parts)})"),
        st.lists(inner, min_size=2, max_size=3).map(lambda parts: f"({' '.join(parts)})"),
        inner.map(lambda part: f"-{part}"),
    ),
    max_leaves=6,
).filter(lambda query: "--" not in query)


@settings(max_examples=examples(60))
@given(
    documents=st.lists(texts, max_size=6), asked=st.lists(queries, max_size=6), most=st.sampled_from([1, 4, 1 << 20])
)
def test_documents_meet_the_queries_that_plain_python_says(documents, asked, most):
    duck = Duck()
    kept = [query for query in asked if readable(duck, query)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(matching, "MOST_CANDIDATES", most)
        patch.setattr(matching, "MOST_TERMS", most)
        pairs = found(duck, documents, kept)
    duck.close()
    assert [document for document, _ in pairs] == sorted(document for document, _ in pairs)
    expected = {
        (d, q)
        for d, document in enumerate(documents)
        for q, query in enumerate(kept)
        if meets(tree_of(query), terms_of(document))
    }
    assert set(pairs) == expected
    assert len(pairs) == len(expected)


def readable(duck, query):
    try:
        stored_of(duck, query)
    except QueryError:
        return False
    return True

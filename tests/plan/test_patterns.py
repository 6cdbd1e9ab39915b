"""Patterns of rows: what is read, what is refused, and that the automaton matches as Python's `re` does."""

from __future__ import annotations

import re
import time

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from budget import examples
from headrace.base.errors import InvalidPlan
from headrace.kernels import pattern_search, pattern_walk
from headrace.kernels.pattern_search import search
from headrace.plan.patterns import pattern


def found(text, rows, *, times=None, within=10**6, watermark=10**9, overlapping=False):
    """Return the matches of a text of rows, each the symbols that one meets, and the first row that is not decided."""
    parsed = pattern(text, step="s")
    numbers = {name: number for number, name in enumerate(parsed.symbols)}
    masks = np.array([sum(1 << numbers[name] for name in row if name in numbers) for row in rows], np.int64)
    times = np.arange(len(rows)) if times is None else np.array(times)
    done = np.zeros(len(rows), np.int64)
    table = (masks, times, done, np.array([0, len(rows)]))
    auto = parsed.automaton
    result = search(table, auto.symbols, auto.follow, (watermark, within, overlapping))
    ends = [*result.matches, len(result.rows)][1:]
    names = [parsed.symbols[auto.symbols[place]] for place in result.places]
    matches = [
        (int(result.rows[start]), "".join(names[start:end])) for start, end in zip(result.matches, ends, strict=True)
    ]
    return matches, int(result.undecided[0])


def texts(alphabet="abc"):
    """Draw patterns; a part that is repeated has a row, for how often nothing is repeated differs between matchers."""
    symbol = st.sampled_from(alphabet)
    signs = st.sampled_from(
        ["*", "+", "?", "{2}", "{1,2}", "{2,}", "{0,2}", "{,2}", "*?", "+?", "??", "{1,3}?", "{1,}?"]
    )

    def larger(inner):
        return st.one_of(
            st.lists(inner, min_size=1, max_size=3).map(" ".join),
            st.lists(inner, min_size=2, max_size=3).map(lambda parts: f"({' | '.join(parts)})"),
            st.builds(lambda part, least, sign: f"({part} {least}){sign}", inner, symbol, signs),
            st.builds(lambda part, sign: f"{part}{sign}", symbol, signs),
        )

    return st.recursive(symbol, larger, max_leaves=6)


@pytest.mark.parametrize("block", [2, 1024])
@settings(max_examples=examples(60))
@given(text=texts(), rows=st.text("abc", min_size=1, max_size=14))
def test_a_match_is_that_of_a_regular_expression(block, text, rows):
    """However few rows have their ends in memory."""
    python = re.compile(text.replace(" ", "").replace("{,", "{0,"))
    expected, at = [], 0
    while at < len(rows):
        match = python.match(rows, at)
        if match and match.group():
            expected.append((at, match.group()))
        at = match.end() if match and match.group() else at + 1
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pattern_walk, "BLOCK", block)
        patch.setattr(pattern_search, "_compiles", lambda: False)
        try:
            assert found(text, rows)[0] == expected
        except InvalidPlan as error:
            assume("no row at all" not in str(error))
            raise


@settings(max_examples=examples(40))
@given(text=texts(), rows=st.text("abc", min_size=2, max_size=12), cut=st.integers(1, 11), overlapping=st.booleans())
def test_what_is_decided_stays_as_it_is(text, rows, cut, overlapping):
    """The matches of the first rows, as far as they are decided, are those of all rows."""
    try:
        early, undecided = found(text, rows[:cut], watermark=0, overlapping=overlapping)
    except InvalidPlan:
        assume(False)  # noqa: FBT003 -- its own sign
    whole, _ = found(text, rows, overlapping=overlapping)
    assert [match for match in whole if match in early] == early
    assert [match for match in whole if match[0] < undecided] == [match for match in early if match[0] < undecided]


def test_a_shown_pattern_is_the_same_pattern():
    text = "((a|b c)+? d{2,} | (e f){3})* g?"
    shown = pattern(text, step="s")
    assert pattern(shown.text, step="s") == shown
    assert shown.text == "((a | b c)+? d{2,} | (e f){3})* g?"


@pytest.mark.parametrize(
    ("text", "rows", "expected"),
    [
        ("(a*)*", "aab", [(0, "aa")]),
        ("(a?){2,} b", "aab", [(0, "aab")]),
        ("a | a b", "ab", [(0, "a")]),
        ("a b | a", "ab", [(0, "ab")]),
        ("a x*? b", ["ax", "x", "abx", "bx"], [(0, "axb")]),
        ("a x* b", ["ax", "x", "abx", "bx"], [(0, "axxb")]),
    ],
)
def test_the_preferred_match_comes_out(text, rows, expected):
    assert found(text, rows)[0] == expected


def test_a_match_may_last_no_longer_than_it_may():
    times = [0, 5, 10, 11, 12]
    assert found("a+", "aaaaa", times=times, within=10)[0] == [(0, "aaa"), (3, "aa")]
    assert found("a b", ["a", "b"], times=[0, 11], within=10) == ([], 2)
    assert found("a c | a+ b", "aaab", times=[0, 1, 9, 11], within=10)[0] == [(1, "aab")]


def test_a_row_is_decided_when_no_preferred_match_can_come():
    assert found("a b", "a", watermark=1, within=5) == ([], 0)
    assert found("a b", "ab", watermark=2, within=5) == ([(0, "ab")], 2)
    assert found("a+", "aa", watermark=2, within=5) == ([], 0)
    assert found("a+?", "aa", watermark=2, within=5) == ([(0, "a"), (1, "a")], 2)
    assert found("a+", "aab", watermark=3, within=5) == ([(0, "aa")], 3)
    assert found("a+", "aa", watermark=6, within=5) == ([(0, "aa")], 2), "no row of its time can come any more"
    assert found("a+", "aa", watermark=5, within=5) == ([], 0)


def test_of_matches_that_overlap_those_that_are_decided_come_out():
    assert found("a b{2,} | b", "abbb", watermark=0, overlapping=True) == ([(1, "b"), (2, "b"), (3, "b")], 0)


def test_many_rows_that_may_all_begin_a_match_take_linear_time():
    """A match of rows that go on for ever is tried once, not from each row again."""
    before = time.thread_time()  # other threads of the process do what they like
    assert found("a+ b", "a" * 100_000) == ([], 100_000)
    assert len(found("(a | b)+? c", "ab" * 50_000 + "c")[0]) == 1
    assert time.thread_time() - before < 60, "of squares it would be hours"


def test_compiled_and_plain_code_agree():
    pytest.importorskip("numba")
    rows = np.random.default_rng(7).choice(list("abc"), 60_000).tolist()
    compiled = found("(a b+? | b c{1,3})+ a", rows)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pattern_search, "_compiles", lambda: False)
        assert found("(a b+? | b c{1,3})+ a", rows) == compiled
    assert len(compiled[0]) > 100


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no pattern"),
        ("(a", '")" is missing'),
        ("a)", '")" was not expected at character 2'),
        ("* a", '"*" repeats nothing at character 1'),
        ("a**", "put it in brackets"),
        ("a{3,2}", "no range"),
        ("a{}", "no number"),
        ("a - b", '"-" was not expected at character 3'),
        ("a b{1,1000000}", "too large: written out it has 1000001 parts"),
        ("((a?){30}){30}", "too large: its automaton"),
        ("a*?", "prefers to match no row at all"),
        ("()", "prefers to match no row at all"),
        ("a A", "differ in case alone"),
        ("(" * 99 + "a" + ")" * 99, "brackets inside each other"),
        (" ".join(f"s{n}" for n in range(99)), "99 symbols"),
    ],
)
def test_what_is_no_pattern_is_refused(text, message):
    with pytest.raises(InvalidPlan) as raised:
        pattern(text, step="s")
    assert message in str(raised.value)

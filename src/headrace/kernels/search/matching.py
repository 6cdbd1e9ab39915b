"""Which documents meet which queries, for many of both at once.

Each query is a candidate for the documents that have the rarest of the terms that it needs, or one of its cover; of
these pairs those stay that have all terms that it needs, and all of it is evaluated for what is left. Everything is
computed in columns: what it costs follows the candidates, not documents times queries.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.kernels.arrays import one_array
from headrace.kernels.search.stored_query import STAR
from headrace.kernels.state.runs import each_once

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    Longs = npt.NDArray[np.int64]
    Bools = npt.NDArray[np.bool_]

MOST_CANDIDATES = 1 << 20
"""So many pairs are evaluated at once, or those of one document."""
MOST_TERMS = 1 << 21
"""So many terms of documents are looked at together, or those of one document."""
MOST_CELLS = 1 << 26
"""So many bytes has the table of which document has which term, or that of one document."""


@dataclass(frozen=True, slots=True)
class Lists:
    """A column of lists: the values of all, and where each begins among them, and how long it is."""

    values: pa.Array
    starts: Longs
    lengths: Longs

    @staticmethod
    def of(column: pa.ChunkedArray) -> Lists:
        """Return a column of lists; a null is an empty one."""
        array = one_array(column)
        lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False).astype(np.int64)
        return Lists(array.flatten(), np.cumsum(lengths) - lengths, lengths)

    def owners(self) -> Longs:
        """Return for each value the number of its list."""
        return np.repeat(np.arange(len(self.lengths)), self.lengths)


@dataclass(frozen=True, slots=True)
class Queries:
    """Stored queries in columns, as `StoredQuery` has them."""

    cover: pa.ChunkedArray
    leaves: pa.ChunkedArray
    ups: pa.ChunkedArray
    needs: pa.ChunkedArray

    def __len__(self) -> int:
        return len(self.cover)


@dataclass(frozen=True, slots=True)
class During:
    """When documents arrived, and from when until before when queries were there."""

    arrivals: Longs
    first: Longs
    until: Longs


def matches(terms: pa.ChunkedArray, queries: Queries, during: During | None) -> Iterator[tuple[Longs, Longs]]:
    """Yield pairs of a document and a query that it meets, by their numbers, in the order of the documents.

    Args:
        terms: for each document its terms, a list in their order; null is none.
        queries: the queries.
        during: which queries were there when a document arrived; None: all of them.

    """
    if len(terms) and len(queries):
        yield from _Matching(Lists.of(terms), queries, during).pairs()


def beginnings(words: pa.Array, most: int) -> Iterator[pa.Array]:
    """Yield the distinct beginnings of words, of one letter, of two, up to `most`."""
    for length in range(1, most + 1):
        yield pc.unique(pc.utf8_slice_codeunits(words, 0, length))


class _Matching:
    """Documents and queries as numbers: a term has the number of its word in the dictionary of the documents.

    Beginnings of words follow these, then phrases; the last number is that of what no document has.
    """

    def __init__(self, terms: Lists, queries: Queries, during: During | None) -> None:
        self.during = during
        encoded = terms.values.dictionary_encode()
        self.first, self.last = terms.starts, terms.starts + terms.lengths
        self.words: pa.Array = encoded.dictionary
        self.codes = encoded.indices.to_numpy().astype(np.int64)
        self.cover, self.leaves = Lists.of(queries.cover), Lists.of(queries.leaves)
        self.ups, self.needs = Lists.of(queries.ups), Lists.of(queries.needs)
        self.up_values = self.ups.values.to_numpy().astype(np.int64)
        self.need_values = self.needs.values.to_numpy().astype(np.int64)
        self._number_leaves()
        self._choose(*self._required())

    # -- numbers of terms

    def _number_leaves(self) -> None:
        distinct = self.leaves.values.dictionary_encode()
        texts: pa.Array = distinct.dictionary
        begins, phrases = _are(pc.ends_with(texts, STAR)), _are(pc.match_substring(texts, " "))
        self.stars = texts.filter(pa.array(begins))
        self.phrases = Lists.of(pa.chunked_array([pc.split_pattern(texts.filter(pa.array(phrases)), " ")]))
        self.first_phrase = len(self.words) + len(self.stars)
        self.nowhere = self.first_phrase + len(self.phrases.starts)
        self.phrase_codes = self._numbers(self.phrases.values)
        numbers = self._numbers(texts)
        numbers[phrases] = self.first_phrase + np.arange(len(self.phrases.starts))
        self.leaf_codes = numbers[distinct.indices.to_numpy()] if len(texts) else np.empty(0, np.int64)
        self.begun = _begun(self.words, self.stars)
        self.used = np.zeros(self.nowhere + 1, np.bool_)
        self.used[self.leaf_codes] = self.used[self.phrase_codes] = True
        self.used[self.nowhere] = False

    def _numbers(self, texts: pa.Array) -> Longs:
        """Return the numbers of words and of beginnings."""
        numbers = _places(texts, self.words)
        begins = _are(pc.ends_with(texts, STAR))
        if begins.any():
            found = _places(texts.filter(pa.array(begins)), self.stars)
            numbers[begins] = np.where(found < 0, -1, found + len(self.words))
        return np.where(numbers < 0, self.nowhere, numbers)

    # -- which terms to find a query by

    def _required(self) -> tuple[Longs, Longs]:
        """Return pairs of a query and a term that it needs, phrases by their words; find the queries that are no more.

        They are the leaves right below a root of which all must hold.
        """
        count, owners = len(self.needs.starts), self.leaves.owners()
        root, up_owners = self.needs.lengths - 1, self.ups.owners()
        below = np.where(self.up_values < 0, ~self.up_values, self.up_values) == root[up_owners]
        children = np.bincount(up_owners[below], minlength=count)
        every = children == self.need_values[self.needs.starts + root]
        ups = self.up_values[self.ups.starts[owners] + _within(self.leaves.lengths)]
        required = every[owners] & (ups == root[owners])
        whole = required & (self.leaf_codes < self.first_phrase)
        self.simple = np.bincount(owners[whole], minlength=count) == self.leaves.lengths
        phrases = np.flatnonzero(required & (self.leaf_codes >= self.first_phrase) & (self.leaf_codes < self.nowhere))
        nth = self.leaf_codes[phrases] - self.first_phrase
        sizes = self.phrases.lengths[nth]
        words = self.phrase_codes[np.repeat(self.phrases.starts[nth], sizes) + _within(sizes)]
        lost = required & (self.leaf_codes == self.nowhere)
        queries = np.concatenate([owners[whole], np.repeat(owners[phrases], sizes), owners[lost]])
        return queries, np.concatenate([self.leaf_codes[whole], words, self.leaf_codes[lost]])

    def _choose(self, queries: Longs, terms: Longs) -> None:
        """Find each query by the rarest of the terms that it needs, in these documents; others by their cover.

        The other terms that it needs are looked for next, the rarest first.
        """
        count = len(self.needs.starts)
        possible = np.ones(count, np.bool_)
        possible[queries[terms == self.nowhere]] = False
        queries, terms = queries[possible[queries]], terms[possible[queries]]
        order = np.lexsort((self._frequencies()[terms], queries))
        queries, terms = queries[order], terms[order]
        first = np.append(np.ones(min(1, len(queries)), np.bool_), queries[1:] != queries[:-1])
        self.more = terms[~first]
        self.more_lengths = np.bincount(queries[~first], minlength=count)
        self.more_starts = np.cumsum(self.more_lengths) - self.more_lengths
        possible[queries] = False  # what is left has a cover alone
        owners, covers = self.cover.owners(), self._numbers(self.cover.values)
        kept = possible[owners] & (covers != self.nowhere)
        self.several = bool((self.cover.lengths[possible] > 1).any())
        owners, covers = np.append(queries[first], owners[kept]), np.append(terms[first], covers[kept])
        self.covered = owners[np.argsort(covers, kind="stable")]
        self.cover_sizes = np.bincount(covers, minlength=self.nowhere + 1)
        self.cover_starts = np.cumsum(self.cover_sizes) - self.cover_sizes

    def _frequencies(self) -> Longs:
        """Return about how often each term is in the documents."""
        words = np.bincount(self.codes, minlength=len(self.words))
        word = np.repeat(np.arange(len(self.words)), self.begun.lengths)
        stars = np.bincount(self.begun.values, weights=words[word], minlength=len(self.stars)).astype(np.int64)
        return np.concatenate([words, stars, np.zeros(self.nowhere + 1 - self.first_phrase, np.int64)])

    # -- some documents after the others

    def pairs(self) -> Iterator[tuple[Longs, Longs]]:
        """Yield the pairs."""
        first, documents = 0, len(self.first)
        most = max(1, MOST_CELLS // (self.nowhere + 1))
        while first < documents:
            last = max(first + 1, int(np.searchsorted(self.last, self.first[first] + MOST_TERMS, side="right")))
            last = min(last, first + most, documents)
            yield from self._among(first, last)
            first = last

    def _among(self, first: int, last: int) -> Iterator[tuple[Longs, Longs]]:
        """Yield the pairs of the documents from the first to before the last."""
        width = self.nowhere + 1
        codes = self.codes[self.first[first] : self.last[last - 1]]
        lengths = self.last[first:last] - self.first[first:last]
        owners = np.repeat(np.arange(last - first), lengths)
        keys = self._keys(codes, owners)
        has = np.zeros((last - first) * width, np.bool_)
        has[keys] = True
        texts = _Texts(codes, np.cumsum(lengths), has, self._positions(codes, owners))
        documents, terms = np.divmod(keys, width)
        sizes = self.cover_sizes[terms]
        upto = np.cumsum(np.bincount(documents, weights=sizes, minlength=last - first))
        begin = 0
        while begin < last - first:
            before = upto[begin - 1] if begin else 0
            end = max(begin + 1, int(np.searchsorted(upto, before + MOST_CANDIDATES, side="right")))
            part = slice(*np.searchsorted(documents, [begin, end]))
            found, queries = self._candidates(documents[part], terms[part], sizes[part], first)
            found, queries = self._evaluated(texts, *self._having(texts, found, queries))
            yield found + first, queries
            begin = end

    def _keys(self, codes: Longs, owners: Longs) -> Longs:
        """Return the terms that documents have and queries name, each once, sorted: document times width plus term."""
        known, width = self.used[codes], self.nowhere + 1
        parts = [owners[known] * width + codes[known]]
        if len(self.stars):
            sizes = self.begun.lengths[codes]
            stars = self.begun.values[np.repeat(self.begun.starts[codes], sizes) + _within(sizes)]
            parts.append(np.repeat(owners, sizes) * width + len(self.words) + stars)
        return each_once(np.concatenate(parts))

    def _positions(self, codes: Longs, owners: Longs) -> tuple[Longs, Longs]:
        """Return where the first terms of phrases are, sorted by their keys and places."""
        begin = np.zeros(self.nowhere + 1, np.bool_)
        begin[self.phrase_codes[self.phrases.starts]] = True
        begin[self.nowhere] = False
        places = np.flatnonzero(begin[codes])
        keys = owners[places] * (self.nowhere + 1) + codes[places]
        order = np.argsort(keys, kind="stable")
        return keys[order], places[order]

    def _candidates(self, documents: Longs, terms: Longs, sizes: Longs, first: int) -> tuple[Longs, Longs]:
        """Return the pairs of documents and queries that are found by one of the terms, each once."""
        there = sizes > 0
        documents, terms, sizes = documents[there], terms[there], sizes[there]
        queries = self.covered[np.repeat(self.cover_starts[terms], sizes) + _within(sizes)]
        documents = np.repeat(documents, sizes)
        if self.during is not None:
            at = self.during.arrivals[documents + first]
            there = (at >= self.during.first[queries]) & (at < self.during.until[queries])
            documents, queries = documents[there], queries[there]
        if self.several:
            count = len(self.cover.starts)
            documents, queries = np.divmod(each_once(documents * count + queries), count)
        return documents, queries

    # -- pairs

    def _having(self, texts: _Texts, documents: Longs, queries: Longs) -> tuple[Longs, Longs]:
        """Return the candidates that have all other terms that the query needs."""
        nth, left = 0, np.arange(len(queries))
        kept = np.ones(len(queries), np.bool_)
        while len(left := left[self.more_lengths[queries[left]] > nth]):
            terms = self.more[self.more_starts[queries[left]] + nth]
            there = texts.has[documents[left] * (self.nowhere + 1) + terms]
            kept[left[~there]] = False
            left, nth = left[there], nth + 1
        return documents[kept], queries[kept]

    def _evaluated(self, texts: _Texts, documents: Longs, queries: Longs) -> tuple[Longs, Longs]:
        """Return the candidates, which have what the query needs, that meet all of it."""
        meet = self.simple[queries]
        some = np.flatnonzero(~meet)
        meet[some] = self._holds(texts, documents[some], queries[some])
        return documents[meet], queries[meet]

    def _holds(self, texts: _Texts, documents: Longs, queries: Longs) -> Bools:
        """Return whether documents meet queries: all nodes of their trees, one after the other."""
        sizes = self.leaves.lengths[queries]
        pair, within = np.repeat(np.arange(len(queries)), sizes), _within(sizes)
        codes = self.leaf_codes[self.leaves.starts[queries][pair] + within]
        ups = self.up_values[self.ups.starts[queries][pair] + within]
        inner = self.needs.lengths[queries]
        base = np.cumsum(inner) - inner
        true = self._there(texts, documents[pair], codes) ^ (ups < 0)
        at = base[pair] + np.where(ups < 0, ~ups, ups)
        counts = np.bincount(at[true], minlength=int(inner.sum()))
        needs, first_up = self.needs.starts[queries], self.ups.starts[queries] + sizes
        for nth in range(int(inner.max(initial=1)) - 1):  # children come before their parents, the root is the last
            some = np.flatnonzero(inner > nth + 1)
            ups = self.up_values[first_up[some] + nth]
            true = (counts[base[some] + nth] >= self.need_values[needs[some] + nth]) ^ (ups < 0)
            counts[(base[some] + np.where(ups < 0, ~ups, ups))[true]] += 1
        holds: Bools = counts[base + inner - 1] >= self.need_values[needs + inner - 1]
        return holds

    def _there(self, texts: _Texts, documents: Longs, codes: Longs) -> Bools:
        """Return whether documents have terms, beginnings or phrases."""
        wanted = documents * (self.nowhere + 1) + codes
        there: Bools = texts.has[wanted]
        phrases = np.flatnonzero((codes >= self.first_phrase) & (codes < self.nowhere))
        if len(phrases):
            distinct, inverse = np.unique(wanted[phrases], return_inverse=True)
            there[phrases] = self._read(texts, *np.divmod(distinct, self.nowhere + 1))[inverse]
        return there

    def _read(self, texts: _Texts, documents: Longs, codes: Longs) -> Bools:
        """Return whether documents have phrases: from each place of a first term on, the others follow."""
        phrases = codes - self.first_phrase
        starts = self.phrases.starts[phrases]
        keys, places = texts.positions
        first = documents * (self.nowhere + 1) + self.phrase_codes[starts]
        low = np.searchsorted(keys, first, side="left")
        sizes = np.searchsorted(keys, first, side="right") - low
        pair = np.repeat(np.arange(len(phrases)), sizes)
        at = places[np.repeat(low, sizes) + _within(sizes)]
        ends = texts.ends[documents][pair]
        lengths, nth = self.phrases.lengths[phrases], 1
        done = np.zeros(len(phrases), np.bool_)
        while len(pair):
            whole = lengths[pair] == nth
            done[pair[whole]] = True
            pair, at, ends = pair[~whole], at[~whole], ends[~whole]
            inside = at + nth < ends
            pair, at, ends = pair[inside], at[inside], ends[inside]
            same = texts.codes[at + nth] == self.phrase_codes[starts[pair] + nth]
            pair, at, ends = pair[same], at[same], ends[same]
            nth += 1
        return done


@dataclass(frozen=True, slots=True)
class _Texts:
    """Some documents: their terms one after the other, where each ends, and which terms each has, as a table."""

    codes: Longs
    ends: Longs
    has: Bools
    positions: tuple[Longs, Longs]


@dataclass(frozen=True, slots=True)
class _Begun:
    """For each word the beginnings that it has."""

    values: Longs
    starts: Longs
    lengths: Longs


def _begun(words: pa.Array, stars: pa.Array) -> _Begun:
    """Return for each word those of some beginnings that it has."""
    begins = pc.utf8_rtrim(stars, STAR)
    lengths = pc.utf8_length(begins).to_numpy(zero_copy_only=False)
    pairs = [(np.empty(0, np.int64), np.empty(0, np.int64))]
    for length in np.unique(lengths).tolist():
        which = np.flatnonzero(lengths == length)
        heads = _places(pc.utf8_slice_codeunits(words, 0, length), begins.take(pa.array(which)))
        some = np.flatnonzero(heads >= 0)
        pairs.append((some, which[heads[some]]))
    word, star = (np.concatenate(parts) for parts in zip(*pairs, strict=True))
    sizes = np.bincount(word, minlength=len(words))
    return _Begun(star[np.argsort(word, kind="stable")], np.cumsum(sizes) - sizes, sizes)


def _places(texts: pa.Array, among: pa.Array) -> Longs:
    """Return the place of each text among others, -1 where it is not there."""
    places: Longs = pc.fill_null(pc.index_in(texts, value_set=among), -1).to_numpy().astype(np.int64)
    return places


def _are(values: pa.Array) -> Bools:
    are: Bools = values.to_numpy(zero_copy_only=False)
    return are


def _within(sizes: Longs) -> Longs:
    """Return 0, 1, … for each size, one after the other."""
    return np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)

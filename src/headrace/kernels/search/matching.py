"""Which documents meet which queries, for many of both at once.

Each query is a candidate for the documents that have a term of its cover; then all of it is evaluated for these pairs
alone. Everything is computed in columns: what it costs follows the candidates, not documents times queries.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.kernels.arrays import one_array
from headrace.kernels.search.stored_query import STAR

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    Longs = npt.NDArray[np.int64]
    Bools = npt.NDArray[np.bool_]

MOST_CANDIDATES = 1 << 20
"""So many pairs are evaluated at once, or those of one document."""
MOST_TERMS = 1 << 21


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

    Beginnings of words follow these, then phrases. What no document has is -1.
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
        self._number_cover()

    # -- numbers of terms

    def _number_leaves(self) -> None:
        distinct = self.leaves.values.dictionary_encode()
        texts: pa.Array = distinct.dictionary
        numbers = _numbers(texts, self.words)
        begins, phrases = _are(pc.ends_with(texts, STAR)), _are(pc.match_substring(texts, " "))
        self.stars = texts.filter(pa.array(begins))
        numbers[begins] = len(self.words) + np.arange(len(self.stars))
        self.phrases = Lists.of(pa.chunked_array([pc.split_pattern(texts.filter(pa.array(phrases)), " ")]))
        self.phrase_codes = _numbers(self.phrases.values, self.words)
        self.first_phrase = len(self.words) + len(self.stars)
        numbers[phrases] = self.first_phrase + np.arange(len(self.phrases.starts))
        self.count = self.first_phrase + len(self.phrases.starts)
        self.leaf_codes = numbers[distinct.indices.to_numpy()] if len(texts) else np.empty(0, np.int64)
        self.begun = _begun(self.words, self.stars)
        self.used = np.zeros(self.count + 1, np.bool_)  # the last one: what no document has
        self.used[self.leaf_codes] = True
        self.used[self.phrase_codes] = True
        self.used[-1] = False

    def _number_cover(self) -> None:
        """Sort the terms of covers by their numbers, each with its query."""
        values, owners = self.cover.values, self.cover.owners()
        codes = _numbers(values, self.words)
        begins = _are(pc.ends_with(values, STAR))
        if begins.any():
            found = _numbers(values.filter(pa.array(begins)), self.stars)
            codes[begins] = np.where(found < 0, -1, found + len(self.words))
        owners, codes = owners[codes >= 0], codes[codes >= 0]
        order = np.argsort(codes, kind="stable")
        self.covered = owners[order]
        sizes = np.bincount(codes, minlength=self.count)
        self.cover_ends = np.cumsum(sizes)
        self.cover_starts = self.cover_ends - sizes
        self.several = bool((self.cover.lengths > 1).any())

    # -- some documents after the others

    def pairs(self) -> Iterator[tuple[Longs, Longs]]:
        """Yield the pairs."""
        first, documents = 0, len(self.first)
        while first < documents:
            last = max(first + 1, int(np.searchsorted(self.last, self.first[first] + MOST_TERMS, side="right")))
            yield from self._among(first, min(last, documents))
            first = last

    def _among(self, first: int, last: int) -> Iterator[tuple[Longs, Longs]]:
        """Yield the pairs of the documents from the first to before the last."""
        here = slice(self.first[first], self.last[last - 1])
        codes = self.codes[here]
        owners = np.repeat(np.arange(first, last), self.last[first:last] - self.first[first:last])
        texts = _Texts(codes, here.start, self.last, self._keys(codes, owners), self._positions(codes, owners))
        documents, terms = np.divmod(texts.keys, self.count)
        sizes = (self.cover_ends - self.cover_starts)[terms]
        upto = np.cumsum(np.bincount(documents - first, weights=sizes, minlength=last - first))
        begin = first
        while begin < last:
            before = upto[begin - first - 1] if begin > first else 0
            end = max(begin + 1, first + int(np.searchsorted(upto, before + MOST_CANDIDATES, side="right")))
            part = slice(*np.searchsorted(documents, [begin, end]))
            yield self._evaluated(texts, *self._candidates(documents[part], terms[part], sizes[part]))
            begin = end

    def _keys(self, codes: Longs, owners: Longs) -> Longs:
        """Return the terms that documents have and queries name, each once, sorted: document times count plus term."""
        known = self.used[codes]
        parts = [owners[known] * self.count + codes[known]]
        if len(self.stars):
            sizes = self.begun.lengths[codes]
            stars = self.begun.values[np.repeat(self.begun.starts[codes], sizes) + _within(sizes)]
            parts.append(np.repeat(owners, sizes) * self.count + len(self.words) + stars)
        return _distinct(np.concatenate(parts))

    def _positions(self, codes: Longs, owners: Longs) -> tuple[Longs, Longs]:
        """Return where the terms of phrases are, sorted by their keys and places."""
        if not len(self.phrase_codes):
            return np.empty(0, np.int64), np.empty(0, np.int64)
        begin = np.zeros(self.count + 1, np.bool_)
        begin[self.phrase_codes[self.phrases.starts]] = True
        begin[-1] = False
        places = np.flatnonzero(begin[codes])
        keys = owners[places] * self.count + codes[places]
        order = np.argsort(keys, kind="stable")
        return keys[order], places[order]

    def _candidates(self, documents: Longs, terms: Longs, sizes: Longs) -> tuple[Longs, Longs]:
        """Return the pairs of documents and queries that have a term of the cover, each once."""
        within = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        queries = self.covered[np.repeat(self.cover_starts[terms], sizes) + within]
        documents = np.repeat(documents, sizes)
        if self.during is not None:
            at = self.during.arrivals[documents]
            there = (at >= self.during.first[queries]) & (at < self.during.until[queries])
            documents, queries = documents[there], queries[there]
        if self.several:
            count = len(self.cover.starts)
            documents, queries = np.divmod(_distinct(documents * count + queries), count)
        return documents, queries

    # -- pairs

    def _evaluated(self, texts: _Texts, documents: Longs, queries: Longs) -> tuple[Longs, Longs]:
        """Return the candidates that meet all of the query."""
        sizes = self.leaves.lengths[queries]
        pair, within = np.repeat(np.arange(len(queries)), sizes), _within(sizes)
        codes = self.leaf_codes[self.leaves.starts[queries][pair] + within]
        there = self._there(texts, documents[pair], codes)
        ups = self.up_values[self.ups.starts[queries][pair] + within]
        inner = self.needs.lengths[queries]
        base = np.cumsum(inner) - inner
        true = there ^ (ups < 0)
        at = base[pair] + np.where(ups < 0, ~ups, ups)
        counts = np.bincount(at[true], minlength=int(inner.sum()))
        needs, first_up = self.needs.starts[queries], self.ups.starts[queries] + sizes
        for nth in range(int(inner.max(initial=1)) - 1):  # children come before their parents, the root is the last
            some = np.flatnonzero(inner > nth + 1)
            true = counts[base[some] + nth] >= self.need_values[needs[some] + nth]
            ups = self.up_values[first_up[some] + nth]
            true ^= ups < 0
            counts[(base[some] + np.where(ups < 0, ~ups, ups))[true]] += 1
        meet = counts[base + inner - 1] >= self.need_values[needs + inner - 1]
        return documents[meet], queries[meet]

    def _there(self, texts: _Texts, documents: Longs, codes: Longs) -> Bools:
        """Return whether documents have terms, beginnings or phrases."""
        wanted = documents * self.count + codes
        there = (codes >= 0) & _found(texts.keys, wanted)
        phrases = np.flatnonzero(codes >= self.first_phrase)
        if len(phrases):
            distinct, inverse = np.unique(wanted[phrases], return_inverse=True)
            there[phrases] = self._read(texts, *np.divmod(distinct, self.count))[inverse]
        return there

    def _read(self, texts: _Texts, documents: Longs, codes: Longs) -> Bools:
        """Return whether documents have phrases: from each place of a first term on, the others follow."""
        phrases = codes - self.first_phrase
        starts = self.phrases.starts[phrases]
        keys, places = texts.positions
        first = documents * self.count + self.phrase_codes[starts]
        low = np.searchsorted(keys, first, side="left")
        sizes = np.where(self.phrase_codes[starts] < 0, 0, np.searchsorted(keys, first, side="right") - low)
        pair = np.repeat(np.arange(len(phrases)), sizes)
        at = places[np.repeat(low, sizes) + _within(sizes)]
        ends = (texts.last[documents] - texts.offset)[pair]
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
    """Some documents: their terms one after the other, from which place on, where they end, and what they have."""

    codes: Longs
    offset: int
    last: Longs
    keys: Longs
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
        heads = _numbers(pc.utf8_slice_codeunits(words, 0, length), begins.take(pa.array(which)))
        some = np.flatnonzero(heads >= 0)
        pairs.append((some, which[heads[some]]))
    word, star = (np.concatenate(parts) for parts in zip(*pairs, strict=True))
    sizes = np.bincount(word, minlength=len(words))
    return _Begun(star[np.argsort(word, kind="stable")], np.cumsum(sizes) - sizes, sizes)


def _numbers(texts: pa.Array, among: pa.Array) -> Longs:
    """Return the place of each text among others, -1 where it is not there."""
    places: Longs = pc.fill_null(pc.index_in(texts, value_set=among), -1).to_numpy().astype(np.int64)
    return places


def _are(values: pa.Array) -> Bools:
    are: Bools = values.to_numpy(zero_copy_only=False)
    return are


def _within(sizes: Longs) -> Longs:
    """Return 0, 1, … for each size, one after the other."""
    return np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)


def _distinct(values: Longs) -> Longs:
    """Return values sorted, each once: `np.unique` hashes them, which takes five times as long."""
    values.sort()
    return values[np.append(True, values[1:] != values[:-1])] if len(values) else values


def _found(keys: Longs, wanted: Longs) -> Bools:
    """Return whether values are among sorted keys."""
    if not len(keys):
        return np.zeros(len(wanted), np.bool_)
    at = np.searchsorted(keys, wanted)
    at[at == len(keys)] = 0
    found: Bools = keys[at] == wanted
    return found

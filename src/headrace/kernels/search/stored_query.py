"""A query as it is stored: the terms to find it by, and what must hold of them, as lists of plain values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from headrace.kernels.search.query import MOST_TEXT, Negated, QueryError, Several, Words

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headrace.kernels.search.query import Tree

STAR = "*"
"""Ends a leaf that is the beginning of a word. Blanks separate the terms of a phrase: neither is in a term."""
_RARE = 10


class StoredQuery(NamedTuple):
    """A query over the terms of a document.

    `leaves` are what a document has or has not: a term, a phrase (`two terms`), or the beginning of one (`ter*`).
    Inner nodes follow the leaves, each after its children, the root last. `ups` has for each node but the root the
    number of its parent's inner node, `~` of it where the node must not hold. `needs` has for each inner node how many
    of its children must do. A document that meets the query has a term of the `cover`, or begins one of its words so.
    """

    cover: tuple[str, ...]
    leaves: tuple[str, ...]
    ups: tuple[int, ...]
    needs: tuple[int, ...]


def stored(tree: Tree, terms: Mapping[str, Sequence[str]]) -> StoredQuery:
    """Return a query as it is stored; `terms` has those of each of its words and phrases.

    Raises:
        QueryError: it has no word, or no word that a document must have.

    """
    writer = _Writer(terms)
    plain = writer.cleaned(tree)
    if plain is None:
        raise QueryError("a query without a word", 0)
    if not isinstance(plain, Several):
        plain = Several((plain,), every=True)
    root, cover = writer.inner(plain)
    if cover is None:
        raise QueryError("a query that documents without any of its words meet: add a word that must be there", 0)
    inner = {number: place for place, number in enumerate(writer.order)}
    ups = [*writer.leaf_ups, *(writer.inner_ups[number] for number in writer.order if number != root)]
    return StoredQuery(
        cover=tuple(dict.fromkeys(cover)),
        leaves=tuple(writer.leaves),
        ups=tuple(inner[up] if up >= 0 else ~inner[~up] for up in ups),
        needs=tuple(writer.needs[number] for number in writer.order),
    )


@dataclass
class _Writer:
    """The nodes of a query, while it is written; inner nodes have the numbers in which they were begun."""

    terms: Mapping[str, Sequence[str]]
    leaves: list[str] = field(default_factory=list)
    leaf_ups: list[int] = field(default_factory=list)
    inner_ups: dict[int, int] = field(default_factory=dict)
    needs: dict[int, int] = field(default_factory=dict)
    order: list[int] = field(default_factory=list)

    def cleaned(self, tree: Tree) -> Tree | None:
        """Return a tree without what has no term, such as a quotation of nothing but dots."""
        if isinstance(tree, Words):
            return tree if self.terms[tree.text] else None
        if isinstance(tree, Negated):
            of = self.cleaned(tree.of)
            return None if of is None else of.of if isinstance(of, Negated) else Negated(of)
        cleaned = [part for each in tree.parts if (part := self.cleaned(each)) is not None]
        parts: list[Tree] = []
        for part in cleaned:  # all of all are all
            same = isinstance(part, Several) and part.every == tree.every
            parts += part.parts if isinstance(part, Several) and same else [part]
        return Several(tuple(parts), every=tree.every) if len(parts) > 1 else parts[0] if parts else None

    def inner(self, tree: Several) -> tuple[int, Sequence[str] | None]:
        """Write an inner node after its children; return its number, and its cover, None where it has none."""
        number = len(self.needs)
        self.needs[number] = len(tree.parts) if tree.every else 1
        covers = [self._child(part, number) for part in tree.parts]
        self.order.append(number)
        if tree.every:
            return number, min((cover for cover in covers if cover is not None), key=_documents, default=None)
        return number, None if None in covers else [term for cover in covers for term in cover or ()]

    def _child(self, tree: Tree, parent: int) -> Sequence[str] | None:
        negated = isinstance(tree, Negated)
        of = tree.of if isinstance(tree, Negated) else tree
        up = ~parent if negated else parent
        if isinstance(of, Several):
            number, cover = self.inner(of)
            self.inner_ups[number] = up
        else:
            assert isinstance(of, Words)  # noqa: S101 -- `cleaned` leaves no negation of a negation
            leaf = self._leaf(of)
            cover = [leaf] if of.beginning else [min(leaf.split(" "), key=lambda term: _documents([term]))]
            self.leaves.append(leaf)
            self.leaf_ups.append(up)
        return None if negated else cover

    def _leaf(self, words: Words) -> str:
        terms = self.terms[words.text]
        if words.beginning and len(terms) > 1:
            raise QueryError("a * is only possible after one word", words.at)
        leaf = " ".join(terms) + STAR * words.beginning
        if len(leaf) > MOST_TEXT:
            raise QueryError("a word is too long", words.at)
        return leaf


def _documents(cover: Sequence[str]) -> float:
    """Return about how many documents have a term of a cover, relative to others: the longer, the fewer."""
    return sum(2.0 ** -min(_RARE, len(term) - 2 * term.endswith(STAR)) for term in cover)

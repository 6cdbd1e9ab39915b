r"""The language of queries: a small part of Lucene's.

    query  = all { OR all }             one of them
    all    = part { [AND] part }        all of them: so `a b OR c` is `(a b) OR c`
    part   = [ - | + | NOT ] one        without it, or (as without a sign) with it
    one    = ( query ) | "a phrase" | word | beginning*

`\` takes the next character as it is. What Lucene has besides (`field:word`, `wor?d`, `word~`, `word^2`, `[a TO b]`,
`&&`, `||`, `!`) is refused, not read as something else.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

MOST_TEXT = 1 << 16
MOST_WORDS = 1024
MOST_NESTED = 32
_SKIPPED = re.compile(r"\s*")
_PHRASE = re.compile(r'"((?:[^"\\]|\\.)*)"', re.DOTALL)
_WORD = re.compile(r'(?:[^\s()"\\]|\\.)+', re.DOTALL)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_FOREIGN = re.compile(r"(?<!\\)(?:\\\\)*([:?~^\[\]{}]|&&|\|\||^!)")
_STAR = re.compile(r"\\.|(\*)", re.DOTALL)
_FIELDS = "a query has no fields"


@dataclass(frozen=True, slots=True)
class Words:
    """A word, a phrase, or the beginning of a word, as it was written, and where."""

    text: str
    at: int
    beginning: bool = False


@dataclass(frozen=True, slots=True)
class Negated:
    """What must not be there."""

    of: Tree


@dataclass(frozen=True, slots=True)
class Several:
    """All of some parts, or one of them."""

    parts: tuple[Tree, ...]
    every: bool


Tree = Words | Negated | Several


class QueryError(Exception):
    """A query cannot be read, from character `at` on (the first is 1)."""

    def __init__(self, what: str, at: int) -> None:
        super().__init__(f"{what}, at character {at + 1}")


def parsed(text: str) -> Tree:
    """Return a query as a tree.

    Raises:
        QueryError: it cannot be read.

    """
    if len(text) > MOST_TEXT:
        raise QueryError(f"a query has at most {MOST_TEXT} characters", MOST_TEXT)
    reader = _Reader(text)
    tree = reader.query(0)
    if not reader.ended:
        raise QueryError("a ) closes nothing", reader.at)
    return tree


def words_of(tree: Tree) -> Iterator[str]:
    """Yield the words and phrases of a query, as they were written."""
    if isinstance(tree, Words):
        yield tree.text
    else:
        for part in (tree.of,) if isinstance(tree, Negated) else tree.parts:
            yield from words_of(part)


class _Reader:
    """A text, read from the left."""

    def __init__(self, text: str) -> None:
        self.text, self.at, self.words = text, 0, 0
        self._skip()

    def _skip(self) -> None:
        self.at = _SKIPPED.match(self.text, self.at).end()  # type: ignore[union-attr] # it matches nothing, too

    @property
    def ended(self) -> bool:
        return self.at == len(self.text)

    def _next(self, word: str) -> bool:
        """Return whether an operator's word is next."""
        found = _WORD.match(self.text, self.at)
        return found is not None and found[0] == word

    def _take(self, word: str) -> None:
        self.at += len(word)
        self._skip()

    def query(self, nested: int) -> Tree:
        if nested > MOST_NESTED:
            raise QueryError(f"more than {MOST_NESTED} parts in each other", self.at)
        parts = [self._all(nested)]
        while self._next("OR"):
            self._take("OR")
            parts.append(self._all(nested))
        return parts[0] if len(parts) == 1 else Several(tuple(parts), every=False)

    def _all(self, nested: int) -> Tree:
        parts = [self._part(nested)]
        while not self.ended and self.text[self.at] != ")" and not self._next("OR"):
            if self._next("AND"):
                self._take("AND")
            parts.append(self._part(nested))
        return parts[0] if len(parts) == 1 else Several(tuple(parts), every=True)

    def _part(self, nested: int) -> Tree:
        if self._next("NOT"):
            self._take("NOT")
            return Negated(self._one(nested))
        if not self.ended and self.text[self.at] in "-+":
            negated = self.text[self.at] == "-"
            self.at += 1
            if self.ended or self.text[self.at].isspace():
                raise QueryError(f"nothing follows the {self.text[self.at - 1]}", self.at - 1)
            one = self._one(nested)
            return Negated(one) if negated else one
        return self._one(nested)

    def _one(self, nested: int) -> Tree:
        if self.ended:
            raise QueryError("a word is missing", self.at)
        begin, first = self.at, self.text[self.at]
        if first == "(":
            self._take("(")
            tree = self.query(nested + 1)
            if self.ended:
                raise QueryError("a ( is not closed", begin)
            self._take(")")
            return tree
        self.words += 1
        if self.words > MOST_WORDS:
            raise QueryError(f"more than {MOST_WORDS} words", self.at)
        if first == '"':
            found = _PHRASE.match(self.text, self.at)
            if found is None:
                raise QueryError("a quotation is not closed", begin)
            self._take(found[0])
            return Words(_ESCAPED.sub(r"\1", found[1]), begin)
        return self._word(begin)

    def _word(self, begin: int) -> Words:
        found = _WORD.match(self.text, self.at)
        if found is None:
            raise QueryError("a word is missing" if self.text[begin] == ")" else "nothing follows the \\", begin)
        word = found[0]
        if word in ("OR", "AND", "NOT"):
            raise QueryError(f"a word is missing beside {word}", begin)
        if word[0] in "-+":
            raise QueryError("two signs follow each other", begin)
        foreign = _FOREIGN.search(word)
        if foreign is not None:
            what = _FIELDS if foreign[1] == ":" else f"{foreign[1]} has no meaning in a query"
            raise QueryError(f"{what} (in quotes it is text)", begin + foreign.start(1))
        stars = [star.start() for star in _STAR.finditer(word) if star[1]]
        if stars and (stars[0] < len(word) - 1 or len(word) == 1):
            raise QueryError("a * is only possible at the end of a word", begin + stars[0])
        self._take(word)
        return Words(_ESCAPED.sub(r"\1", word[:-1] if stars else word), begin, beginning=bool(stars))

"""Patterns of rows, such as `fail{3,} success`: regular expressions over symbols, and the automata that they become."""

from __future__ import annotations

import re
from dataclasses import dataclass
from difflib import get_close_matches

from headrace.base.errors import InvalidPlan

MOST_PLACES = 1000
MOST_STEPS = 20_000
"""How large an automaton may be: a row is tried at each place, and goes on by each step."""
MOST_SYMBOLS = 60
MOST_DEPTH = 50
_TOKEN = re.compile(r"\s*(?:([^\W\d]\w*)|(\{\s*\d*\s*(?:,\s*\d*\s*)?\}|[()|*+?]))")
_BOUNDS = re.compile(r"\{\s*(\d*)\s*(,?)\s*(\d*)\s*\}")
_SHORT = {"*": (0, None), "+": (1, None), "?": (0, 1)}


@dataclass(frozen=True, slots=True)
class Symbol:
    """A row that meets the symbol's condition."""

    name: str


@dataclass(frozen=True, slots=True)
class Sequence:
    """One after the other; no parts are no row."""

    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """One of several, the first preferred."""

    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """From `least` to `most` times, or any number; as often as possible, or if it is reluctant as rarely."""

    part: Part
    least: int
    most: int | None
    reluctant: bool


Part = Symbol | Sequence | Choice | Repeat


@dataclass(frozen=True, slots=True, kw_only=True)
class Automaton:
    """A pattern as places: one a symbol of the text, repetitions written out.

    A row is at a place if it meets the symbol `symbols[place]`. `follow[place]` are the places of the next row, the
    preferred first; the last of all is where a pattern begins. The number `len(symbols)` ends the pattern.
    """

    symbols: tuple[int, ...]
    follow: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pattern:
    """A pattern: its text in one form, its symbols in the order of the text, and its automaton."""

    text: str
    symbols: tuple[str, ...]
    automaton: Automaton


def pattern(text: str, *, step: str) -> Pattern:
    """Return the pattern of a text: symbols, `( )`, `|`, `?`, `*`, `+`, `{n}`, `{n,}`, `{n,m}`, and `?` after these.

    Raises:
        InvalidPlan: the text is no pattern, no row can be in it, or it is too large.

    """
    if not isinstance(text, str) or not text.strip():
        raise InvalidPlan(f'step "{step}": {text!r} is no pattern', hint='For example "fail{3,} success".')
    whole = _Reader(text, step).read()
    symbols: dict[str, int] = {}
    _collect(whole, symbols)
    for name in symbols:
        if sum(name.lower() == other.lower() for other in symbols) > 1:
            raise InvalidPlan(f'step "{step}": two symbols of {text!r} differ in case alone: "{name}"')
    if len(symbols) > MOST_SYMBOLS:
        raise InvalidPlan(f'step "{step}": {text!r} has {len(symbols)} symbols; {MOST_SYMBOLS} are possible')
    if _size(whole) > MOST_PLACES:
        raise _too_large(text, step, f"written out it has {_size(whole)} parts; {MOST_PLACES} are possible")
    automaton = _Builder(symbols).build(whole)
    if automaton is None:
        raise _too_large(text, step, f"its automaton has more than {MOST_STEPS} steps")
    if all(place == len(automaton.symbols) for place in automaton.follow[-1]):
        raise InvalidPlan(
            f'step "{step}": {text!r} prefers to match no row at all',
            hint="A match has at least one row: say a+, or a+? for as few as possible.",
        )
    return Pattern(text=_shown(whole), symbols=tuple(symbols), automaton=automaton)


def unknown_symbol(name: str, pattern: Pattern, *, step: str) -> InvalidPlan:
    """Return the error that a name is no symbol of a pattern."""
    similar = get_close_matches(name, pattern.symbols, n=1)
    return InvalidPlan(
        f'step "{step}": "{name}" is no symbol of the pattern {pattern.text!r}',
        detail=f"Its symbols are: {', '.join(pattern.symbols)}.",
        hint=f'Did you mean "{similar[0]}"?' if similar else "",
    )


def _too_large(text: str, step: str, why: str) -> InvalidPlan:
    return InvalidPlan(
        f'step "{step}": the pattern {text!r} is too large: {why}',
        hint='Count rows in a measure instead of the pattern: a+ b, and then .where("rows > 1000").',
    )


# ---- reading ----


class _Reader:
    """Reads a pattern from left to right."""

    def __init__(self, text: str, step: str) -> None:
        self.text, self.step = text, step
        self.tokens: list[tuple[str, int]] = []
        self.at = 0
        place = 0
        while text[place:].strip():
            found = _TOKEN.match(text, place)
            if found is None:
                place += len(text[place:]) - len(text[place:].lstrip())
                raise self._error(f'"{text[place]}" was not expected', place)
            self.tokens.append((found[1] or found[2], found.end() - len(found[1] or found[2])))
            place = found.end()

    def read(self) -> Part:
        """Return the whole pattern."""
        whole = self._choice(0)
        if self._next():
            raise self._error(f'"{self._next()}" was not expected', self.tokens[self.at][1])
        return whole

    def _next(self) -> str:
        return self.tokens[self.at][0] if self.at < len(self.tokens) else ""

    def _take(self) -> str:
        self.at += 1
        return self.tokens[self.at - 1][0]

    def _choice(self, depth: int) -> Part:
        if depth > MOST_DEPTH:
            raise InvalidPlan(f'step "{self.step}": the pattern has more than {MOST_DEPTH} brackets inside each other')
        parts = [self._sequence(depth)]
        while self._next() == "|":
            self._take()
            parts.append(self._sequence(depth))
        return parts[0] if len(parts) == 1 else Choice(tuple(parts))

    def _sequence(self, depth: int) -> Part:
        parts: list[Part] = []
        while self._next() not in ("", "|", ")"):
            parts.append(self._repeated(depth))
        return parts[0] if len(parts) == 1 else Sequence(tuple(parts))

    def _repeated(self, depth: int) -> Part:
        word, place = self._take(), self.tokens[self.at - 1][1]
        if word == "(":
            part = self._choice(depth + 1)
            if self._next() != ")":
                raise self._error('")" is missing', len(self.text))
            self._take()
        elif word[0] in "{*+?":
            raise self._error(f'"{word}" repeats nothing', place)
        else:
            part = Symbol(word)
        if self._next()[:1] in ("", "|", ")", "(") or self._next()[0] not in "{*+?":
            return part
        word, place = self._take(), self.tokens[self.at - 1][1]
        least, most = _SHORT[word] if word in _SHORT else self._bounds(word, place)
        reluctant = self._next() == "?"
        if reluctant:
            self._take()
        if self._next()[:1] in ("{", "*", "+", "?"):
            raise self._error(f'"{self._next()}" repeats a repetition; put it in brackets', self.tokens[self.at][1])
        return Repeat(part, least, most, reluctant)

    def _bounds(self, word: str, place: int) -> tuple[int, int | None]:
        found = _BOUNDS.fullmatch(word)
        if found is None or not (found[1] or found[3]):
            raise self._error(f'"{word}" has no number', place)
        least = int(found[1] or 0)
        most = (int(found[3]) if found[3] else None) if found[2] else least
        if most is not None and most < least:
            raise self._error(f'"{word}" is no range', place)
        return least, most

    def _error(self, why: str, place: int) -> InvalidPlan:
        return InvalidPlan(
            f'step "{self.step}": cannot read the pattern {self.text!r}: {why} at character {place + 1}',
            detail=f"{self.text}\n{' ' * (len('Detail: ') + place)}^" if "\n" not in self.text else "",
        )


def _collect(part: Part, symbols: dict[str, int]) -> None:
    if isinstance(part, Symbol):
        symbols.setdefault(part.name, len(symbols))
    for inner in _inner(part):
        _collect(inner, symbols)


def _inner(part: Part) -> tuple[Part, ...]:
    if isinstance(part, Sequence | Choice):
        return part.parts
    return (part.part,) if isinstance(part, Repeat) else ()


def _size(part: Part) -> int:
    """Return how many symbols and brackets a pattern has when repetitions are written out."""
    size = sum(map(_size, _inner(part))) or 1
    return size * max(part.least + (part.most is None), part.most or 0, 1) if isinstance(part, Repeat) else size


def _shown(part: Part) -> str:
    if isinstance(part, Symbol):
        return part.name
    if isinstance(part, Sequence):
        return " ".join(f"({_shown(inner)})" if isinstance(inner, Choice) else _shown(inner) for inner in part.parts)
    if isinstance(part, Choice):
        return " | ".join(map(_shown, part.parts))
    bounds = (part.least, part.most)
    short = next((sign for sign, meant in _SHORT.items() if meant == bounds), None)
    if short is None:
        short = f"{{{part.least}}}" if part.least == part.most else f"{{{part.least},{part.most or ''}}}"
    inside = part.part.name if isinstance(part.part, Symbol) else f"({_shown(part.part)})"
    return inside + short + "?" * part.reluctant


# ---- the automaton ----


class _Builder:
    """Writes a pattern as a program of rows and choices (Thompson, Pike), whose rows are the places.

    See https://swtch.com/~rsc/regexp/regexp2.html.
    """

    def __init__(self, symbols: dict[str, int]) -> None:
        self.symbols = symbols
        self.rows: dict[int, int] = {}  # the symbol of each instruction that takes a row
        self.next: list[list[int]] = []  # where each instruction goes on, the preferred first

    def build(self, whole: Part) -> Automaton | None:
        """Return the automaton; None where it has too many steps."""
        self._add(whole)
        self.next.append([])  # the end
        places = {at: place for place, at in enumerate(self.rows)}
        follow: list[tuple[int, ...]] = []
        steps = 0
        for begin in (*(at + 1 for at in self.rows), 0):
            follow.append(self._reached(begin, places))
            steps += len(follow[-1])
            if steps > MOST_STEPS:
                return None
        return Automaton(symbols=tuple(self.rows.values()), follow=tuple(follow))

    def _reached(self, begin: int, places: dict[int, int]) -> tuple[int, ...]:
        """Return the places that are reached without a row, in their order; nothing is preferred less than the end."""
        reached: list[int] = []
        seen: set[int] = set()
        waiting = [begin]
        while waiting:
            at = waiting.pop()
            if at in seen:
                continue
            seen.add(at)
            if at == len(self.next) - 1:
                return (*reached, len(places))
            if at in places:
                reached.append(places[at])
                continue
            waiting += reversed(self.next[at])
        return tuple(reached)

    def _add(self, part: Part) -> None:
        if isinstance(part, Symbol):
            self.rows[len(self.next)] = self.symbols[part.name]
            self.next.append([len(self.next) + 1])
        elif isinstance(part, Sequence):
            for inner in part.parts:
                self._add(inner)
        elif isinstance(part, Choice):
            self._add_choice(part)
        else:
            for _ in range(part.least - (part.most is None and part.least > 0)):
                self._add(part.part)
            if part.most is None:
                self._add_loop(part)
            else:
                self._add_optional(part, part.most - part.least)

    def _add_choice(self, part: Choice) -> None:
        ends: list[list[int]] = []
        for inner in part.parts[:-1]:
            at = len(self.next)
            self.next.append([at + 1])
            self._add(inner)
            ends.append([])
            self.next.append(ends[-1])
            self.next[at].append(len(self.next))
        self._add(part.parts[-1])
        for end in ends:
            end.append(len(self.next))

    def _add_loop(self, part: Repeat) -> None:
        """Add `x+`, and around it `( )?` where no time is enough: so an `x` without rows ends the loop."""
        skip = self._add_split() if part.least == 0 else None
        begin = len(self.next)
        self._add(part.part)
        self.next.append(self._ordered(begin, len(self.next) + 1, part))
        if skip is not None:
            self.next[skip] = self._ordered(skip + 1, len(self.next), part)

    def _add_optional(self, part: Repeat, times: int) -> None:
        """Add `(x (x (x)?)?)?`."""
        skips = []
        for _ in range(times):
            skips.append(self._add_split())
            self._add(part.part)
        for skip in skips:
            self.next[skip] = self._ordered(skip + 1, len(self.next), part)

    def _add_split(self) -> int:
        self.next.append([])
        return len(self.next) - 1

    @staticmethod
    def _ordered(inside: int, behind: int, part: Repeat) -> list[int]:
        return [behind, inside] if part.reluctant else [inside, behind]

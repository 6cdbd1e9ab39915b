"""How far apart in time two rows may be: `c.at between s.at - interval 1 hour and s.at` as a least and a greatest."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sqlglot import exp

from headrace.dsl.sql.times import length

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_COMPARISONS = (exp.GTE, exp.GT, exp.LTE, exp.LT)


@dataclass(slots=True)
class Interval:
    """The least and the greatest of right time - left time in microseconds, and the tests that say so."""

    low: int | None = None
    high: int | None = None
    used: list[exp.Expression] = field(default_factory=list)

    @property
    def within(self) -> str | tuple[str, str]:
        """The same as the verb takes it."""
        assert self.low is not None and self.high is not None  # noqa: S101, PT018 -- checked where it was found
        if self.low == -self.high:
            return f"{self.high} microseconds"
        return f"{self.low} microseconds", f"{self.high} microseconds"


@dataclass(frozen=True, slots=True)
class _Linear:
    """`left` times the left time, `right` times the right one, and a constant."""

    left: int
    right: int
    constant: int

    def __sub__(self, other: _Linear) -> _Linear:
        return _Linear(self.left - other.left, self.right - other.right, self.constant - other.constant)

    def __add__(self, other: _Linear) -> _Linear:
        return _Linear(self.left + other.left, self.right + other.right, self.constant + other.constant)


def interval(tests: Sequence[exp.Expression], which: Callable[[exp.Expression], int | None]) -> Interval | None:
    """Return how far apart in time two streams' rows may be; `which` says whose time an expression is: 0 or 1.

    None where the tests do not bound it on both sides.
    """
    found = Interval()
    for test in tests:
        bounds = [_edge(comparison, which) for comparison in _comparisons(test)]
        if bounds and all(bound is not None for bound in bounds):
            found.used.append(test)
            for bound in bounds:
                assert bound is not None  # noqa: S101 -- all are
                _narrow(found, *bound)
    return None if found.low is None or found.high is None else found


def _comparisons(test: exp.Expression) -> Iterator[exp.Expression]:
    if isinstance(test, exp.Between):
        yield exp.GTE(this=test.this, expression=test.args["low"])
        yield exp.LTE(this=test.this, expression=test.args["high"])
    elif isinstance(test, exp.EQ):
        yield exp.GTE(this=test.this, expression=test.expression)
        yield exp.LTE(this=test.this, expression=test.expression)
    elif isinstance(test, _COMPARISONS):
        yield test


def _edge(test: exp.Expression, which: Callable[[exp.Expression], int | None]) -> tuple[bool, int] | None:
    """Return `(True, least)` or `(False, greatest)` of right time - left time, if a comparison says it."""
    left, right = _linear(test.this, which), _linear(test.expression, which)
    if left is None or right is None:
        return None
    difference = left - right  # difference >= 0, or the like
    at_least, strict = isinstance(test, exp.GTE | exp.GT), isinstance(test, exp.GT | exp.LT)
    if (difference.left, difference.right) == (1, -1):
        difference, at_least = _Linear(0, 0, 0) - difference, not at_least
    if (difference.left, difference.right) != (-1, 1):
        return None
    edge = -difference.constant
    return at_least, edge + (int(strict) if at_least else -int(strict))


def _linear(tree: exp.Expression, which: Callable[[exp.Expression], int | None]) -> _Linear | None:
    if isinstance(tree, exp.Paren):
        return _linear(tree.this, which)
    if isinstance(tree, exp.Add | exp.Sub):
        left, right = _linear(tree.this, which), _linear(tree.expression, which)
        if left is None or right is None:
            return None
        return left + right if isinstance(tree, exp.Add) else left - right
    if isinstance(tree, exp.Interval) or (isinstance(tree, exp.Neg) and tree.find(exp.Interval)):
        return _Linear(0, 0, length(tree))
    side = which(tree)
    return None if side is None else _Linear(int(side == 0), int(side == 1), 0)


def _narrow(found: Interval, at_least: bool, edge: int) -> None:  # noqa: FBT001 -- a bound is a pair
    if at_least:
        found.low = edge if found.low is None else max(found.low, edge)
    else:
        found.high = edge if found.high is None else min(found.high, edge)

"""What `make test` runs of random tests and of matrices, and what `make prove` runs of them."""

from __future__ import annotations

from itertools import combinations, product
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

Case = tuple[Any, ...]


def examples(fast: int, *, times: int = 20) -> int:
    """Return how many examples to draw: `fast`, or so many times as many with `--prove`."""
    return fast * times if settings.get_current_profile_name() == "prove" else fast


def matrix(*axes: Iterable[Any], depth: int = 2, without: Callable[..., bool] | None = None) -> list[Any]:
    """Return the product of axes as cases for `parametrize`, without those for which `without(*case)` is true.

    Fast cases are a selection in which each pair of values of two axes appears (`depth=1`: each value); the others are
    marked `prove`.
    """
    cases = [case for case in product(*axes) if without is None or not without(*case)]
    chosen = _covering(cases, depth)
    return [
        case if number in chosen else pytest.param(*case, marks=pytest.mark.prove) for number, case in enumerate(cases)
    ]


def fast(*chosen: Any, of: Iterable[Any]) -> list[Any]:
    """Return values as cases for `parametrize`: those chosen are fast ones, the others are marked `prove`."""
    return [value if value in chosen else pytest.param(value, marks=pytest.mark.prove) for value in of]


def _covering(cases: Sequence[Case], depth: int) -> set[int]:
    """Return the numbers of cases that together have all that any case has: always the one that adds most, first."""
    having = [set(combinations([(axis, repr(value)) for axis, value in enumerate(case)], depth)) for case in cases]
    missing, chosen = set().union(*having), set()
    while missing:
        best = max(range(len(cases)), key=lambda number: len(having[number] & missing))
        missing -= having[best]
        chosen.add(best)
    return chosen

"""Searching keys for a pattern, in compiled code where numba is installed."""

from __future__ import annotations

import sys
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from headrace.kernels import pattern_walk

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

MANY = 50_000
"""So many rows are worth the second that importing numba takes."""


class Found(NamedTuple):
    """Rows of matches, their places, where each match begins in these, and of each key the first undecided row."""

    rows: Any
    places: Any
    matches: Any
    undecided: Any


def search(
    table: tuple[Any, Any, Any, Any],
    symbols: Sequence[int],
    follow: Sequence[Sequence[int]],
    rule: tuple[int, int, bool],
) -> Found:
    """Find the matches of keys; `pattern_walk` says what the arguments are."""
    masks, times, done, begins = table
    places = len(symbols)
    longest = int(np.diff(begins).max())
    sizes = (2 * (pattern_walk.BLOCK + 1) * places, 2, (longest // pattern_walk.BLOCK + 1) * places, longest)
    automaton = (
        np.left_shift(1, np.asarray(symbols, np.int64)),
        np.cumsum([0, *map(len, follow)], dtype=np.int64),
        np.asarray([to for steps in follow for to in steps], np.int64),
    )
    if _compiles() and (len(masks) >= MANY or "numba" in sys.modules):
        memory = tuple(np.zeros(size, np.int64) for size in sizes)
        return Found(*_compiled()((masks, times, done, begins), automaton, memory, rule))
    listed = masks.tolist(), times.tolist(), done.tolist(), begins.tolist()
    lists = tuple([0] * size for size in sizes)
    found = Found(*pattern_walk.walk(listed, tuple(part.tolist() for part in automaton), lists, rule))
    done[:] = listed[2]
    return found


@cache
def _compiles() -> bool:
    return find_spec("numba") is not None


@cache
def _compiled() -> Callable[..., Any]:
    from numba import njit
    from numba.extending import register_jitable

    for function in (pattern_walk.load, pattern_walk.look_back, pattern_walk.read_off, pattern_walk.longer):
        register_jitable(function)
    try:
        return njit(cache=True, nogil=True)(pattern_walk.walk)  # type: ignore[no-any-return]
    except RuntimeError:  # no folder to store it in
        return njit(nogil=True)(pattern_walk.walk)  # type: ignore[no-any-return]

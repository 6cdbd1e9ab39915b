"""Functions that numba compiles, and keeps compiled on the disk."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numba

if TYPE_CHECKING:
    from collections.abc import Callable


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that is compiled at its first call, with the lock of Python's interpreter released.

    The code is cached beside the file, or in the user's cache folder where an installation cannot be written to; where
    neither is possible, each process compiles it.
    """
    try:
        cached: Callable[..., Any] = numba.njit(cache=True, nogil=True, boundscheck=False)(function)
    except RuntimeError:  # no folder for the cache
        return numba.njit(nogil=True, boundscheck=False)(function)  # type: ignore[no-any-return]
    return cached

"""Functions over bytes, compiled by numba and stored on the disk."""

from __future__ import annotations

import sys
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

Function = TypeVar("Function", bound="Callable[..., object]")
FEW = 500
"""So few records are not worth the half second that importing numba takes."""


@cache
def has_compiler() -> bool:
    """Whether numba is installed."""
    return find_spec("numba") is not None


def worth_compiling(records: int) -> bool:
    """Whether so many records are to be read by compiled code, which may have to be imported first."""
    return has_compiler() and (records >= FEW or "numba" in sys.modules)


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a function at its first call, with Python's global lock released and no bounds checked.

    The code is stored beside the file, or in the user's cache folder where an installation cannot be written to; where
    neither is possible, each process compiles it.
    """
    return _stored(function, boundscheck=False)


def inlined(function: Function) -> Function:
    """Compile a function that allocates nothing, as a part of those that call it: many times faster for small ones."""
    return _stored(function, forceinline=True, _nrt=False)


def _stored(function: Function, **how: bool) -> Function:
    import numba

    try:
        fast: Function = numba.njit(cache=True, nogil=True, **how)(function)
    except RuntimeError:  # no folder to store it in: a file system that is only read, and no home
        fast = numba.njit(nogil=True, **how)(function)
    return fast

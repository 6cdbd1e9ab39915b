"""Functions over bytes, compiled by numba and stored on the disk."""

from __future__ import annotations

import sys
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, TypeVar

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


def compiled(function: Function) -> Function:
    """Compile a function, once for an installation: it is stored beside the file, or in the user's cache.

    It runs without Python's global lock, and checks no bounds.
    """
    import numba

    try:
        fast: Function = numba.njit(cache=True, nogil=True, forceinline=True, _nrt=False)(function)
    except RuntimeError:  # no folder to store it in: a file system that is only read, and no home
        fast = numba.njit(nogil=True)(function)
    return fast

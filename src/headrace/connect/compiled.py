"""Functions over bytes, compiled by numba and stored on the disk."""

from __future__ import annotations

import logging
import sys
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, TypeVar

from headrace.base.time import SystemClock

if TYPE_CHECKING:
    from collections.abc import Callable

Function = TypeVar("Function", bound="Callable[..., object]")
FEW = 500
"""So few records are not worth the half second that importing numba takes."""
PATIENCE = 2.0
"""Seconds of compiling after which it is said why nothing happens."""
logger = logging.getLogger(__name__)


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


@cache
def _watched() -> None:
    """Let this process say that it compiles functions of ours, once, where that takes long."""
    from numba.core import event

    clock = SystemClock()

    class Watch(event.Listener):  # type: ignore[misc] # numba has no types
        inside = 0  # a function is compiled inside those that call it; one thread compiles at a time
        began = 0.0
        said = False

        def on_start(self, happens: Any) -> None:
            if not self.inside:
                self.began = clock.monotonic()
            self.inside += 1
            ours = happens.data["dispatcher"].py_func.__module__.startswith("headrace.")
            if ours and not self.said and clock.monotonic() - self.began >= PATIENCE:
                self.said = True
                logger.warning("compiling the readers of records for this machine, once: this takes some 20 seconds")

        def on_end(self, happens: Any) -> None:  # noqa: ARG002 -- numba calls it so
            self.inside -= 1

    event.register("numba:compile", Watch())


def _stored(function: Function, **how: bool) -> Function:
    import numba

    _watched()
    try:
        fast: Function = numba.njit(cache=True, nogil=True, **how)(function)
    except RuntimeError:  # no folder to store it in: a file system that is only read, and no home
        fast = numba.njit(nogil=True, **how)(function)
    return fast

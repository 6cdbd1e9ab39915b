"""Waiting for several partitions' disks at the same time: one journal commit of the file system may serve them all."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_T = TypeVar("_T")
_R = TypeVar("_R")
_THREADS = 8


def run_all(act: Callable[[_T], _R], items: Iterable[_T], *, parallel: bool) -> list[_R]:
    """Return `act(item)` for each item, or raise the first error in their order; `parallel` runs all of them.

    The threads end with the call: idle ones would be missing after a fork.
    """
    todo = list(items)
    if len(todo) > 1 and parallel:
        with ThreadPoolExecutor(min(len(todo), _THREADS)) as pool:
            return list(pool.map(act, todo))
    return [act(item) for item in todo]

"""Waiting for several partitions' disks at the same time: one journal commit of the file system may serve them all."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_T = TypeVar("_T")
_R = TypeVar("_R")
_THREADS = 8


def each(act: Callable[[_T], _R], items: Iterable[_T], *, at_once: bool) -> list[_R]:
    """Return what `act` gives for each item, or raise the first error in their order; `at_once` tries them all.

    The threads live no longer than the call: those that wait for work would be missing after a fork.
    """
    todo = list(items)
    if len(todo) > 1 and at_once:
        with ThreadPoolExecutor(min(len(todo), _THREADS)) as pool:
            return list(pool.map(act, todo))
    return [act(item) for item in todo]

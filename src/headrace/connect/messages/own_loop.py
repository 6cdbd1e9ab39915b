"""Asynchronous clients that are used by functions which are not, wherever these are called."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

Result = TypeVar("Result")


def apart(work: Callable[[], Result]) -> Result:
    """Return what `work` returns or raises; it may run an event loop of its own.

    A notebook runs its cells inside an event loop, and a thread runs one at a time: there another thread does the work
    while this one waits. Trap: the notebook's own loop waits, too, as with any other call that takes its time.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return work()
    with ThreadPoolExecutor(1, thread_name_prefix="headrace-apart") as other:
        return other.submit(work).result()

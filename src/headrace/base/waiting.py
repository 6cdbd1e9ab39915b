"""Waiting for a socket or a file of the system, whatever its number.

Trap: `select.select` takes none from 1,024 on, and a process that has many logs open has more.
"""

from __future__ import annotations

import select
from typing import Protocol


class HasNumber(Protocol):
    """A socket, a pipe, or a file."""

    def fileno(self) -> int:
        """Return its number."""
        ...


def readable(file: HasNumber | int, seconds: float | None = None) -> bool:
    """Wait until something can be read, or it has ended; return whether that came within some seconds (None: ever).

    A connection by TLS may hold what it has received already, of which the system knows nothing any more.
    """
    if getattr(file, "pending", int)():
        return True
    if not hasattr(select, "poll"):  # not every system has it
        return bool(select.select([file], [], [], seconds)[0])
    return _polled(file, select.POLLIN, seconds)


def writable(file: HasNumber | int, seconds: float | None = None) -> bool:
    """Wait until something can be written; return whether that came within some seconds (None: ever)."""
    if not hasattr(select, "poll"):
        return bool(select.select([], [file], [], seconds)[1])
    return _polled(file, select.POLLOUT, seconds)


def _polled(file: HasNumber | int, event: int, seconds: float | None) -> bool:
    poll = select.poll()
    poll.register(file, event)
    return bool(poll.poll(None if seconds is None else max(0.0, seconds) * 1000))

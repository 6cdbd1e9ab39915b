"""How one who waits for records learns of an append: by a bell, a named pipe that every append to the topic rings.

A bell belongs to a topic and to those who share its records; whoever hears it first takes what rang. So it says "look",
never "there is one", and who waits looks now and then without it: an older version may append, a process may die
between hearing and looking, and some file systems have no named pipes.
"""

from __future__ import annotations

import os
import select
import stat
from contextlib import suppress
from typing import TYPE_CHECKING

from headrace.base.time import SystemClock

if TYPE_CHECKING:
    from pathlib import Path

    from headrace.base.time import Clock

SECONDS = 0.1
"""So long somebody who waits relies on the bell."""
_DEAF_SECONDS = 0.002
"""So long where there is none."""
_ALL = 1 << 16  # a pipe has no more bytes
_RING = b"\0"


def bells_folder(log: Path, topic: str) -> Path:
    """Return the folder of a topic's bells."""
    return log / "waiting" / topic


class Bell:
    """A bell of a topic, for `who`; those of one name share it. Close it when done."""

    def __init__(self, log: Path, topic: str, who: str) -> None:
        path = bells_folder(log, topic) / who
        self._fd = -1
        with suppress(OSError):  # then it is never heard
            path.parent.mkdir(parents=True, exist_ok=True)
            with suppress(FileExistsError):
                os.mkfifo(path, 0o660)
            if stat.S_ISFIFO(path.stat().st_mode):
                self._fd = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)  # to write, too: it never hangs up

    def wait(self, seconds: float, clock: Clock) -> bool:
        """Wait until it rings, but for `SECONDS` at most; tell whether it did. It is silent afterwards."""
        seconds = min(seconds, _DEAF_SECONDS if self._fd < 0 else SECONDS)
        if self._fd < 0 or not isinstance(clock, SystemClock):
            clock.sleep(seconds)
            return False
        waiting = select.poll()
        waiting.register(self._fd, select.POLLIN)
        if not waiting.poll(seconds * 1000):
            return False
        try:
            return bool(os.read(self._fd, _ALL))
        except BlockingIOError:
            return False  # another one was faster

    def ring(self) -> None:
        """Let one of those who share it look."""
        if self._fd >= 0:
            with suppress(OSError):  # it rings so often that it is full
                os.write(self._fd, _RING)

    def close(self) -> None:
        """Stop hearing it; closing again does nothing."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def ring_all(folder: Path) -> None:
    """Ring all bells of a topic, for everybody who waits for it."""
    try:
        names = os.listdir(folder)  # noqa: PTH208 - at every append
    except OSError:
        return
    for name in names:
        with suppress(OSError):  # nobody hears it, it is another user's, or it rings so often that it is full
            fd = os.open(f"{folder}/{name}", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                os.write(fd, _RING)
            finally:
                os.close(fd)

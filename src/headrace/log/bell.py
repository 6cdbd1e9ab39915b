"""How one who waits for records learns of an append: by a bell, a named pipe that every append to the topic rings.

A bell belongs to a topic. Members of a group each have their own; the workers of a queue share one, and whoever hears
it first takes what rang. So it says "look", never "there is one", and who waits looks now and then without it: an older
version may append, a process may die between hearing and looking, and some file systems have no named pipes.
"""

from __future__ import annotations

import errno
import fcntl
import os
import select
import stat
import uuid
from contextlib import suppress
from typing import TYPE_CHECKING

from headrace.base.time import SystemClock

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from headrace.base.time import Clock

SECONDS = 0.1
"""So long somebody who waits relies on the bell."""
_DEAF_SECONDS = 0.002
"""So long where there is none."""
_ALL = 1 << 16  # a pipe has no more bytes
_RING = b"\0"
_OWN = "+"  # in the name of a bell that one process has; no name of a group has it
_DRAFT = "."


def bells_folder(log: Path, topic: str) -> Path:
    """Return the folder of a topic's bells."""
    return log / "waiting" / topic


class Bell:
    """A bell of a topic. Those of one `name` share it, unless it is one's `own`. Close it when done."""

    def __init__(self, log: Path, topic: str, name: str, *, own: bool = False) -> None:
        folder = bells_folder(log, topic)
        self._fd, self._path = -1, folder / (f"{name}{_OWN}{uuid.uuid4().hex}" if own else name)
        with suppress(OSError):  # then it is never heard
            folder.mkdir(parents=True, exist_ok=True)
            draft = folder / f"{_DRAFT}{self._path.name}"
            self._fd = _opened(draft if own else self._path)
            if own:
                draft.rename(self._path)  # it is seen when it is open, so what is seen and not open is left over

    def ring(self) -> None:
        """Let one of those who share it look."""
        if self._fd >= 0:
            with suppress(OSError):  # it rings so often that it is full
                os.write(self._fd, _RING)

    def heard(self) -> bool:
        """Tell whether it rang, and nobody else has heard it. It is silent afterwards."""
        try:
            return self._fd >= 0 and bool(os.read(self._fd, _ALL))
        except BlockingIOError:
            return False

    def fileno(self) -> int:
        """Return the file to wait for; -1 if there is none."""
        return self._fd

    def close(self) -> None:
        """Stop hearing it, and remove it if nobody else has it open; closing again does nothing."""
        if self._fd >= 0:
            with suppress(OSError):
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self._path.unlink(missing_ok=True)
            os.close(self._fd)
            self._fd = -1


def _opened(path: Path) -> int:
    """Open a pipe, which is created; a lock says that it is open. Return -1 where something else is in its place."""
    while True:
        with suppress(FileExistsError):
            os.mkfifo(path, 0o660)
        try:
            if not stat.S_ISFIFO(path.stat().st_mode):
                return -1
            fd = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)  # to write, too: it never hangs up
        except FileNotFoundError:
            continue
        with suppress(OSError):  # a system that locks no pipes: then nobody removes it
            fcntl.flock(fd, fcntl.LOCK_SH)
        with suppress(FileNotFoundError):
            if os.fstat(fd).st_ino == path.stat().st_ino:
                return fd
        os.close(fd)  # whoever had it open last has just removed it


def wait(bells: Sequence[Bell], seconds: float, clock: Clock) -> None:
    """Wait until one of some bells rings, but for `SECONDS` at most."""
    deaf = any(bell.fileno() < 0 for bell in bells)
    seconds = min(seconds, _DEAF_SECONDS if deaf else SECONDS)
    if deaf or not isinstance(clock, SystemClock):
        clock.sleep(seconds)
        return
    waiting = select.poll()
    for bell in bells:
        waiting.register(bell, select.POLLIN)
    if waiting.poll(seconds * 1000):
        for bell in bells:
            bell.heard()


def ring_all(folder: Path) -> None:
    """Ring all bells of a topic, for everybody who waits for it."""
    try:
        names = os.listdir(folder)  # noqa: PTH208 - at every append
    except OSError:
        return
    for name in names:
        if name.startswith(_DRAFT):
            continue
        path = f"{folder}/{name}"
        try:
            fd = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError as error:  # nobody hears it, or it is another user's
            if error.errno == errno.ENXIO and _OWN in name:
                with suppress(OSError):
                    os.unlink(path)  # noqa: PTH108 - its process has died
            continue
        with suppress(OSError):  # it rings so often that it is full
            if stat.S_ISFIFO(os.fstat(fd).st_mode):  # nothing is written into what somebody has put there
                os.write(fd, _RING)
        os.close(fd)

"""Server processes in a folder: started through a keeper, killed, paused, and started again.

A folder of a test run is used by several processes of the run (pytest's workers) at the same time, and ends with the
last of them, even if they are killed.
"""

from __future__ import annotations

import fcntl
import os
import random
import socket
import subprocess
import sys
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    import signal
    from collections.abc import Iterator

LOOPBACK = "127.0.0.1"
_PORTS = range(15_000, 31_000)  # below those that systems give to outgoing connections
_KEEPER = Path(__file__).with_name("keeper.py")
_LAST_WORDS = 2000


class NotStarted(RuntimeError):
    """A server ended, or does not answer; the text has the end of its log."""


class Servers:
    """The server processes of one folder."""

    def __init__(self, folder: Path, *, shared: bool) -> None:
        """Use the folder: with `shared`, until the last process that uses it ends; else until `stop`."""
        self.folder = folder.resolve()
        self.folder.mkdir(parents=True, exist_ok=True)
        self._users: IO[bytes] | None = None
        if shared:
            self._users = (self.folder / "users").open("ab")
            fcntl.flock(self._users, fcntl.LOCK_SH)

    @property
    def ended(self) -> bool:
        """Whether the folder's last user had gone before this one came: its data are lost."""
        return (self.folder / "ended").exists()

    def start(self, name: str, command: list[str]) -> None:
        """Start a server under a name, or do nothing if it runs."""
        with (self.folder / f"{name}.lock").open("w") as alone:
            fcntl.flock(alone, fcntl.LOCK_EX)
            if not self.alive(name):
                self._start(name, command)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Keep other processes from starting and configuring servers of this folder."""
        with (self.folder / "lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def alive(self, name: str) -> bool:
        """Whether the server's process exists, paused or not."""
        try:
            with (self.folder / f"{name}.pid").open("a+") as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False

    def process(self, name: str) -> int:
        """Return the id of the server's process, the last one if it does not run."""
        return int((self.folder / f"{name}.pid").read_text())

    def signal(self, name: str, number: signal.Signals) -> None:
        """Send a signal to a server that runs; to one that does not, nothing."""
        if self.alive(name):
            os.kill(self.process(name), number)

    def await_end(self, name: str) -> None:
        """Return when the server's process is gone."""
        with (self.folder / f"{name}.pid").open("a+") as file:
            fcntl.flock(file, fcntl.LOCK_SH)

    def words(self, name: str) -> str:
        """Return the end of what the server wrote."""
        log = self.folder / f"{name}.log"
        return log.read_text(errors="replace")[-_LAST_WORDS:] if log.exists() else ""

    def leave(self) -> None:
        """Stop using the folder: its servers end if nobody else uses it. Not for one of `shared=False`."""
        if self._users is not None:
            self._users.close()
            self._users = None

    def _start(self, name: str, command: list[str]) -> None:
        keeper = subprocess.run(
            [sys.executable, "-I", "-S", str(_KEEPER), str(self.folder), name, *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            check=False,
        )
        if keeper.returncode:
            raise NotStarted(f"{name} did not start: {self.words(name)}")


def shared(root: Path, kind: str) -> Servers:
    """Return the folder `root/kindN` that this run uses: the newest whose users have not all gone."""
    for number in count():
        servers = Servers(root / f"{kind}{number}", shared=True)
        if not servers.ended:
            return servers
        servers.leave()
    raise AssertionError


def free_ports(number: int, *, wanted: int | None = None) -> int:
    """Return the first of some ports in a row that nobody listens on now: `wanted` if they are free."""
    drawn = (random.randrange(_PORTS.start, _PORTS.stop - number) for _ in range(100))  # noqa: S311 - any will do
    for first in (*([] if wanted is None else [wanted]), *drawn):
        if all(_is_free(first + n) for n in range(number)):
            return first
    raise NotStarted(f"{LOOPBACK} has no {number} free ports in a row")


def _is_free(port: int) -> bool:
    with socket.socket() as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            one.bind((LOOPBACK, port))
        except OSError:
            return False
    return True

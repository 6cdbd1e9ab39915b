"""A server in any folder: how all are started, asked, ended and killed."""

from __future__ import annotations

import argparse
import signal
import socket
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scripts.broker.servers import LOOPBACK, NotStarted, Servers, free_ports
from scripts.servers.packages import Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable


class Server:
    """A server in a folder. It keeps its port, and its data where it writes any, for as long as the folder exists."""

    name: str
    """Of its process and its log."""
    scheme: str
    title: str = ""
    """What errors call it; by default its name."""
    ports: int = 1
    """How many it needs: `port` and those after it."""
    start_seconds: float = 120
    """How long it may take until it answers."""

    def __init__(self, servers: Servers) -> None:
        self.servers = servers
        self.folder = servers.folder

    def command(self) -> list[str]:
        """Return the command that runs it, after writing what settings it reads.

        Raises:
            Unavailable: there is no program, and no way to get it.

        """
        raise NotImplementedError

    def launch(self) -> None:
        """Start its process, or its processes."""
        self.servers.start(self.name, self.command())

    def answers(self) -> bool:
        """Whether it takes connections; it may raise an `OSError` if not."""
        with socket.create_connection((LOOPBACK, self.port), timeout=1):
            return True

    @property
    def port(self) -> int:
        """Return its port."""
        return int((self.folder / "port").read_text())

    def url(self, *, login: str = "") -> str:
        """Return its address; `login` is `user:password`."""
        return f"{self.scheme}://{f'{login}@' if login else ''}{LOOPBACK}:{self.port}"

    def start(self) -> None:
        """Start it, if it does not run, and return when it answers.

        Raises:
            Unavailable: there is no program, and no way to get it.
            NotStarted: it ended, or does not answer; the text has the end of its log.

        """
        with self.servers.alone():
            if not (self.folder / "port").exists():
                (self.folder / "port").write_text(str(free_ports(self.ports)))
            deadline = time.monotonic() + self.start_seconds
            if not self.servers.alive(self.name):
                self.launch()
            while not self._answers():
                if time.monotonic() > deadline or not self.servers.alive(self.name):
                    raise NotStarted(f"{self.title or self.name} does not answer: {self.servers.words(self.name)}")
                time.sleep(0.05)

    def stop(self) -> None:
        """End it in order."""
        self.end(signal.SIGTERM)

    def kill(self) -> None:
        """End it as a process that fails would."""
        self.end(signal.SIGKILL)

    def restart(self) -> None:
        """Kill it and start it again."""
        self.kill()
        self.start()

    def end(self, how: signal.Signals) -> None:
        """Send it a signal, and return when it has ended."""
        self.servers.signal(self.name, how)
        self.servers.await_end(self.name)

    def _answers(self) -> bool:
        with suppress(OSError):
            return self.answers()
        return False


def run(make: Callable[[Servers], Any], *, program: str, description: str) -> None:
    """Do what the command line says: start, stop or kill the server of a folder."""
    parser = argparse.ArgumentParser(prog=program, description=description)
    parser.add_argument("verb", choices=["start", "stop", "kill"])
    parser.add_argument("folder", type=Path)
    given = parser.parse_args()
    server = make(Servers(given.folder, shared=False))
    if given.verb != "start":
        getattr(server, given.verb)()
        return
    try:
        server.start()
    except (Unavailable, NotStarted) as problem:
        sys.exit(f"error: {problem}")
    print(server.url())

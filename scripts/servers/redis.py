"""Redis on this machine: a real server in any folder, whose data survive that its process is killed.

    python -m scripts.servers.redis start FOLDER     prints its address
    python -m scripts.servers.redis stop FOLDER      ends it and keeps its data; start brings it back

The program is the system's `redis-server` or `valkey-server`, else that of Debian's package in the user's cache folder.
"""

from __future__ import annotations

import shutil
import signal
import socket
import time
from pathlib import Path

from scripts.broker.servers import LOOPBACK, NotStarted, Servers, free_ports
from scripts.servers.packages import Unavailable, debian, environment
from scripts.servers.server import run

START_SECONDS = 60
NAME = "redis"
SETTINGS = {"save": "", "appendonly": "yes", "appendfsync": "no", "protected-mode": "no", "databases": "64"}


class Redis:
    """A server in a folder, with settings that differ from `SETTINGS` where they are given."""

    def __init__(self, servers: Servers, **settings: str) -> None:
        self.servers = servers
        self.folder = servers.folder
        self._settings = SETTINGS | settings

    @property
    def port(self) -> int:
        """Return the port that the server has for as long as its folder exists."""
        return int((self.folder / "port").read_text())

    def url(self, database: int = 0, *, login: str = "") -> str:
        """Return the address of one of its databases; `login` is `user:password`."""
        return f"redis://{f'{login}@' if login else ''}{LOOPBACK}:{self.port}/{database}"

    def start(self) -> None:
        """Start it, if it does not run, on the port and data that it had, and return when it answers.

        Raises:
            Unavailable: there is no program, and no way to get it.
            NotStarted: it ended, or does not answer; the text has the end of its log.

        """
        with self.servers.alone():
            if not (self.folder / "port").exists():
                (self.folder / "port").write_text(str(free_ports(1)))
            deadline = time.monotonic() + START_SECONDS
            while not self._answers():
                if time.monotonic() > deadline:
                    raise NotStarted(f"Redis does not answer: {self.servers.words(NAME)}")
                if not self.servers.alive(NAME):
                    self._launch()
                time.sleep(0.05)

    def stop(self) -> None:
        """End it in order; data are kept."""
        self.servers.signal(NAME, signal.SIGTERM)
        self.servers.await_end(NAME)

    def kill(self) -> None:
        """End it as a process that fails would."""
        self.servers.signal(NAME, signal.SIGKILL)
        self.servers.await_end(NAME)

    def _launch(self) -> None:
        program, variables = _program()
        fixed = {"bind": LOOPBACK, "port": str(self.port), "dir": str(self.folder), "daemonize": "no"}
        settings = [part for name, value in (self._settings | fixed).items() for part in (f"--{name}", value)]
        self.servers.start(NAME, [*variables, str(program), *settings])

    def _answers(self) -> bool:
        if not self.servers.alive(NAME):
            return False
        try:
            with socket.create_connection((LOOPBACK, self.port), timeout=1) as one:
                one.sendall(b"PING\r\n")
                return one.recv(16).startswith(b"+PONG")
        except OSError:
            return False


def _program() -> tuple[Path, list[str]]:
    """Return the program, and what comes before it on the command line so that it finds its libraries."""
    for name in ("redis-server", "valkey-server"):
        if found := shutil.which(name):
            return Path(found), []
    folder = debian("redis-server", "redis-tools")
    server = folder / "usr/bin/redis-server"
    if not server.exists():
        raise Unavailable("Debian's package redis-server has no program redis-server")
    libraries = environment(folder).get("LD_LIBRARY_PATH", "")
    return server, ["/usr/bin/env", f"LD_LIBRARY_PATH={libraries}"]


if __name__ == "__main__":
    run(Redis, program="scripts.servers.redis", description="Redis on this machine.")

"""Redis on this machine: a real server in any folder, whose data survive that its process is killed.

    python -m scripts.servers.redis start FOLDER     prints its address
    python -m scripts.servers.redis stop FOLDER      ends it and keeps its data; start brings it back

The program is the system's `redis-server` or `valkey-server`, else that of Debian's package in the user's cache folder.
"""

from __future__ import annotations

import shutil
import socket
from pathlib import Path

from scripts.broker.servers import LOOPBACK, Servers
from scripts.servers.packages import Unavailable, debian, environment
from scripts.servers.server import Server, run

SETTINGS = {"save": "", "appendonly": "yes", "appendfsync": "no", "protected-mode": "no", "databases": "64"}


class Redis(Server):
    """A server in a folder, with settings that differ from `SETTINGS` where they are given."""

    name, scheme, title = "redis", "redis", "Redis"
    start_seconds = 60

    def __init__(self, servers: Servers, **settings: str) -> None:
        super().__init__(servers)
        self._settings = SETTINGS | settings

    def command(self) -> list[str]:
        """Return the command."""
        program, variables = _program()
        fixed = {"bind": LOOPBACK, "port": str(self.port), "dir": str(self.folder), "daemonize": "no"}
        settings = [part for name, value in (self._settings | fixed).items() for part in (f"--{name}", value)]
        return [*variables, str(program), *settings]

    def answers(self) -> bool:
        """Whether it answers a ping."""
        with socket.create_connection((LOOPBACK, self.port), timeout=1) as one:
            one.sendall(b"PING\r\n")
            return one.recv(16).startswith(b"+PONG")

    def url(self, database: int = 0, *, login: str = "") -> str:
        """Return the address of one of its databases; `login` is `user:password`."""
        return f"{super().url(login=login)}/{database}"


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

"""StatsD's own server on this machine, from npm, in any folder: the rival of a bench."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from scripts.broker.servers import LOOPBACK, NotStarted, Servers, free_ports
from scripts.servers.packages import Unavailable, cache_folder

if TYPE_CHECKING:
    from pathlib import Path

PACKAGE = "statsd@0.9.0"
NAME = "statsd"
START_SECONDS, FETCH_SECONDS = 30, 300


def modules() -> Path:
    """Return the folder of npm's packages, fetched once.

    Raises:
        Unavailable: there is no node or npm, or the package cannot be fetched.

    """
    missing = [tool for tool in ("node", "npm") if shutil.which(tool) is None]
    if missing:
        raise Unavailable(f"StatsD's server needs {missing[0]}")
    folder = cache_folder() / "npm-statsd"
    if not (folder / "done").exists():
        folder.mkdir(parents=True, exist_ok=True)
        command = ["npm", "install", "--silent", "--no-fund", "--no-audit", "--prefix", str(folder), PACKAGE]
        try:
            subprocess.run(command, check=True, capture_output=True, timeout=FETCH_SECONDS)
        except (subprocess.SubprocessError, OSError) as error:
            raise Unavailable(f"npm does not fetch {PACKAGE}: {error}") from error
        (folder / "done").touch()
    return folder / "node_modules"


class Statsd:
    """A server that never flushes, so that its counters are those of its life."""

    def __init__(self, servers: Servers) -> None:
        self.servers = servers
        self.port, self.management = 0, 0

    def start(self) -> None:
        """Start it, and return when it answers.

        Raises:
            Unavailable: it cannot be had.
            NotStarted: it does not answer.

        """
        script = modules() / "statsd" / "stats.js"
        self.port, self.management = free_ports(1), free_ports(1)
        config = self.servers.folder / "config.js"
        config.write_text(
            f'{{ port: {self.port}, address: "{LOOPBACK}", mgmt_address: "{LOOPBACK}", mgmt_port: {self.management}, '
            "flushInterval: 100000000, backends: [] }"
        )
        self.servers.start(NAME, ["node", str(script), str(config)])
        deadline = time.monotonic() + START_SECONDS
        while True:
            with suppress(OSError):
                self.counter("x")
                return
            if time.monotonic() > deadline:
                raise NotStarted(f"StatsD does not answer: {self.servers.words(NAME)}")
            time.sleep(0.05)

    def counter(self, name: str) -> float:
        """Return a counter, 0 where there is none."""
        with socket.create_connection((LOOPBACK, self.management), timeout=30) as asked:
            asked.sendall(b"counters\n")
            answer = b""
            while b"END\n" not in answer:
                part = asked.recv(1 << 16)
                if not part:
                    break
                answer += part
        for line in answer.decode().splitlines():
            key, _, value = line.strip().strip(",{}").strip().rpartition(":")
            if key.strip().strip("'\"") == name:
                return float(value)
        return 0.0

    def stop(self) -> None:
        """End it."""
        self.servers.signal(NAME, signal.SIGTERM)
        self.servers.await_end(NAME)

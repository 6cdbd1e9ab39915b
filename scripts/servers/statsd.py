"""StatsD's own server on this machine, from npm, in any folder: the rival of a bench."""

from __future__ import annotations

import signal
import socket
import time
from contextlib import suppress

from scripts.broker.servers import LOOPBACK, NotStarted, Servers, free_ports
from scripts.servers.npm import modules, node

PACKAGE = "statsd@0.9.0"
NAME = "statsd"
START_SECONDS = 30


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
        script = modules(PACKAGE) / "statsd" / "stats.js"
        self.port, self.management = free_ports(1), free_ports(1)
        config = self.servers.folder / "config.js"
        config.write_text(
            f'{{ port: {self.port}, address: "{LOOPBACK}", mgmt_address: "{LOOPBACK}", mgmt_port: {self.management}, '
            "flushInterval: 100000000, backends: [] }"
        )
        self.servers.start(NAME, [node(), str(script), str(config)])
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

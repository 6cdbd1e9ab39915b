"""What answers as Azure Service Bus does, on this machine: `service_bus.js`, by Node and npm's `rhea`.

It is no Service Bus: that is a service, and its emulator is a container image. `service_bus.js` says what it does not
do. Its messages are gone when it ends.
"""

from __future__ import annotations

import fcntl
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

from scripts.broker.servers import LOOPBACK, NotStarted, Servers, free_ports
from scripts.servers.packages import FETCH_SECONDS, Unavailable, cache_folder

if TYPE_CHECKING:
    from collections.abc import Sequence

RHEA = "rhea@3.0.5"
KEY_NAME, KEY = "ada", "d29uZGVy"
NAME = "service-bus"
START_SECONDS = 60
_PROGRAM = Path(__file__).with_name("service_bus.js")


class ServiceBus:
    """The responder in a folder."""

    def __init__(self, servers: Servers) -> None:
        self.servers = servers
        self.folder = servers.folder

    @property
    def port(self) -> int:
        """Return the port that it has for as long as its folder exists."""
        return int((self.folder / "port").read_text())

    def connection_string(self, *, key: str = KEY, port: int | None = None) -> str:
        """Return the text that clients connect with."""
        return (
            f"Endpoint=sb://{LOOPBACK}:{port or self.port};SharedAccessKeyName={KEY_NAME};SharedAccessKey={key};"
            "UseDevelopmentEmulator=true;"
        )

    def start(self) -> None:
        """Start it, if it does not run, and return when it answers.

        Raises:
            Unavailable: there is no Node or npm, or npm's registry does not answer.
            NotStarted: it ended, or does not answer; the text has the end of its log.

        """
        with self.servers.alone():
            if not (self.folder / "port").exists():
                (self.folder / "port").write_text(str(free_ports(1)))
            if not self.servers.alive(NAME):
                modules = _modules()
                command = ["/usr/bin/env", f"NODE_PATH={modules}", _node("node"), str(_PROGRAM)]
                self.servers.start(NAME, [*command, str(self.port), KEY_NAME, KEY])
            deadline = time.monotonic() + START_SECONDS
            while not self._answers():
                if time.monotonic() > deadline or not self.servers.alive(NAME):
                    raise NotStarted(f"the responder does not answer: {self.servers.words(NAME)}")
                time.sleep(0.1)

    def kill(self) -> None:
        """End it as a process that fails would."""
        self.servers.signal(NAME, signal.SIGKILL)
        self.servers.await_end(NAME)

    def _answers(self) -> bool:
        try:
            with socket.create_connection((LOOPBACK, self.port), timeout=5) as one:
                one.sendall(b"AMQP\x03\x01\x00\x00")
                return one.recv(4) == b"AMQP"
        except OSError:
            return False


def _node(program: str) -> str:
    found = shutil.which(program)
    if found is None:
        raise Unavailable(f"there is no {program} here")
    return found


def _modules() -> Path:
    """Return a folder with rhea and what it needs, fetched once."""
    cached = cache_folder()
    folder = cached / f"npm-{RHEA.replace('@', '-')}"
    cached.mkdir(parents=True, exist_ok=True)
    with (cached / "npm.lock").open("w") as alone:
        fcntl.flock(alone, fcntl.LOCK_EX)
        if not (folder / "done").exists():
            _npm(["install", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix", str(folder), RHEA])
            (folder / "done").touch()
    return folder / "node_modules"


def _npm(arguments: Sequence[str]) -> None:
    try:
        run = subprocess.run(
            [_node("npm"), *arguments], capture_output=True, text=True, timeout=FETCH_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise Unavailable(f"npm's registry did not give {RHEA} within {FETCH_SECONDS} s") from None
    if run.returncode:
        raise Unavailable(f"npm cannot install {RHEA}: {run.stderr.strip()[-300:]}")

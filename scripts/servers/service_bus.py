"""What answers as Azure Service Bus does, on this machine: `service_bus.js`, by Node and npm's `rhea`.

It is no Service Bus: that is a service, and its emulator is a container image. `service_bus.js` says what it does not
do. Its messages are gone when it ends.
"""

from __future__ import annotations

import socket
from pathlib import Path

from scripts.broker.servers import LOOPBACK
from scripts.servers.npm import modules, node
from scripts.servers.server import Server

RHEA = "rhea@3.0.5"
KEY_NAME, KEY = "ada", "d29uZGVy"
_PROGRAM = Path(__file__).with_name("service_bus.js")


class ServiceBus(Server):
    """The responder in a folder."""

    name, scheme, title = "service-bus", "sb", "the responder"
    start_seconds = 60

    def connection_string(self, *, key: str = KEY, port: int | None = None) -> str:
        """Return the text that clients connect with."""
        return (
            f"Endpoint=sb://{LOOPBACK}:{port or self.port};SharedAccessKeyName={KEY_NAME};SharedAccessKey={key};"
            "UseDevelopmentEmulator=true;"
        )

    def command(self) -> list[str]:
        """Return the command."""
        found = ["/usr/bin/env", f"NODE_PATH={modules(RHEA)}", node(), str(_PROGRAM)]
        return [*found, str(self.port), KEY_NAME, KEY]

    def answers(self) -> bool:
        """Whether it speaks its protocol."""
        with socket.create_connection((LOOPBACK, self.port), timeout=5) as one:
            one.sendall(b"AMQP\x03\x01\x00\x00")
            return one.recv(4) == b"AMQP"

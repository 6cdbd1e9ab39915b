"""RabbitMQ on this machine: a real broker in any folder, whose durable queues survive that its process is killed.

    python -m scripts.servers.rabbitmq start FOLDER     prints its address
    python -m scripts.servers.rabbitmq stop FOLDER      ends it and keeps its data; start brings it back

The programs are Debian's packages in the user's cache folder: the system's would insist on a user of their own. It
starts in 5 to 60 s, by what else the machine does. Its user is `guest`, whose password is `guest`.
"""

from __future__ import annotations

import signal
import socket
from typing import TYPE_CHECKING

from scripts.broker.servers import LOOPBACK, Servers
from scripts.servers.packages import Unavailable, debian, environment
from scripts.servers.server import Server, run

if TYPE_CHECKING:
    from pathlib import Path

NAMES = "epmd"
SETTINGS = {
    "disk_free_limit.absolute": "50MB",
    "log.file": "false",
    "log.console": "true",
    "max_message_size": "16000000",
}
_HELLO = b"AMQP\x00\x00\x09\x01"
_ERL = """#!/bin/sh
export ROOTDIR="{root}" BINDIR="{bin}" EMU=beam PROGNAME=erl
exec "{bin}/erlexec" "$@"
"""


class RabbitMQ(Server):
    """A broker in a folder, with settings that differ from `SETTINGS` where they are given.

    In order or not: durable queues and persistent messages are kept.
    """

    name, scheme, title = "rabbitmq", "amqp", "RabbitMQ"
    ports = 3
    start_seconds = 240

    def __init__(self, servers: Servers, **settings: str) -> None:
        super().__init__(servers)
        self._settings = SETTINGS | settings

    def url(self, host: str = "", *, login: str = "guest:guest") -> str:
        """Return the address of one of its virtual hosts; `login` is `user:password`."""
        return f"{super().url(login=login)}/{host}"

    def end(self, how: signal.Signals) -> None:
        """End the broker, and the process by which nodes find each other: no other node knows this one."""
        super().end(how)
        self.servers.signal(NAMES, signal.SIGKILL)
        self.servers.await_end(NAMES)

    def launch(self) -> None:
        """Write its settings and start both processes."""
        programs = debian("rabbitmq-server")
        erlang, home = programs / "usr/lib/erlang", self.folder / "home"
        found = [*erlang.glob("erts-*/bin")], [*programs.glob("usr/lib/rabbitmq/lib/rabbitmq_server-*/sbin")]
        if not all(found):
            raise Unavailable("Debian's package rabbitmq-server has no programs of Erlang, or none of RabbitMQ")
        (machine, *_), (scripts, *_) = found
        home.mkdir(exist_ok=True)
        erl = home / "erl"
        erl.write_text(_ERL.format(root=erlang, bin=machine))
        erl.chmod(0o755)
        (self.folder / "enabled_plugins").write_text("[].\n")
        listens = {"listeners.tcp.1": f"{LOOPBACK}:{self.port}"}
        (self.folder / "rabbitmq.conf").write_text(
            "".join(f"{name} = {value}\n" for name, value in (self._settings | listens).items())
        )
        variables = [f"{name}={value}" for name, value in self._environment(programs, home).items()]
        names = ["/usr/bin/env", *variables, str(machine / "epmd"), "-port", str(self.port + 2), "-address", LOOPBACK]
        self.servers.start(NAMES, names)
        self.servers.start(self.name, ["/usr/bin/env", *variables, str(scripts / "rabbitmq-server")])

    def _environment(self, programs: Path, home: Path) -> dict[str, str]:
        found = environment(programs)
        return {
            "PATH": f"{home}:{found['PATH']}",
            "LD_LIBRARY_PATH": found["LD_LIBRARY_PATH"],
            "HOME": str(home),
            "detached": "1",  # the script becomes the broker, so a signal reaches it
            "ERL_EPMD_PORT": str(self.port + 2),
            "ERL_EPMD_ADDRESS": LOOPBACK,
            "RABBITMQ_NODENAME": f"headrace{self.port}@localhost",
            "RABBITMQ_DIST_PORT": str(self.port + 1),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1} +S 2:2",
            "RABBITMQ_MNESIA_BASE": str(self.folder / "data"),
            "RABBITMQ_LOG_BASE": str(self.folder / "log"),
            "RABBITMQ_CONFIG_FILE": str(self.folder / "rabbitmq.conf"),
            "RABBITMQ_CONF_ENV_FILE": "/dev/null",
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self.folder / "enabled_plugins"),
            "RABBITMQ_GENERATED_CONFIG_DIR": str(self.folder / "generated"),
            "RABBITMQ_ADVANCED_CONFIG_FILE": str(self.folder / "advanced.config"),
        }

    def answers(self) -> bool:
        """Whether it begins a connection."""
        with socket.create_connection((LOOPBACK, self.port), timeout=5) as one:
            one.sendall(_HELLO)
            return one.recv(1) == b"\x01"  # a method frame: connection.start


if __name__ == "__main__":
    run(RabbitMQ, program="scripts.servers.rabbitmq", description="RabbitMQ on this machine.")

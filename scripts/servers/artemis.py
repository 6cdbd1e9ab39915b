"""ActiveMQ Artemis on this machine: a real broker in any folder, whose messages survive that its process is killed.

    python -m scripts.servers.artemis start FOLDER     prints its address
    python -m scripts.servers.artemis stop FOLDER      ends it and keeps its data; start brings it back

Its jars are Maven Central's, its main class is its own: no compiler is needed. It starts in a few seconds. One port
speaks STOMP, AMQP 1.0 and its own protocol. Its user is `ada`, whose password is `wonder`. Addresses `closed.…` are
not created by who uses them, and nobody may send to `secret.…`.
"""

from __future__ import annotations

import argparse
import signal
import socket
import sys
import time
from pathlib import Path

from scripts.broker.jars import JAVA_OPTIONS, Unavailable, fetched, java
from scripts.broker.servers import LOOPBACK, NotStarted, Servers, free_ports

VERSION = "2.44.0"
JARS = (
    *(f"org.apache.activemq:artemis-{name}:{VERSION}" for name in ("server", "stomp-protocol", "amqp-protocol")),
    "org.slf4j:slf4j-simple:2.0.17",
)
MAIN = "org.apache.activemq.artemis.core.server.embedded.Main"
START_SECONDS = 240
NAME = "artemis"
_ALL = [
    *("createNonDurableQueue", "deleteNonDurableQueue", "createDurableQueue", "deleteDurableQueue"),
    *("createAddress", "deleteAddress", "consume", "browse", "send"),
]
_SETTINGS = """<configuration xmlns="urn:activemq">
  <core xmlns="urn:activemq:core">
    <name>headrace</name>
    <security-enabled>true</security-enabled>
    <journal-type>NIO</journal-type>
    <journal-min-files>2</journal-min-files>
    <journal-pool-files>2</journal-pool-files>
    <max-disk-usage>100</max-disk-usage>
    <acceptors>
      <acceptor name="all">tcp://{host}:{port}?protocols=CORE,AMQP,STOMP;securityDomain=headrace</acceptor>
    </acceptors>
    <security-settings>
      <security-setting match="#">{all}</security-setting>
      <security-setting match="secret.#"><permission type="send" roles="nobody"/></security-setting>
    </security-settings>
    <address-settings>
      <address-setting match="#">
        <max-delivery-attempts>-1</max-delivery-attempts>
        <redelivery-delay>0</redelivery-delay>
        <auto-delete-queues>false</auto-delete-queues>
        <auto-delete-addresses>false</auto-delete-addresses>
      </address-setting>
      <address-setting match="closed.#">
        <auto-create-queues>false</auto-create-queues>
        <auto-create-addresses>false</auto-create-addresses>
      </address-setting>
    </address-settings>
  </core>
</configuration>
"""
_LOGIN = """headrace {
  org.apache.activemq.artemis.spi.core.security.jaas.PropertiesLoginModule required
    org.apache.activemq.jaas.properties.user="users.properties"
    org.apache.activemq.jaas.properties.role="roles.properties";
};
"""


class Artemis:
    """A broker in a folder."""

    def __init__(self, servers: Servers) -> None:
        self.servers = servers
        self.folder = servers.folder

    @property
    def port(self) -> int:
        """Return the port that the broker has for as long as its folder exists."""
        return int((self.folder / "port").read_text())

    def url(self, *, login: str = "ada:wonder") -> str:
        """Return the address for STOMP; `login` is `user:password`."""
        return f"stomp://{login}@{LOOPBACK}:{self.port}"

    def start(self) -> None:
        """Start it, if it does not run, on the port and data that it had, and return when it answers.

        Raises:
            Unavailable: there is no Java, or the jars cannot be fetched.
            NotStarted: it ended, or does not answer; the text has the end of its log.

        """
        with self.servers.alone():
            if not (self.folder / "port").exists():
                (self.folder / "port").write_text(str(free_ports(1)))
            if not self.servers.alive(NAME):
                self._launch()
            deadline = time.monotonic() + START_SECONDS
            while not self._answers():
                if time.monotonic() > deadline or not self.servers.alive(NAME):
                    raise NotStarted(f"Artemis does not answer: {self.servers.words(NAME)}")
                time.sleep(0.1)

    def stop(self) -> None:
        """End it in order; durable queues and persistent messages are kept."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End it as a process that fails would."""
        self._end(signal.SIGKILL)

    def restart(self) -> None:
        """Kill it and start it again."""
        self.kill()
        self.start()

    def _end(self, how: signal.Signals) -> None:
        self.servers.signal(NAME, how)
        self.servers.await_end(NAME)

    def _launch(self) -> None:
        settings = self.folder / "etc"
        settings.mkdir(exist_ok=True)
        permissions = "".join(f'<permission type="{each}" roles="all"/>' for each in _ALL)
        (settings / "broker.xml").write_text(_SETTINGS.format(host=LOOPBACK, port=self.port, all=permissions))
        (settings / "login.config").write_text(_LOGIN)
        (settings / "users.properties").write_text("ada=wonder\n")
        (settings / "roles.properties").write_text("all=ada\n")
        login = f"-Djava.security.auth.login.config={settings / 'login.config'}"
        options = ["-Xmx400m", *JAVA_OPTIONS, login, "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]
        self.servers.start(NAME, [str(java()), *options, "-cp", f"{fetched(*JARS)}/*", MAIN, str(self.folder)])

    def _answers(self) -> bool:
        try:
            with socket.create_connection((LOOPBACK, self.port), timeout=5) as one:
                one.sendall(b"CONNECT\naccept-version:1.2\nhost:here\nlogin:ada\npasscode:wonder\n\n\0")
                return one.recv(9) == b"CONNECTED"
        except OSError:
            return False


def main() -> None:
    """Do what the command line says."""
    parser = argparse.ArgumentParser(prog="scripts.servers.artemis", description="ActiveMQ Artemis on this machine.")
    parser.add_argument("verb", choices=["start", "stop", "kill"])
    parser.add_argument("folder", type=Path)
    given = parser.parse_args()
    server = Artemis(Servers(given.folder, shared=False))
    if given.verb != "start":
        getattr(server, given.verb)()
        return
    try:
        server.start()
    except (Unavailable, NotStarted) as problem:
        sys.exit(f"error: {problem}")
    print(server.url())


if __name__ == "__main__":
    main()

"""ActiveMQ Artemis on this machine: a real broker in any folder, whose messages survive that its process is killed.

    python -m scripts.servers.artemis start FOLDER     prints its address
    python -m scripts.servers.artemis stop FOLDER      ends it and keeps its data; start brings it back

Its jars are Maven Central's, its main class is its own: no compiler is needed. It starts in a few seconds. One port
speaks STOMP, AMQP 1.0 and its own protocol. Its user is `ada`, whose password is `wonder`. Addresses `closed.…` are
not created by who uses them, and nobody may send to `secret.…`.
"""

from __future__ import annotations

import socket

from scripts.broker.jars import JAVA_OPTIONS, fetched, java
from scripts.broker.servers import LOOPBACK
from scripts.servers.server import Server, run

VERSION = "2.44.0"
JARS = (
    *(f"org.apache.activemq:artemis-{name}:{VERSION}" for name in ("server", "stomp-protocol", "amqp-protocol")),
    "org.slf4j:slf4j-simple:2.0.17",
)
MAIN = "org.apache.activemq.artemis.core.server.embedded.Main"
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


class Artemis(Server):
    """A broker in a folder. In order or not: durable queues and persistent messages are kept."""

    name, scheme, title = "artemis", "stomp", "Artemis"
    start_seconds = 240

    def url(self, *, login: str = "ada:wonder") -> str:
        """Return the address for STOMP; `login` is `user:password`."""
        return super().url(login=login)

    def command(self) -> list[str]:
        """Write its settings and return the command."""
        settings = self.folder / "etc"
        settings.mkdir(exist_ok=True)
        permissions = "".join(f'<permission type="{each}" roles="all"/>' for each in _ALL)
        (settings / "broker.xml").write_text(_SETTINGS.format(host=LOOPBACK, port=self.port, all=permissions))
        (settings / "login.config").write_text(_LOGIN)
        (settings / "users.properties").write_text("ada=wonder\n")
        (settings / "roles.properties").write_text("all=ada\n")
        login = f"-Djava.security.auth.login.config={settings / 'login.config'}"
        options = ["-Xmx400m", *JAVA_OPTIONS, login, "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]
        return [str(java()), *options, "-cp", f"{fetched(*JARS)}/*", MAIN, str(self.folder)]

    def answers(self) -> bool:
        """Whether it lets its user in."""
        with socket.create_connection((LOOPBACK, self.port), timeout=5) as one:
            one.sendall(b"CONNECT\naccept-version:1.2\nhost:here\nlogin:ada\npasscode:wonder\n\n\0")
            return one.recv(9) == b"CONNECTED"


if __name__ == "__main__":
    run(Artemis, program="scripts.servers.artemis", description="ActiveMQ Artemis on this machine.")

"""Kafka on this machine: one broker or several, from Maven Central's jars, in any folder and on free ports.

Each broker is a controller, too. It listens on three ports of 127.0.0.1: in plain text, where everybody may do
everything; with SASL/PLAIN (users ada, who may do everything, and eve, who may do nothing); and with TLS.
"""

from __future__ import annotations

import base64
import datetime as dt
import ipaddress
import json
import signal
import subprocess
import time
import uuid
from urllib.parse import quote

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from scripts.broker.jars import JAVA_OPTIONS, fetched, java
from scripts.broker.servers import LOOPBACK, NotStarted, Servers, free_ports
from scripts.processes import is_stopped

VERSION = "4.1.0"
JARS = (
    f"org.apache.kafka:kafka_2.13:{VERSION}",
    f"org.apache.kafka:kafka-tools:{VERSION}",
    "org.apache.logging.log4j:log4j-slf4j-impl:2.25.4",  # for the slf4j 1.7 that Kafka has; the one for 2 logs nothing
)
PASSWORDS = {"ada": "lovelace", "eve": "dropper"}
START_SECONDS = 120
HEAP = "-Xmx400m"
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required;"  # users are made by who wants one
_PORTS_EACH = 4  # plain, controller, SASL, TLS
_LOGGING = """\
Configuration:
  Appenders: { Console: { name: C, PatternLayout: { pattern: "%d %p %c{1}: %m%n" } } }
  Loggers:
    Root: { level: WARN, AppenderRef: { ref: C } }
    Logger: { name: kafka.server.KafkaRaftServer, level: INFO }
"""
_EVERY_BROKER = """\
process.roles=broker,controller
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAIN
listener.security.protocol.map=PLAIN:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL:SASL_PLAINTEXT,TLS:SSL
listener.name.sasl.sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512
listener.name.tls.ssl.keystore.type=PEM
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:ANONYMOUS;User:ada
auto.create.topics.enable=false
num.network.threads=2
num.io.threads=4
offsets.topic.num.partitions=3
transaction.state.log.num.partitions=3
share.coordinator.state.topic.num.partitions=1
group.initial.rebalance.delay.ms=0
transaction.abort.timed.out.transaction.cleanup.interval.ms=500
broker.session.timeout.ms=3000
broker.heartbeat.interval.ms=500
log.cleaner.backoff.ms=500
log.retention.check.interval.ms=1000
"""


class Kafka:
    """A cluster of one broker or several in a folder; brokers count from 1."""

    def __init__(self, servers: Servers, *, brokers: int = 1, port: int | None = None) -> None:
        """Use a folder's servers; a new cluster has the ports from `port` on if they are free, else any."""
        self.servers = servers
        self.folder = servers.folder
        self.brokers = range(1, brokers + 1)
        self._port = port

    @property
    def bootstrap(self) -> str:
        """Return `host:port` of every broker, in plain text."""
        return self._servers(0)

    @property
    def address(self) -> str:
        """Return the address for Headrace."""
        return f"kafka://{self.bootstrap}"

    @property
    def tls_address(self) -> str:
        """Return the address of the listeners with TLS."""
        authority = quote(str(self.folder / "tls.pem"), safe="/")
        return f"kafka://{self._servers(3)}?security.protocol=SSL&ssl.ca.location={authority}"

    def sasl_address(self, user: str = "ada", password: str | None = None) -> str:
        """Return the address of the listeners with SASL/PLAIN for a user, with the right password or the one given."""
        login = f"sasl.username={user}&sasl.password={PASSWORDS[user] if password is None else password}"
        return f"kafka://{self._servers(2)}?security.protocol=SASL_PLAINTEXT&sasl.mechanism=PLAIN&{login}"

    def start(self) -> None:
        """Start every broker that does not run, and return when all answer.

        Raises:
            Unavailable: there is no Java, or Kafka's jars cannot be had.
            NotStarted: a broker ended, or does not answer; the text has the end of its log.

        """
        with self.servers.alone():
            if all(self.servers.alive(_name(broker)) for broker in self.brokers):
                self._await(*self.brokers)
                return
            if not (self.folder / "cluster.json").exists():
                self._format()
            for broker in self.brokers:
                self._launch(broker)
            self._await(*self.brokers)

    def stop(self) -> None:
        """End every broker in order, and keep the data."""
        for broker in self.brokers:
            self.resume(broker)
            self.servers.signal(_name(broker), signal.SIGTERM)
        for broker in self.brokers:
            self.servers.await_end(_name(broker))

    def kill(self, broker: int = 1) -> None:
        """Kill a broker as `kill -9` does, and return when it is gone."""
        self.servers.signal(_name(broker), signal.SIGKILL)
        self.servers.await_end(_name(broker))

    def restart(self, broker: int = 1) -> None:
        """Start a broker that was killed, on its old port and data, and return when it answers."""
        with self.servers.alone():
            self._launch(broker)
            self._await(broker)

    def pause(self, broker: int = 1) -> None:
        """Stop a broker's process without ending it: it keeps its connections and answers nothing, from now on."""
        self.servers.signal(_name(broker), signal.SIGSTOP)
        while self.servers.alive(_name(broker)) and not is_stopped(self.servers.process(_name(broker))):
            time.sleep(0.01)  # a signal takes its time where the processors are busy

    def resume(self, broker: int = 1) -> None:
        """Let a paused broker go on."""
        self.servers.signal(_name(broker), signal.SIGCONT)

    def heal(self) -> None:
        """Let paused brokers go on, and start those that are down."""
        for broker in self.brokers:
            self.resume(broker)
        self.start()

    def tool(self, main: str, *arguments: str, seconds: float = 60) -> str:
        """Run one of Kafka's own tools by its main class, and return what it printed.

        For example `tool("org.apache.kafka.tools.consumer.ConsoleConsumer", "--bootstrap-server", kafka.bootstrap, …)`.
        """
        run = subprocess.run(
            self._java(main, *arguments), cwd=self.folder, capture_output=True, text=True, timeout=seconds, check=False
        )
        if run.returncode:
            raise RuntimeError(f"{main} ended with {run.returncode}: {run.stdout}{run.stderr}")
        return run.stdout

    def _servers(self, offset: int) -> str:
        ports = json.loads((self.folder / "cluster.json").read_text())["ports"]
        return ",".join(f"{LOOPBACK}:{ports[str(broker)] + offset}" for broker in self.brokers)

    def _java(self, main: str, *arguments: str) -> list[str]:
        logging = f"-Dlog4j2.configurationFile={self.folder / 'logging.yaml'}"
        return [str(java()), HEAP, *JAVA_OPTIONS, logging, "-cp", f"{fetched(*JARS)}/*", main, *arguments]

    def _format(self) -> None:
        cluster = "h" + base64.urlsafe_b64encode(uuid.uuid4().bytes).decode()[1:].rstrip("=")  # "-…" were an option
        first = free_ports(_PORTS_EACH * len(self.brokers), wanted=self._port)
        ports = {broker: first + _PORTS_EACH * (broker - 1) for broker in self.brokers}
        (self.folder / "logging.yaml").write_text(_LOGGING)
        (self.folder / "tls.pem").write_bytes(_certificate())
        voters = ",".join(f"{broker}@{LOOPBACK}:{port + 1}" for broker, port in ports.items())
        formats = []
        for broker, port in ports.items():
            settings = self.folder / f"{_name(broker)}.properties"
            settings.write_text(self._settings(broker, port, voters))
            tool = self._java("kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(settings))
            formats.append(subprocess.Popen(tool, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
        for each in formats:
            said, _ = each.communicate(timeout=START_SECONDS)
            if each.returncode:
                raise NotStarted(f"Kafka did not format its folder: {said}")
        (self.folder / "cluster.json").write_text(json.dumps({"id": cluster, "ports": ports}))

    def _settings(self, broker: int, port: int, voters: str) -> str:
        copies = len(self.brokers)
        users = " ".join(f'user_{user}="{password}"' for user, password in PASSWORDS.items())
        login = f"org.apache.kafka.common.security.plain.PlainLoginModule required {users};"
        listeners = {"PLAIN": port, "CONTROLLER": port + 1, "SASL": port + 2, "TLS": port + 3}
        own = {
            "node.id": broker,
            "controller.quorum.voters": voters,
            "listeners": ",".join(f"{name}://{LOOPBACK}:{at}" for name, at in listeners.items()),
            "listener.name.sasl.plain.sasl.jaas.config": login,
            "listener.name.sasl.scram-sha-512.sasl.jaas.config": _SCRAM,
            "listener.name.sasl.scram-sha-256.sasl.jaas.config": _SCRAM,
            "listener.name.tls.ssl.keystore.location": self.folder / "tls.pem",
            "log.dirs": self.folder / _name(broker),
            "default.replication.factor": copies,
            "min.insync.replicas": max(1, copies - 1),
            "offsets.topic.replication.factor": copies,
            "transaction.state.log.replication.factor": copies,
            "transaction.state.log.min.isr": max(1, copies - 1),
            "share.coordinator.state.topic.replication.factor": copies,
            "share.coordinator.state.topic.min.isr": max(1, copies - 1),
        }
        return _EVERY_BROKER + "".join(f"{name}={value}\n" for name, value in own.items())

    def _launch(self, broker: int) -> None:
        name = _name(broker)
        self.servers.start(name, self._java("kafka.Kafka", str(self.folder / f"{name}.properties")))

    def _await(self, *brokers: int) -> None:
        """Return when each of the brokers serves: the cluster names it as one that is up."""
        end = time.monotonic() + START_SECONDS
        for broker in brokers:
            at = self.bootstrap.split(",")[broker - 1]
            client = AdminClient({"bootstrap.servers": at, "log_level": 0, "reconnect.backoff.max.ms": 200})
            while not self._serves(client, broker):
                if not self.servers.alive(_name(broker)) or time.monotonic() > end:
                    raise NotStarted(f"broker {broker} does not answer: {self.servers.words(_name(broker))}")

    def _serves(self, client: AdminClient, broker: int) -> bool:
        try:
            return broker in client.list_topics(timeout=1).brokers
        except KafkaException:
            time.sleep(0.05)
            return False


def _name(broker: int) -> str:
    return f"broker{broker}"


def _certificate() -> bytes:
    """Return a key and a certificate that signs itself, for this machine, as PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Headrace's broker for tests")])
    start = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)
    places = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address(LOOPBACK))]
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(start + dt.timedelta(days=36500))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName(places), critical=False)
        .sign(key, hashes.SHA256())
    )
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return secret + certificate.public_bytes(serialization.Encoding.PEM)

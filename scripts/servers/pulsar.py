"""Apache Pulsar on this machine: broker, BookKeeper and metadata in one process, whose data survive that it is killed.

    python -m scripts.servers.pulsar start FOLDER     prints its address
    python -m scripts.servers.pulsar stop FOLDER      ends it and keeps its data; start brings it back

Its jars are Maven Central's: some 200 MB, once. Metadata are in RocksDB, so there is no ZooKeeper. The namespace
`public/once` drops duplicates, and `public/closed` creates no topic by itself. Who does not log in may do everything;
`ada`, whose password is `wonder`, may only use `public/default`; who logs in with anything else is refused.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from contextlib import suppress
from typing import TYPE_CHECKING

from scripts.broker.jars import JAVA_OPTIONS, fetched, java
from scripts.broker.servers import LOOPBACK
from scripts.servers.server import Server, run

if TYPE_CHECKING:
    from collections.abc import Mapping

VERSION = "4.0.7"
JARS = (
    f"org.apache.pulsar:pulsar-broker:{VERSION}",
    *(f"org.apache.bookkeeper:{name}:4.17.2@jar" for name in ("circe-checksum", "native-io", "cpu-affinity")),
)
MAIN = "org.apache.pulsar.PulsarStandaloneStarter"
_OPENED = ("sun.net", "java.lang", "java.io", "java.nio", "java.util.zip", "jdk.internal.platform", "jdk.internal.misc")
_ADA = "ada:$apr1$headrace$TTvXhTcnYvMhkkgQF8.M./\n"
_SETTINGS = {
    "clusterName": "standalone",
    "bindAddress": LOOPBACK,
    "allowLoopback": "true",
    "managedLedgerDefaultEnsembleSize": "1",
    "managedLedgerDefaultWriteQuorum": "1",
    "managedLedgerDefaultAckQuorum": "1",
    "managedLedgerCacheSizeMB": "16",
    "brokerDeleteInactiveTopicsEnabled": "false",
    "systemTopicEnabled": "false",
    "topicLevelPoliciesEnabled": "false",
    "loadBalancerEnabled": "false",
    "authenticationEnabled": "true",
    "authenticationProviders": ",".join(
        f"org.apache.pulsar.broker.authentication.AuthenticationProvider{each}" for each in ("Token", "Basic")
    ),
    "authorizationEnabled": "true",
    "anonymousUserRole": "anybody",
    "superUserRoles": "anybody",
    "diskUsageThreshold": "0.99999",
    "diskUsageWarnThreshold": "0.9999",
    "nettyMaxFrameSizeBytes": "5253120",  # of BookKeeper: a message of 5 MB fits
    "journalMaxSizeMB": "64",
    "journalPreAllocSizeMB": "4",
    "journalWriteBufferSizeKB": "1024",
    "numIOThreads": "2",
    "numHttpServerThreads": "4",
    "numOrderedExecutorThreads": "2",
    "ledgerStorageClass": "org.apache.bookkeeper.bookie.SortedLedgerStorage",
}
_NAMESPACES: Mapping[str, Mapping[str, object]] = {
    "default": {"permissions/ada": ["produce", "consume"]},
    "once": {"deduplication": True},
    "closed": {"autoTopicCreation": {"allowAutoTopicCreation": False}},
}


class Pulsar(Server):
    """A standalone Pulsar; the port after its own is that of its administration, over HTTP.

    Clients with `listener=gate` are sent to the ports `gate` and, with TLS, `gate + 1`, where somebody may listen.
    """

    name, scheme, title, ports = "pulsar", "pulsar", "Pulsar", 5
    start_seconds = 300

    def command(self) -> list[str]:
        """Write its settings and return the command."""
        settings, passwords, key = (self.folder / each for each in ("standalone.conf", "passwords", "token.key"))
        passwords.write_text(_ADA)
        key.write_bytes(bytes(32))  # of tokens, which nobody has
        gates = f"gate:pulsar://{LOOPBACK}:{self.gate},gate:pulsar+ssl://localhost:{self.gate + 1}"
        own = {
            "advertisedListeners": f"own:pulsar://{LOOPBACK}:{self.port},{gates}",
            "internalListenerName": "own",
            "brokerServicePort": str(self.port),
            "webServicePort": str(self.port + 1),
            "basicAuthConf": f"file://{passwords}",
            "tokenSecretKey": f"file://{key}",
        }
        settings.write_text("".join(f"{name}={value}\n" for name, value in {**_SETTINGS, **own}.items()))
        opened = [f"--add-opens=java.base/{each}=ALL-UNNAMED" for each in _OPENED]
        memory = ["-Xmx400m", "-XX:MaxDirectMemorySize=400m", "-Dio.netty.tryReflectionSetAccessible=true"]
        options = [*memory, *JAVA_OPTIONS, *opened, "-Dorg.apache.logging.log4j.level=WARN"]
        places = ["--metadata-dir", str(self.folder / "metadata"), "--bookkeeper-dir", str(self.folder / "bookkeeper")]
        ports = ["--bookkeeper-port", str(self.port + 2)]
        without = ["--no-functions-worker", "--no-stream-storage"]
        return [
            *[str(java()), *options, "-cp", f"{fetched(*JARS)}/*", MAIN],
            *["--config", str(settings), *places, *ports, *without],
        ]

    @property
    def gate(self) -> int:
        """The first of two ports to which clients with `listener=gate` are sent."""
        return self.port + 3

    def start(self) -> None:
        """Start it, and make its namespaces."""
        super().start()
        for name, policies in _NAMESPACES.items():
            with suppress(urllib.error.HTTPError):  # it is there
                self.ask("PUT", f"namespaces/public/{name}", {})
            for path, policy in policies.items():
                self.ask("POST", f"namespaces/public/{name}/{path}", policy)

    def answers(self) -> bool:
        """Whether its namespaces are there, which are made when it is new."""
        try:
            self.ask("GET", "namespaces/public/default")
        except urllib.error.HTTPError:
            return False
        return True

    def ask(self, method: str, path: str, body: object = None) -> object:
        """Return what the administration answers.

        Raises:
            HTTPError: it refuses.

        """
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            f"http://{LOOPBACK}:{self.port + 1}/admin/v2/{path}",
            data=data,
            method=method,
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310 -- the same
            said = answer.read()
        return json.loads(said) if said else None


if __name__ == "__main__":
    run(Pulsar, program="scripts.servers.pulsar", description="Apache Pulsar on this machine.")

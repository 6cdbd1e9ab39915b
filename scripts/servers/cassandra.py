"""Cassandra on this machine: one real node in any folder, whose data survive that its process is killed.

    python -m scripts.servers.cassandra start FOLDER     prints its address
    python -m scripts.servers.cassandra stop FOLDER      ends it and keeps its data; start brings it back

Its jars come from Maven Central, once: 60 MB. It starts in 20 s to some minutes, by what else the machine does.
"""

from __future__ import annotations

import socket
import struct
from typing import TYPE_CHECKING

from scripts.broker.jars import JAVA_OPTIONS, fetched, java
from scripts.broker.servers import LOOPBACK
from scripts.servers.server import Server, run

if TYPE_CHECKING:
    from pathlib import Path

JARS = "org.apache.cassandra:cassandra-all:5.0.5"
_OPENED = (
    *("io", "nio", "lang", "lang.ref", "util", "util.concurrent", "util.concurrent.atomic", "net", "math"),
    *("lang.reflect", "lang.module"),
)
_INTERNAL = (
    *("jdk.internal.misc", "jdk.internal.ref", "jdk.internal.math", "jdk.internal.module", "jdk.internal.util.jar"),
    *("jdk.internal.loader", "jdk.internal.reflect", "sun.nio.ch"),
)
_EXPORTED = (
    "java.management.rmi/com.sun.jmx.remote.internal.rmi",
    "java.rmi/sun.rmi.registry",
    "java.rmi/sun.rmi.server",
    "java.rmi/sun.rmi.transport.tcp",
    "java.sql/java.sql",
    "jdk.unsupported/sun.misc",
)
_LOG = """<configuration><appender name="C" class="ch.qos.logback.core.ConsoleAppender"><encoder>
<pattern>%date %level %logger{0} %msg%n</pattern></encoder></appender>
<logger name="ROOT" level="WARN"><appender-ref ref="C"/></logger></configuration>
"""
_OPTIONS = struct.pack(">BBhBi", 4, 0, 0, 5, 0)
"""A frame of its protocol that any node answers."""


class Cassandra(Server):
    """A node in a folder. In order or not: data are kept."""

    name, scheme, title = "cassandra", "cassandra", "Cassandra"
    ports = 3
    start_seconds = 400

    def url(self, keyspace: str = "KEYSPACE") -> str:  # type: ignore[override] # it has no users
        """Return the address of a keyspace."""
        return f"{super().url()}/{keyspace}"

    def command(self) -> list[str]:
        """Write its settings and return the command."""
        jars, data, conf = fetched(JARS), self.folder / "data", self.folder / "conf"
        conf.mkdir(exist_ok=True)
        (conf / "logback.xml").write_text(_LOG)
        (conf / "cassandra.yaml").write_text(self._settings(data))
        opened = [f"java.base/java.{each}" for each in _OPENED] + [f"java.base/{each}" for each in _INTERNAL]
        opened.append("jdk.management/com.sun.management.internal")
        flags = [part for each in opened for part in ("--add-opens", f"{each}=ALL-UNNAMED")]
        flags += [part for each in (*opened, *_EXPORTED) for part in ("--add-exports", f"{each}=ALL-UNNAMED")]
        defined = {
            "cassandra.config": f"file://{conf}/cassandra.yaml",
            "cassandra.storagedir": str(data),
            "cassandra-foreground": "true",
            "cassandra.skip_wait_for_gossip_to_settle": "0",
            "cassandra.ring_delay_ms": "1",
            "cassandra.superuser_setup_delay_ms": "0",
            "jdk.attach.allowAttachSelf": "true",
            "io.netty.tryReflectionSetAccessible": "true",
        }
        memory = ["-Xmx1g", "-Xms256m", *JAVA_OPTIONS]
        settings = [f"-D{name}={value}" for name, value in defined.items()]
        main = ["-cp", f"{conf}:{jars}/*", "org.apache.cassandra.service.CassandraDaemon"]
        return [str(java(11)), *memory, *flags, *settings, *main]

    def _settings(self, data: Path) -> str:
        seed = f"{LOOPBACK}:{self.port + 1}"
        return f"""cluster_name: headrace
num_tokens: 1
partitioner: org.apache.cassandra.dht.Murmur3Partitioner
commitlog_sync: batch
commitlog_directory: {data}/commitlog
data_file_directories: [{data}/data]
saved_caches_directory: {data}/saved_caches
hints_directory: {data}/hints
cdc_raw_directory: {data}/cdc_raw
endpoint_snitch: SimpleSnitch
listen_address: {LOOPBACK}
storage_port: {self.port + 1}
ssl_storage_port: {self.port + 2}
rpc_address: {LOOPBACK}
native_transport_port: {self.port}
start_native_transport: true
seed_provider: [{{class_name: org.apache.cassandra.locator.SimpleSeedProvider, parameters: [{{seeds: "{seed}"}}]}}]
auto_snapshot: false
"""

    def answers(self) -> bool:
        """Whether it speaks its protocol."""
        with socket.create_connection((LOOPBACK, self.port), timeout=5) as one:
            one.sendall(_OPTIONS)
            return bool(one.recv(1))


if __name__ == "__main__":
    run(Cassandra, program="scripts.servers.cassandra", description="Cassandra on this machine.")

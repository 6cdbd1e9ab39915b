"""OpenSearch on this machine: one real node in any folder, whose data survive that its process is killed.

    python -m scripts.servers.opensearch start FOLDER     prints its address
    python -m scripts.servers.opensearch stop FOLDER      ends it and keeps its data; start brings it back

Its jars come from Maven Central, once: 45 MB. It needs a JDK of 17 or later, and starts in some 10 s.
"""

from __future__ import annotations

import http.client
import os
import shutil
from contextlib import closing, suppress
from pathlib import Path

from scripts.broker.jars import JAVA_OPTIONS, Unavailable, fetched
from scripts.broker.servers import LOOPBACK
from scripts.servers.server import Server, run

from headrace.engine.spark.java import java_version

OLDEST_JAVA = 17
JARS = (
    "org.opensearch:opensearch:2.19.0",
    "org.opensearch.plugin:transport-netty4-client:2.19.0",
    "org.apache.logging.log4j:log4j-core:2.21.0",
)
SOURCE = Path(__file__).with_name("OpenSearchNode.java")
_LOG = """appender.c.type = Console
appender.c.name = C
appender.c.layout.type = PatternLayout
appender.c.layout.pattern = %d %p %c{1} %m%n
rootLogger.level = ERROR
rootLogger.appenderRef.c.ref = C
"""


class OpenSearch(Server):
    """A node in a folder. In order or not: data are kept."""

    name, scheme, title = "opensearch", "http", "OpenSearch"
    ports = 2
    start_seconds = 300

    def command(self) -> list[str]:
        """Write its settings and return the command."""
        program, jars = _jdk(), fetched(*JARS)
        for name in ("data", "logs", "config", "modules", "plugins"):
            (self.folder / name).mkdir(exist_ok=True)
        (self.folder / "log4j2.properties").write_text(_LOG)
        settings = {
            "path.home": self.folder,
            "cluster.name": "headrace",
            "node.name": "one",
            "discovery.type": "single-node",
            "http.host": LOOPBACK,
            "http.port": self.port,
            "http.type": "netty4",
            "transport.host": LOOPBACK,
            "transport.port": self.port + 1,
            "transport.type": "netty4",
            "cluster.routing.allocation.disk.threshold_enabled": "false",
            "node.store.allow_mmap": "false",
            "node.processors": 2,
        }
        memory = ["-Xmx512m", *JAVA_OPTIONS]
        log = [f"-Dlog4j2.configurationFile={self.folder / 'log4j2.properties'}", "-Dlog4j2.disable.jmx=true"]
        command = [str(program), *memory, *log, "-cp", f"{jars}/*", str(SOURCE)]
        return [*command, *(f"{name}={value}" for name, value in settings.items())]

    def answers(self) -> bool:
        """Whether its data can be used."""
        with suppress(http.client.HTTPException), closing(self._asked()) as asked:
            asked.request("GET", "/_cluster/health?wait_for_status=yellow&timeout=5s")
            return asked.getresponse().status == http.client.OK
        return False

    def _asked(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(LOOPBACK, self.port, timeout=10)


def _jdk() -> Path:
    """Return a Java that compiles the node's source when it starts it."""
    home = os.environ.get("JAVA_HOME")
    compiler = shutil.which("javac", path=f"{home}/bin" if home else None) or shutil.which("javac")
    program = Path(compiler).resolve().with_name("java") if compiler else None
    if program is None or (java_version(program) or 0) < OLDEST_JAVA:
        raise Unavailable(f"a JDK of {OLDEST_JAVA} or later is needed, and there is no javac")
    return program


if __name__ == "__main__":
    run(OpenSearch, program="scripts.servers.opensearch", description="OpenSearch on this machine.")

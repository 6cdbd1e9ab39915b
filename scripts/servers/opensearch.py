"""OpenSearch on this machine: one real node in any folder, whose data survive that its process is killed.

    python -m scripts.servers.opensearch start FOLDER     prints its address
    python -m scripts.servers.opensearch stop FOLDER      ends it and keeps its data; start brings it back

Its jars come from Maven Central, once: 45 MB. It needs a JDK of 17 or later, and starts in some 10 s.
"""

from __future__ import annotations

import argparse
import http.client
import os
import shutil
import signal
import sys
import time
from contextlib import closing
from pathlib import Path

from scripts.broker.jars import Unavailable, fetched
from scripts.broker.servers import LOOPBACK, NotStarted, Servers, free_ports

from headrace.engine.spark.java import java_version

START_SECONDS = 300
OLDEST_JAVA = 17
NAME = "opensearch"
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


class OpenSearch:
    """A node in a folder."""

    def __init__(self, servers: Servers) -> None:
        self.servers = servers
        self.folder = servers.folder

    @property
    def port(self) -> int:
        """Return the port that the node has for as long as its folder exists."""
        return int((self.folder / "port").read_text())

    def url(self) -> str:
        """Return its address."""
        return f"http://{LOOPBACK}:{self.port}"

    def start(self) -> None:
        """Start it, if it does not run, on the port and data that it had, and return when it answers.

        Raises:
            Unavailable: there is no JDK, or no way to get the jars.
            NotStarted: it ended, or does not answer; the text has the end of its log.

        """
        with self.servers.alone():
            if not (self.folder / "port").exists():
                (self.folder / "port").write_text(str(free_ports(2)))
            deadline = time.monotonic() + START_SECONDS
            if not self.servers.alive(NAME):
                self._launch()
            while not self._answers():
                if time.monotonic() > deadline or not self.servers.alive(NAME):
                    raise NotStarted(f"OpenSearch does not answer: {self.servers.words(NAME)}")
                time.sleep(0.2)

    def stop(self) -> None:
        """End it in order; data are kept."""
        self.servers.signal(NAME, signal.SIGTERM)
        self.servers.await_end(NAME)

    def kill(self) -> None:
        """End it as a process that fails would."""
        self.servers.signal(NAME, signal.SIGKILL)
        self.servers.await_end(NAME)

    def _launch(self) -> None:
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
        memory = ["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        log = [f"-Dlog4j2.configurationFile={self.folder / 'log4j2.properties'}", "-Dlog4j2.disable.jmx=true"]
        command = [str(program), *memory, *log, "-cp", f"{jars}/*", str(SOURCE)]
        self.servers.start(NAME, [*command, *(f"{name}={value}" for name, value in settings.items())])

    def _answers(self) -> bool:
        try:
            with closing(http.client.HTTPConnection(LOOPBACK, self.port, timeout=10)) as asked:
                asked.request("GET", "/_cluster/health?wait_for_status=yellow&timeout=5s")
                return asked.getresponse().status == http.client.OK
        except (OSError, http.client.HTTPException):
            return False


def _jdk() -> Path:
    """Return a Java that compiles the node's source when it starts it."""
    home = os.environ.get("JAVA_HOME")
    compiler = shutil.which("javac", path=f"{home}/bin" if home else None) or shutil.which("javac")
    program = Path(compiler).resolve().with_name("java") if compiler else None
    if program is None or (java_version(program) or 0) < OLDEST_JAVA:
        raise Unavailable(f"a JDK of {OLDEST_JAVA} or later is needed, and there is no javac")
    return program


def main() -> None:
    """Do what the command line says."""
    parser = argparse.ArgumentParser(prog="scripts.servers.opensearch", description="OpenSearch on this machine.")
    parser.add_argument("verb", choices=["start", "stop", "kill"])
    parser.add_argument("folder", type=Path)
    given = parser.parse_args()
    server = OpenSearch(Servers(given.folder, shared=False))
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

"""A schema registry on this machine: Apicurio's, which speaks Confluent's API, from Maven Central. In memory."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING
from urllib.error import URLError
from urllib.request import urlopen

from scripts.broker.jars import JAVA_OPTIONS, java, unpacked
from scripts.broker.servers import LOOPBACK, NotStarted, Servers, free_ports

if TYPE_CHECKING:
    from pathlib import Path

COORDINATES = "io.apicurio:apicurio-registry-app:3.3.3"
START_SECONDS = 120
_JAVA = 21
_NAME = "registry"


class Registry:
    """A registry in a folder."""

    def __init__(self, servers: Servers) -> None:
        self.servers = servers
        self._made: Path = servers.folder / "registry.json"

    @property
    def url(self) -> str:
        """Return the address of Confluent's API, version 7."""
        return f"http://{LOOPBACK}:{json.loads(self._made.read_text())['port']}/apis/ccompat/v7"

    def start(self) -> None:
        """Start the registry if it does not run, and return when it answers.

        Raises:
            Unavailable: there is no Java, or the registry cannot be had.
            NotStarted: it ended, or does not answer; the text has the end of its log.

        """
        program, runtime = unpacked(COORDINATES, "all") / "quarkus-run.jar", java(_JAVA)
        with self.servers.alone():
            if not self._made.exists():
                self._made.write_text(json.dumps({"port": free_ports(2)}))
            port = json.loads(self._made.read_text())["port"]
            place = [f"-Dquarkus.{part}={at}" for part, at in _places(port)]
            self.servers.start(_NAME, [str(runtime), "-Xmx400m", *JAVA_OPTIONS, *place, "-jar", str(program)])
            end = time.monotonic() + START_SECONDS
            while not self._answers():
                if not self.servers.alive(_NAME) or time.monotonic() > end:
                    raise NotStarted(f"the registry does not answer: {self.servers.words(_NAME)}")
                time.sleep(0.1)

    def _answers(self) -> bool:
        try:
            with urlopen(f"{self.url}/subjects", timeout=5) as answer:  # noqa: S310 - our own address
                return bool(answer.status == 200)
        except (URLError, OSError):
            return False


def _places(port: int) -> list[tuple[str, object]]:
    """Return where the registry listens: Quarkus' management too, whose port is else the same for all on a machine."""
    hosts: list[tuple[str, object]] = [("http.host", LOOPBACK), ("management.host", LOOPBACK)]
    return [*hosts, ("http.port", port), ("management.port", port + 1)]

"""Amazon Kinesis on this machine, as two servers play it; no real one can be had.

    python -m scripts.servers.kinesis start FOLDER     prints its address
    python -m scripts.servers.kinesis stop FOLDER      ends it and keeps its data; start brings it back

`Kinesalite` (of npm) keeps its data over a restart and refuses records that are too large, as Amazon does; it needs
node. `Moto` (of PyPI) forgets everything when it ends.
"""

from __future__ import annotations

import sys

from scripts.broker.servers import LOOPBACK
from scripts.servers.npm import modules, node
from scripts.servers.server import Server, run

KINESALITE = "kinesalite@3.3.3"
_SERVE = """
// Kinesalite throws when a client goes away in the middle of a request; Amazon goes on.
process.on('uncaughtException', problem => { if (problem.code !== 'ECONNRESET') throw problem })
const [modules, path, port, shards] = process.argv.slice(2)
const kinesalite = require(modules + '/kinesalite')
const options = { path, createStreamMs: 20, deleteStreamMs: 20, updateStreamMs: 20, shardLimit: Number(shards) }
kinesalite(options).listen(Number(port), '127.0.0.1')
"""


class Kinesalite(Server):
    """Kinesalite, with its data in the folder."""

    name, scheme = "kinesis", "http"

    def command(self) -> list[str]:
        """Return the command: its own program would listen on every address."""
        (self.folder / "serve.js").write_text(_SERVE)
        return [
            node(),
            str(self.folder / "serve.js"),
            str(modules(KINESALITE)),
            str(self.folder / "data"),
            str(self.port),
            "100",
        ]


class Moto(Server):
    """Moto's server, which plays other services of Amazon, too; it keeps nothing."""

    name, scheme = "moto", "http"

    def command(self) -> list[str]:
        """Return the command."""
        return [sys.executable, "-m", "moto.server", "-H", LOOPBACK, "-p", str(self.port)]


if __name__ == "__main__":
    run(Kinesalite, program="scripts.servers.kinesis", description="A server that plays Amazon Kinesis.")

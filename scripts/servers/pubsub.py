"""Google Cloud Pub/Sub on this machine, as Google's own fake for its tests of Go plays it; no real one can be had.

    python -m scripts.servers.pubsub start FOLDER     prints its address: host:port
    python -m scripts.servers.pubsub stop FOLDER      ends it; it keeps nothing

Go builds the program from its module proxy, once, in the user's cache folder.
"""

from __future__ import annotations

from scripts.broker.servers import LOOPBACK
from scripts.servers.gobuilt import built
from scripts.servers.server import Server, run

_MODULE = """module headrace/pubsub

go 1.26.0

require cloud.google.com/go/pubsub/v2 v2.8.1
"""
_PROGRAM = """package main

import (
	"os"
	"strconv"

	"cloud.google.com/go/pubsub/v2/pstest"
)

func main() {
	port, err := strconv.Atoi(os.Args[1])
	if err != nil {
		panic(err)
	}
	pstest.NewServerWithPort(port)
	select {}
}
"""


class PubSub(Server):
    """The fake: it ends with all that it has."""

    name, scheme = "pubsub", "pubsub"

    def command(self) -> list[str]:
        """Return the command."""
        return [str(built("pubsub-fake", program=_PROGRAM, module=_MODULE)), str(self.port)]

    def url(self, *, login: str = "") -> str:
        """Return its host and port."""
        del login
        return f"{LOOPBACK}:{self.port}"


if __name__ == "__main__":
    run(PubSub, program="scripts.servers.pubsub", description="Google's fake of Pub/Sub on this machine.")

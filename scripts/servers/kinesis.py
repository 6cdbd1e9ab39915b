"""Amazon Kinesis on this machine, as two servers play it; no real one can be had.

    python -m scripts.servers.kinesis start FOLDER     prints its address
    python -m scripts.servers.kinesis stop FOLDER      ends it and keeps its data; start brings it back

`Kinesalite` (of npm) keeps its data over a restart and refuses records that are too large, as Amazon does; it needs
node. `Moto` (of PyPI) forgets everything when it ends.
"""

from __future__ import annotations

import fcntl
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from scripts.broker.servers import LOOPBACK
from scripts.servers.one_port import OnePort, run
from scripts.servers.packages import Unavailable, cache_folder

KINESALITE = "kinesalite@3.3.3"
FETCH_SECONDS = 600
_SERVE = """
const [modules, path, port, shards] = process.argv.slice(2)
const kinesalite = require(modules + '/kinesalite')
const options = { path, createStreamMs: 20, deleteStreamMs: 20, updateStreamMs: 20, shardLimit: Number(shards) }
kinesalite(options).listen(Number(port), '127.0.0.1')
"""


class Kinesalite(OnePort):
    """Kinesalite, with its data in the folder."""

    name, scheme = "kinesis", "http"

    def command(self) -> list[str]:
        """Return the command: its own program would listen on every address."""
        node = shutil.which("node")
        if node is None:
            raise Unavailable("kinesalite runs in node, and there is no `node` here")
        (self.folder / "serve.js").write_text(_SERVE)
        return [node, str(self.folder / "serve.js"), str(_modules()), str(self.folder / "data"), str(self.port), "100"]


class Moto(OnePort):
    """Moto's server, which plays other services of Amazon, too; it keeps nothing."""

    name, scheme = "moto", "http"

    def command(self) -> list[str]:
        """Return the command."""
        return [sys.executable, "-m", "moto.server", "-H", LOOPBACK, "-p", str(self.port)]


def _modules() -> Path:
    """Return the folder of kinesalite and of what it needs, fetched once by npm."""
    folder = cache_folder() / f"npm-{KINESALITE}" / "node_modules"
    if folder.is_dir():
        return folder
    npm = shutil.which("npm")
    if npm is None:
        raise Unavailable("kinesalite would be fetched by npm, and there is no `npm` here")
    cache_folder().mkdir(parents=True, exist_ok=True)
    with (cache_folder() / "npm.lock").open("w") as alone:
        fcntl.flock(alone, fcntl.LOCK_EX)
        if not folder.is_dir():
            print(f"==> kinesis: fetching {KINESALITE} by npm, once", file=sys.stderr)
            with tempfile.TemporaryDirectory(dir=cache_folder(), prefix="fetching-") as made:
                _fetch(npm, Path(made))
                whole = cache_folder() / f"npm-{KINESALITE}.new"
                shutil.copytree(made, whole, symlinks=True, dirs_exist_ok=True)
            whole.rename(folder.parent)
    return folder


def _fetch(npm: str, made: Path) -> None:
    command = [npm, "install", "--silent", "--no-fund", "--no-audit", "--prefix", str(made), KINESALITE]
    try:
        run = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise Unavailable(f"npm did not give {KINESALITE} within {FETCH_SECONDS} s") from None
    if run.returncode:
        raise Unavailable(f"npm install {KINESALITE}: {run.stderr[-400:].strip() or run.returncode}")


if __name__ == "__main__":
    run(Kinesalite, program="scripts.servers.kinesis", description="A server that plays Amazon Kinesis.")

"""PostgreSQL on this machine: a real server in any folder, ready for logical decoding and two-phase commit.

    python -m scripts.servers.postgres start FOLDER     prints its address
    python -m scripts.servers.postgres stop FOLDER      ends it and keeps its data; start brings it back

The programs are those of the system (`/usr/lib/postgresql/*/bin`), else Debian's packages in the user's cache folder.
`postgres` is its superuser and needs no password from this machine; every other role logs in with its own.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

from scripts.broker.servers import LOOPBACK, NotStarted, Servers, free_ports
from scripts.servers.packages import Unavailable, debian, environment
from scripts.servers.server import run

START_SECONDS = 120
NAME = "postgres"
SETTINGS = {
    "wal_level": "logical",
    "max_replication_slots": "40",
    "max_wal_senders": "40",
    "max_prepared_transactions": "50",
    "max_connections": "200",
    "fsync": "off",  # a process that is killed loses nothing by this; a machine that loses power would
    "timezone": "UTC",
    "shared_buffers": "64MB",
}
_WHO = "host all postgres 127.0.0.1/32 trust\nhost all all 127.0.0.1/32 scram-sha-256\n"


class Postgres:
    """A server in a folder, with settings that differ from `SETTINGS` where they are given."""

    def __init__(self, servers: Servers, **settings: str) -> None:
        self.servers = servers
        self.folder = servers.folder
        self.data = self.folder / NAME
        self._settings = SETTINGS | settings

    @property
    def port(self) -> int:
        """Return the port that the server has for as long as its folder exists."""
        return int((self.folder / "port").read_text())

    def url(self, database: str = "postgres", *, user: str = "postgres", password: str = "") -> str:
        """Return the address of one of its databases."""
        login = f"{user}:{password}" if password else user
        return f"postgresql://{login}@{LOOPBACK}:{self.port}/{database}"

    def start(self) -> None:
        """Start it, if it does not run, on the port and data that it had, and return when it answers.

        Raises:
            Unavailable: there are no programs of PostgreSQL, and no way to get them.
            NotStarted: it ended, or does not answer; the text has the end of its log.

        """
        with self.servers.alone():
            if not (self.data / "pg_hba.conf").exists():
                self._initialize()
            deadline = time.monotonic() + START_SECONDS
            while not self._answers():
                if time.monotonic() > deadline:
                    raise NotStarted(f"PostgreSQL does not answer: {self.servers.words(NAME)}")
                if not self.servers.alive(NAME):
                    self._launch()
                time.sleep(0.05)

    def stop(self) -> None:
        """End it in order: clients are disconnected, data are kept."""
        self.servers.signal(NAME, signal.SIGINT)
        self.servers.await_end(NAME)

    def kill(self) -> None:
        """End it as a machine that fails would: the server and every process of its connections at once."""
        if not self.servers.alive(NAME):
            return
        first = self.servers.process(NAME)
        children = Path(f"/proc/{first}/task/{first}/children")
        processes = [first, *map(int, children.read_text().split() if children.exists() else ())]
        for each in processes:
            try:
                os.kill(each, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self.servers.await_end(NAME)

    def restart(self) -> None:
        """End it in order and start it again."""
        self.stop()
        self.start()

    def run(self, program: str, *arguments: str, seconds: float = 60) -> str:
        """Run one of PostgreSQL's programs (`psql`, `pg_dump`, `pg_recvlogical`, …) and return what it printed."""
        done = subprocess.run(
            self.command(program, *arguments),
            env=_environment(),
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"{program} ended with {done.returncode}: {done.stdout}{done.stderr}")
        return done.stdout

    def command(self, program: str, *arguments: str) -> list[str]:
        """Return the command line of one of PostgreSQL's programs for this server."""
        return [str(_programs() / program), "-h", LOOPBACK, "-p", str(self.port), "-U", "postgres", *arguments]

    def _initialize(self) -> None:
        programs = _programs()
        (self.folder / "port").write_text(str(free_ports(1)))
        shutil.rmtree(self.data, ignore_errors=True)
        made = [str(programs / "initdb"), "-D", str(self.data), "-U", "postgres", "-A", "trust", "-E", "UTF8"]
        done = subprocess.run(
            [*_plain_user(), *made, "--locale=C.UTF-8", "--no-sync"],
            env=_environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise NotStarted(f"initdb ended with {done.returncode}: {done.stdout}{done.stderr}")
        (self.data / "pg_hba.conf").write_text(_WHO)

    def _launch(self) -> None:
        (self.data / "postmaster.pid").unlink(missing_ok=True)  # of a server that was killed
        fixed = {"listen_addresses": LOOPBACK, "port": str(self.port), "unix_socket_directories": ""}
        settings = [part for name, value in (self._settings | fixed).items() for part in ("-c", f"{name}={value}")]
        variables = [f"{name}={_environment()[name]}" for name in ("LD_LIBRARY_PATH",) if _environment().get(name)]
        server = [*_plain_user(), str(_programs() / "postgres"), "-D", str(self.data), *settings]
        self.servers.start(NAME, [*(["/usr/bin/env", *variables] if variables else []), *server])

    def _answers(self) -> bool:
        if not self.servers.alive(NAME):
            return False
        ready = self.command("pg_isready", "-q")
        return subprocess.run(ready, env=_environment(), check=False, capture_output=True).returncode == 0


def _programs() -> Path:
    """Return the folder of the newest PostgreSQL's programs."""
    for root in (Path("/"), None):
        under = (debian("postgresql", "postgresql-client") if root is None else root) / "usr/lib/postgresql"
        found = [each.parent for each in under.glob("*/bin/postgres")]
        if found:
            return max(found, key=lambda each: int(each.parent.name))
    raise Unavailable("Debian's package postgresql has no program postgres")


def _environment() -> dict[str, str]:
    programs = _programs()
    return dict(os.environ) if programs.is_relative_to("/usr/lib") else environment(programs.parents[4])


def _plain_user() -> list[str]:
    """Return what comes before a command so that the server, which refuses root, runs as another user."""
    if os.geteuid() != 0:
        return []
    if shutil.which("unshare") is None:
        raise Unavailable("PostgreSQL does not run as root, and there is no unshare to run it as another user")
    return ["unshare", "--user", "--map-user=1000", "--map-group=1000"]


if __name__ == "__main__":
    run(Postgres, program="scripts.servers.postgres", description="PostgreSQL on this machine.")

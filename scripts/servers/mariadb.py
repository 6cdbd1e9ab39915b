"""MariaDB on this machine: a real server in any folder, with a binary log of rows, GTIDs and XA.

    python -m scripts.servers.mariadb start FOLDER     prints its address
    python -m scripts.servers.mariadb stop FOLDER      ends it and keeps its data; start brings it back

The programs are those of the system, else Debian's packages in the user's cache folder. `root` needs no password from
this machine; every other user logs in with its own.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from typing import TYPE_CHECKING

from scripts.broker.servers import LOOPBACK, NotStarted, Servers, free_ports
from scripts.servers.packages import Unavailable, debian, environment
from scripts.servers.server import run

if TYPE_CHECKING:
    from pathlib import Path

START_SECONDS = 120
NAME = "mariadb"
SETTINGS = {
    "server-id": "1",
    "log-bin": "binlog",
    "binlog-format": "ROW",
    "binlog-row-image": "FULL",
    "binlog-row-metadata": "FULL",
    "gtid-strict-mode": "ON",
    "innodb-flush-log-at-trx-commit": "2",  # a process that is killed loses nothing by this; a machine would
    "innodb-buffer-pool-size": "64M",
    "innodb-log-file-size": "32M",
    "performance-schema": "OFF",
    "max-connections": "200",
    "default-time-zone": "+00:00",
    "character-set-server": "utf8mb4",
}
_INITIALIZED = "initialized"


class MariaDB:
    """A server in a folder, with settings that differ from `SETTINGS` where they are given (`_` for `-`)."""

    def __init__(self, servers: Servers, **settings: str) -> None:
        self.servers = servers
        self.folder = servers.folder
        self.data = self.folder / NAME
        self._settings = SETTINGS | {name.replace("_", "-"): value for name, value in settings.items()}

    @property
    def port(self) -> int:
        """Return the port that the server has for as long as its folder exists."""
        return int((self.folder / "port").read_text())

    def url(self, database: str = "mysql", *, user: str = "root", password: str = "") -> str:
        """Return the address of one of its databases."""
        login = f"{user}:{password}" if password else user
        return f"mysql://{login}@{LOOPBACK}:{self.port}/{database}"

    def start(self) -> None:
        """Start it, if it does not run, on the port and data that it had, and return when it answers.

        Raises:
            Unavailable: there are no programs of MariaDB, and no way to get them.
            NotStarted: it ended, or does not answer; the text has the end of its log.

        """
        with self.servers.alone():
            if not (self.folder / _INITIALIZED).exists():
                self._initialize()
            deadline = time.monotonic() + START_SECONDS
            while not self._answers():
                if time.monotonic() > deadline:
                    raise NotStarted(f"MariaDB does not answer: {self.servers.words(NAME)}")
                if not self.servers.alive(NAME):
                    self._launch()
                time.sleep(0.05)

    def stop(self) -> None:
        """End it in order: clients are disconnected, data are kept."""
        self.servers.signal(NAME, signal.SIGTERM)
        self.servers.await_end(NAME)

    def kill(self) -> None:
        """End it as a machine that fails would."""
        self.servers.signal(NAME, signal.SIGKILL)
        self.servers.await_end(NAME)

    def restart(self) -> None:
        """End it in order and start it again."""
        self.stop()
        self.start()

    def run(self, program: str, *arguments: str, seconds: float = 60) -> str:
        """Run one of MariaDB's programs (`mariadb`, `mariadb-binlog`, …) and return what it printed."""
        command = [_program(program), "--no-defaults", "-h", LOOPBACK, "-P", str(self.port), "-u", "root", *arguments]
        done = subprocess.run(command, env=_environment(), capture_output=True, text=True, timeout=seconds, check=False)
        if done.returncode:
            raise RuntimeError(f"{program} ended with {done.returncode}: {done.stdout}{done.stderr}")
        return done.stdout

    def _initialize(self) -> None:
        (self.folder / "port").write_text(str(free_ports(1)))
        shutil.rmtree(self.data, ignore_errors=True)
        made = [_program("mariadb-install-db"), "--no-defaults", f"--datadir={self.data}", *_whose(), *_where()]
        options = ["--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve"]
        done = subprocess.run([*made, *options], env=_environment(), capture_output=True, text=True, check=False)
        if done.returncode:
            raise NotStarted(f"mariadb-install-db ended with {done.returncode}: {done.stdout}{done.stderr}")
        (self.folder / _INITIALIZED).touch()

    def _launch(self) -> None:
        own = {
            "datadir": str(self.data),
            "bind-address": LOOPBACK,
            "port": str(self.port),
            "socket": os.path.relpath(self.data / "socket", self.data),  # a long path is none for a socket
            "pid-file": str(self.data / "pid"),
        }
        options = [f"--{name}={value}" for name, value in (self._settings | own).items()]
        variables = [f"{name}={_environment()[name]}" for name in ("LD_LIBRARY_PATH",) if _environment().get(name)]
        server = [_program("mariadbd"), "--no-defaults", *_whose(), *_where(), "--skip-name-resolve", *options]
        self.servers.start(NAME, [*(["/usr/bin/env", *variables] if variables else []), *server])

    def _answers(self) -> bool:
        if not self.servers.alive(NAME):
            return False
        ping = [_program("mariadb-admin"), "--no-defaults", "-h", LOOPBACK, "-P", str(self.port), "-u", "root", "ping"]
        return subprocess.run(ping, env=_environment(), check=False, capture_output=True).returncode == 0


def _root() -> Path | None:
    """Return the folder with the unpacked packages, None where the system has the programs."""
    if shutil.which("mariadbd", path=f"{os.environ.get('PATH', '')}:/usr/sbin") is not None:
        return None
    return debian("mariadb-server")


def _program(name: str) -> str:
    root = _root()
    path = f"{os.environ.get('PATH', '')}:/usr/sbin" if root is None else f"{root}/usr/bin:{root}/usr/sbin"
    found = shutil.which(name, path=path)
    if found is None:
        raise Unavailable(f"Debian's package mariadb-server has no program {name}")
    return found


def _environment() -> dict[str, str]:
    root = _root()
    return dict(os.environ) if root is None else environment(root)


def _where() -> list[str]:
    root = _root()
    return [] if root is None else [f"--basedir={root}/usr"]


def _whose() -> list[str]:
    """Return the option without which the server refuses to run as root."""
    return ["--user=root"] if os.geteuid() == 0 else []


if __name__ == "__main__":
    run(MariaDB, program="scripts.servers.mariadb", description="MariaDB on this machine.")

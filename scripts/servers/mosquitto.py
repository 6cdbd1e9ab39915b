"""Mosquitto, a broker of MQTT, on this machine: a real broker in any folder, whose sessions survive a restart.

    python -m scripts.servers.mosquitto start FOLDER     prints its address
    python -m scripts.servers.mosquitto stop FOLDER      ends it and keeps its sessions; start brings them back

The program is the system's, else that of Debian's package in the user's cache folder. Mosquitto writes its sessions to
the disk when it is stopped, and every few seconds; what it acknowledged since is lost if it is killed.
"""

from __future__ import annotations

import getpass
import shutil
import subprocess
from pathlib import Path

from scripts.broker.servers import LOOPBACK
from scripts.servers.packages import debian, environment
from scripts.servers.server import Server, run

SETTINGS = {
    "persistence": "true",
    "autosave_interval": "5",
    "max_inflight_messages": "1000",
    "max_queued_messages": "0",
    "max_queued_bytes": "0",
    "set_tcp_nodelay": "true",
}


class Mosquitto(Server):
    """A broker; `users` are names with their passwords: without any, everybody may connect.

    `tls`: the files of a certificate and its key; None: connections are not encrypted.
    """

    name, scheme = "mosquitto", "mqtt"
    users: dict[str, str] = {}  # noqa: RUF012 - never changed
    tls: tuple[Path, Path] | None = None

    def command(self) -> list[str]:
        """Write its settings and return the command."""
        program, variables = _program("mosquitto")
        fixed = {
            "listener": f"{self.port} {LOOPBACK}",
            "user": getpass.getuser(),  # as root it would become one that may not write here
            "persistence_location": f"{self.folder}/",
            "allow_anonymous": "false" if self.users else "true",
            **(dict(zip(("certfile", "keyfile"), map(str, self.tls), strict=True)) if self.tls else {}),
            **({"password_file": str(self._passwords())} if self.users else {}),
        }
        text = "".join(f"{name} {value}\n" for name, value in (SETTINGS | fixed).items())
        (self.folder / "mosquitto.conf").write_text(text)
        return [*variables, str(program), "-c", str(self.folder / "mosquitto.conf")]

    def _passwords(self) -> Path:
        file = self.folder / "passwords"
        file.write_text("".join(f"{user}:{password}\n" for user, password in self.users.items()))
        program, variables = _program("mosquitto_passwd")
        subprocess.run([*variables, str(program), "-U", str(file)], check=True, capture_output=True)
        file.chmod(0o600)
        return file


def _program(name: str) -> tuple[Path, list[str]]:
    """Return a program, and what comes before it on the command line so that it finds its libraries."""
    if (found := shutil.which(name)) or (found := shutil.which(name, path="/usr/sbin")):
        return Path(found), []
    folder = debian("mosquitto")
    libraries = environment(folder).get("LD_LIBRARY_PATH", "")
    (program,) = [each for each in (folder / "usr/sbin" / name, folder / "usr/bin" / name) if each.exists()]
    return program, ["/usr/bin/env", f"LD_LIBRARY_PATH={libraries}"]


if __name__ == "__main__":
    run(Mosquitto, program="scripts.servers.mosquitto", description="Mosquitto, a broker of MQTT, on this machine.")

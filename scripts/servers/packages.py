"""Programs from Debian's packages, unpacked into a folder of the user: no root, and nothing of the system is touched.

They are kept in `$HEADRACE_SERVERS`, else in `headrace/servers` of the user's cache folder, and fetched once.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

from scripts.broker.jars import Unavailable

FETCH_SECONDS = 600


def cache_folder() -> Path:
    """Return the folder for programs and downloads that all runs of this user share."""
    if named := os.environ.get("HEADRACE_SERVERS"):
        return Path(named).resolve()
    shared = os.environ.get("XDG_CACHE_HOME")
    return (Path(shared) if shared else Path.home() / ".cache") / "headrace" / "servers"


@cache
def debian(*packages: str) -> Path:
    """Return a folder with the files of some packages, and of all that they need and the system does not have.

    The files are as they would be under `/`: `debian("redis-server") / "usr/bin/redis-server"`. Scripts of the
    packages are not run. Give programs `environment(folder)`, so that they find their libraries.

    Raises:
        Unavailable: there is no apt here, it does not know a package, or its archive cannot be reached.

    """
    cached = cache_folder()
    folder = cached / f"debian-{packages[0]}-{hashlib.sha256(' '.join(sorted(packages)).encode()).hexdigest()[:12]}"
    if folder.is_dir():
        return folder
    missing = [tool for tool in ("apt-get", "dpkg") if shutil.which(tool) is None]
    if missing:
        raise Unavailable(f"{' and '.join(packages)} would come from Debian's packages, but here is no {missing[0]}")
    cached.mkdir(parents=True, exist_ok=True)
    with (cached / "packages.lock").open("w") as alone:
        fcntl.flock(alone, fcntl.LOCK_EX)
        if not folder.is_dir():
            print(f"==> packages: fetching {' '.join(packages)} from Debian's archive, once", file=sys.stderr)
            with tempfile.TemporaryDirectory(dir=cached, prefix="fetching-") as made:
                _unpack(packages, Path(made), cached).rename(folder)
    return folder


def environment(folder: Path) -> dict[str, str]:
    """Return the environment for programs of a folder that `debian` returned: its libraries and programs come first."""
    libraries = [
        folder / "lib",
        folder / "usr/lib",
        *folder.glob("lib/*-linux-gnu"),
        *folder.glob("usr/lib/*-linux-gnu"),
    ]
    found = [str(each) for each in libraries if each.is_dir()]
    programs = [str(folder / each) for each in ("usr/bin", "usr/sbin", "bin", "sbin")]
    return os.environ | {
        "LD_LIBRARY_PATH": ":".join([*found, *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]),
        "PATH": ":".join([*programs, os.environ.get("PATH", "")]),
    }


def _unpack(packages: tuple[str, ...], made: Path, cached: Path) -> Path:
    """Fetch and unpack packages and what they need; the lists of packages are renewed where they are too old."""
    downloads, unpacked = made / "downloads", made / "unpacked"
    downloads.mkdir()
    try:
        _download(packages, downloads, cached)
    except Unavailable:
        _apt(cached, "update")
        _download(packages, downloads, cached)
    for each in sorted(downloads.glob("*.deb")):
        subprocess.run(["dpkg", "-x", str(each), str(unpacked)], check=True, capture_output=True)
    return unpacked


def _download(packages: tuple[str, ...], downloads: Path, cached: Path) -> None:
    planned = _apt(cached, "install", "--simulate", "--no-install-recommends", *packages)
    needed = re.findall(r"^Inst (\S+) (?:\[[^]]*\] )?\((\S+)", planned, flags=re.MULTILINE)
    named = {name: f"{name}={version}" for name, version in needed}
    _apt(cached, "download", *named.values(), *(each for each in packages if each not in named), folder=downloads)


def _apt(cached: Path, *arguments: str, folder: Path | None = None) -> str:
    """Run apt-get with lists of its own, which needs no root, and return what it said."""
    for each in ("lists/partial", "apt/archives/partial"):
        (cached / each).mkdir(parents=True, exist_ok=True)
    own = {
        "Dir::State::Lists": cached / "lists",
        "Dir::Cache": cached / "apt",
        "Debug::NoLocking": "true",
        "APT::Sandbox::User": "",
        "Acquire::Retries": "3",
    }
    options = [part for name, value in own.items() for part in ("-o", f"{name}={value}")]
    try:
        run = subprocess.run(
            ["apt-get", "-q", "-y", *options, *arguments],
            cwd=folder or cached,
            env=os.environ | {"LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"},
            capture_output=True,
            text=True,
            timeout=FETCH_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise Unavailable(f"Debian's archive did not give the packages within {FETCH_SECONDS} s") from None
    if run.returncode:
        said = [line for line in f"{run.stdout}\n{run.stderr}".splitlines() if line.startswith(("E:", "Err:", "W:"))]
        raise Unavailable(f"apt-get {arguments[0]}: {'; '.join(dict.fromkeys(said[:4])) or run.stderr[-300:]}")
    return run.stdout

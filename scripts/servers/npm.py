"""Packages of npm, fetched once into the user's cache folder."""

from __future__ import annotations

import fcntl
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from scripts.servers.packages import FETCH_SECONDS, Unavailable, cache_folder


def node() -> str:
    """Return the program that runs them.

    Raises:
        Unavailable: there is no node.

    """
    return _program("node")


def modules(package: str) -> Path:
    """Return the folder `node_modules` of a package, `name@version`, and of what it needs.

    Raises:
        Unavailable: there is no node or npm, or npm's registry does not give it.

    """
    node()
    folder = cache_folder() / f"npm-{package}" / "node_modules"
    if folder.is_dir():
        return folder
    npm = _program("npm")
    cache_folder().mkdir(parents=True, exist_ok=True)
    with (cache_folder() / "npm.lock").open("w") as alone:
        fcntl.flock(alone, fcntl.LOCK_EX)
        if not folder.is_dir():
            print(f"==> npm: fetching {package}, once", file=sys.stderr)
            with tempfile.TemporaryDirectory(dir=cache_folder(), prefix="fetching-") as made:
                _fetch(npm, package, Path(made))
                whole = cache_folder() / f"npm-{package}.new"
                shutil.copytree(made, whole, symlinks=True, dirs_exist_ok=True)
            whole.rename(folder.parent)
    return folder


def _program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise Unavailable(f"it is of npm, and there is no {name} here")
    return found


def _fetch(npm: str, package: str, made: Path) -> None:
    options = ["--silent", "--no-fund", "--no-audit", "--prefix", str(made)]
    try:
        run = subprocess.run(
            [npm, "install", *options, package], capture_output=True, text=True, timeout=FETCH_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise Unavailable(f"npm did not give {package} within {FETCH_SECONDS} s") from None
    if run.returncode:
        raise Unavailable(f"npm install {package}: {run.stderr[-400:].strip() or run.returncode}")

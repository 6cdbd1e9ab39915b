"""Programs that Go builds from its module proxy, in the user's cache folder: fetched and built once.

The folder is that of `packages.cache_folder`. Versions are pinned, and Go's choice of the modules they need is fixed by
them.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from scripts.servers.packages import Unavailable, cache_folder

if TYPE_CHECKING:
    from collections.abc import Callable

BUILD_SECONDS = 1800
_LAST_WORDS = 400
_QUICKLY = ("-ldflags=-s -w", "-gcflags=all=-N -l")
"""Nothing is optimized, and there is nothing for a debugger: building takes two thirds of the time."""


def installed(package: str, version: str) -> Path:
    """Return the program of a Go package, such as `installed("github.com/nats-io/nats-server/v2", "v2.15.2")`.

    Raises:
        Unavailable: it is not in the cache, and there is no Go here or no way to its module proxy.

    """
    name = _name(package)

    def build(made: Path) -> None:
        _go("install", *_QUICKLY, f"{package}@{version}", folder=made, variables={"GOBIN": str(made)})

    return _kept(name, hashlib.sha256(f"{package}@{version}".encode()).hexdigest()[:12], build)


def built(name: str, *, program: str, module: str) -> Path:
    """Return the program that Go builds of a source text and the text of its `go.mod`.

    Raises:
        Unavailable: it is not in the cache, and there is no Go here or no way to its module proxy.

    """

    def build(made: Path) -> None:
        with tempfile.TemporaryDirectory(dir=made, prefix="source-") as source:
            Path(source, "main.go").write_text(program)
            Path(source, "go.mod").write_text(module)
            _go("mod", "tidy", folder=Path(source))
            _go("build", *_QUICKLY, "-o", str(made / name), ".", folder=Path(source))

    return _kept(name, hashlib.sha256(f"{program}\0{module}".encode()).hexdigest()[:12], build)


def _name(package: str) -> str:
    """Return the name that Go gives the program: the last part of the path that is no version."""
    *_, before, last = package.split("/")
    return before if last.startswith("v") and last[1:].isdigit() else last


def _kept(name: str, version: str, build: Callable[[Path], None]) -> Path:
    cached = cache_folder()
    folder = cached / f"go-{name}-{version}"
    if (folder / name).is_file():
        return folder / name
    if shutil.which("go") is None:
        raise Unavailable(f"{name} would be built by Go, and there is no `go` here")
    cached.mkdir(parents=True, exist_ok=True)
    with (cached / f"go-{name}.lock").open("w") as alone:
        fcntl.flock(alone, fcntl.LOCK_EX)
        if not folder.is_dir():
            print(f"==> {name}: fetched from Go's module proxy and built, once", file=sys.stderr)
            with tempfile.TemporaryDirectory(dir=cached, prefix="building-") as made:
                build(Path(made))
                shutil.copytree(made, f"{folder}.new", dirs_exist_ok=True)
            Path(f"{folder}.new").rename(folder)
    return folder / name


def _go(*arguments: str, folder: Path, variables: dict[str, str] | None = None) -> None:
    try:
        run = subprocess.run(
            ["go", *arguments],
            cwd=folder,
            env=os.environ | {"CGO_ENABLED": "0"} | (variables or {}),
            capture_output=True,
            text=True,
            timeout=BUILD_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise Unavailable(f"go {' '.join(arguments)} took more than {BUILD_SECONDS} s") from None
    if run.returncode:
        raise Unavailable(f"go {' '.join(arguments)}: {run.stderr[-_LAST_WORDS:].strip()}")

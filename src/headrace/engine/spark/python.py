"""The Python that Spark starts on this machine: this one, with PySpark from where this process has it.

Spark puts zips of PySpark and Py4J in front of the path of its Python processes. Nothing in them is compiled, so each
process compiles PySpark anew: half a second of processor time, at each start of an app and for each kind of worker. So
Spark starts a script of ours, which takes the zips away: the installed packages have the same code.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from shlex import quote

import pyspark

from headrace.engine.spark.programs import folders, write_program

_ANSWER_SECONDS = 60
_SCRIPT = """\
#!/bin/sh
# Made by Headrace: this Python without the zips of PySpark, which are not compiled, and are installed as packages too.
kept=
set -f
IFS=:
for each in $PYTHONPATH; do
    case "$each" in
        */python/lib/pyspark.zip | */python/lib/py4j-*-src.zip) ;;
        *) kept="$kept:$each" ;;
    esac
done
PYTHONPATH="${{kept#:}}"
export PYTHONPATH
exec {python} "$@"
"""


def python_program() -> str:
    """Return the program for Python processes of a Spark on this machine: a script of ours, else this Python.

    Several processes may create the script at the same time.
    """
    home = os.environ.get("SPARK_HOME")
    if os.name != "posix" or (home and not _same(home, Path(pyspark.__file__).parent)):
        return sys.executable  # another Spark may have another PySpark
    script = _SCRIPT.format(python=quote(sys.executable))
    name = "python-" + hashlib.sha256(script.encode()).hexdigest()[:16]
    for folder in folders():
        program = folder / name / "python"
        with suppress(OSError, subprocess.SubprocessError):
            if write_program(program, script):
                _try(program)
            return str(program)
    return sys.executable


def _try(program: Path) -> None:
    """Run it once: there are folders in which no program may run."""
    subprocess.run([program, "-SEc", ""], timeout=_ANSWER_SECONDS, check=True, capture_output=True)  # noqa: S603 -- our own


def _same(one: str, other: Path) -> bool:
    with suppress(OSError):
        return Path(one).samefile(other)
    return False

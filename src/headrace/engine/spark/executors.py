"""Whether the executors can run the app: their Python has the packages, and they see the app's folders.

Spark reports neither before an epoch fails with a trace of Python. So a job looks first, where the executors are on
other machines or have another Python.
"""

from __future__ import annotations

import re
import sys
import uuid
from typing import TYPE_CHECKING, Any

from headrace.base.outside import ExecutorsDiffer
from headrace.engine.spark.failures import SPARK_ERRORS, explained
from headrace.engine.spark.python import python_program

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from pyspark.sql import SparkSession

_DIFFERS = re.compile(r".*PYTHON_VERSION_MISMATCH.*|Cannot run program.*No such file.*")
NEEDED = ("numpy", "pyarrow", "duckdb", "headrace")


def check_executors(spark: SparkSession, storage: Path, log: Path) -> None:
    """Refuse executors that cannot run the app, or do not see its storage and its log.

    Raises:
        ExecutorsDiffer: says on which machine what is missing.
        HeadraceError: a worker did not start; it may the next time.

    """
    context = spark.sparkContext
    if context.master.startswith("local") and context.pythonExec in (python_program(), sys.executable):
        return
    token = storage / f".seen-{uuid.uuid4().hex}"  # a folder of this name may be on each machine, and not be shared
    storage.mkdir(parents=True, exist_ok=True)
    token.touch()
    wanted = [NEEDED, {"the app's storage": str(token.absolute()), "the log": str(log.absolute())}]
    try:
        tasks = max(2, context.defaultParallelism)
        answers = context.parallelize([wanted] * tasks, tasks).map(_look).collect()
    except SPARK_ERRORS as error:
        why = _DIFFERS.search(str(error))
        raise explained(error) if why is None else ExecutorsDiffer(context.pythonExec, why[0].strip()) from None
    finally:
        token.unlink(missing_ok=True)
    _compare(answers)


def _compare(answers: Iterable[Mapping[str, Any]]) -> None:
    ours = _look([NEEDED, {}])["version"]
    for answer in answers:
        where = f"{answer['python']} on {answer['host']}"
        if answer["missing"]:
            raise ExecutorsDiffer(where, "; ".join(answer["missing"]))
        if answer["version"] != ours:
            raise ExecutorsDiffer(where, f"it has Headrace {answer['version']}, the driver has {ours}")
        if answer["unseen"]:
            raise ExecutorsDiffer(
                where, "; ".join(f"it does not see the folder of {what}" for what in answer["unseen"])
            )


def _look(wanted: Any) -> dict[str, Any]:
    """Look around in a worker. It is pickled by value, for the worker may lack this package."""
    import importlib
    import socket
    import sys
    from pathlib import Path

    needed, files = wanted
    missing = []
    for name in needed:
        try:
            importlib.import_module(name)
        except ImportError as error:
            missing.append(str(error))
    package = sys.modules.get("headrace")
    return {
        "host": socket.gethostname(),
        "python": sys.executable,
        "missing": missing,
        "version": getattr(package, "__version__", None),
        "unseen": [what for what, file in files.items() if not Path(file).exists()],
    }


_look.__module__ = "__main__"  # what cloudpickle pickles by value

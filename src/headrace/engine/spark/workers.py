"""Makes Spark's Python processes answer small tasks faster, and end quietly; results are the same without it."""

from __future__ import annotations

import gc
import os
import socket
import stat
import sys
from contextlib import suppress
from importlib.abc import MetaPathFinder
from traceback import walk_tb

import pyarrow as pa

from headrace.engine.spark import ending

_TASKS_BEFORE_FREEZE = 2
_tasks = 0


def prepare() -> None:
    """Call at the start of a task in a worker, before its input is read.

    Spark's worker collects garbage after each task. With pyarrow and DuckDB loaded that takes 12 ms and delays the next
    task, so loaded modules are frozen (excluded from collection) after two tasks. The JVM sends a task's input in small
    packets, each only when the one before is acknowledged. The kernel delays acknowledgements by 40 ms, so quick
    acknowledgement is turned on.
    """
    global _tasks  # noqa: PLW0603 -- a count of this process
    _tasks += 1
    if _tasks == 1:
        ending.quietly()
    if _tasks == _TASKS_BEFORE_FREEZE:
        gc.collect()
        gc.freeze()
    _acknowledge_at_once()


class _NoPandas(MetaPathFinder):
    """Finds no pandas."""

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> None:
        """Refuse to import it."""
        del path, target
        if fullname == "pandas":
            raise ImportError(fullname)


def hide_pandas() -> None:
    """Let pyarrow believe that there is no pandas, in a process that runs no function of the user's.

    It imports pandas with the first array of a process, where it is installed: a quarter of a second, for which the
    first epoch of each start would wait. It tries this once. Trap: later `pa.array` does not know a pandas series
    there; `to_pandas` works.
    """
    finder = _NoPandas()
    sys.meta_path.insert(0, finder)
    try:
        pa.array([])
    finally:
        sys.meta_path.remove(finder)


def spark_left(error: BaseException | None) -> bool:
    """Return whether a planner's runner failed to hear of Spark or to answer it; what we raise is something else."""
    if not isinstance(error, EOFError | ConnectionError):
        return False
    frames = walk_tb(error.__traceback__)
    return not any(str(frame.f_globals.get("__name__")).startswith("headrace.") for frame, _ in frames)


def _acknowledge_at_once() -> None:
    if not hasattr(socket, "TCP_QUICKACK"):  # Linux alone has it
        return
    with suppress(OSError):
        for entry in os.listdir("/proc/self/fd"):  # noqa: PTH208 -- a pathlib object for each is half of the time
            with suppress(OSError):
                number = int(entry)
                if stat.S_ISSOCK(os.fstat(number).st_mode):
                    _set_quick_acknowledge(number)


def _set_quick_acknowledge(number: int) -> None:
    with socket.socket(fileno=os.dup(number)) as copy:
        if copy.family in (socket.AF_INET, socket.AF_INET6) and copy.type == socket.SOCK_STREAM:
            copy.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            copy.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)

"""What makes one of Spark's Python workers answer small tasks quickly; without it they are as right, but later."""

from __future__ import annotations

import gc
import os
import socket
import stat
from contextlib import suppress

_TASKS_BEFORE_FREEZE = 2
_tasks = 0


def prepare() -> None:
    """Call when a task has arrived in a worker, before its input is read.

    Spark's worker collects garbage after each task, which takes 12 ms once pyarrow and DuckDB are loaded and holds up
    the task that comes next; what a worker has loaded for good is therefore taken out of it, after two tasks. And the
    JVM sends a task's input in small pieces, each only when the one before is acknowledged, for which the kernel takes
    40 ms unless it is told to hurry.
    """
    global _tasks  # noqa: PLW0603 -- a count of this process
    _tasks += 1
    if _tasks == _TASKS_BEFORE_FREEZE:
        gc.collect()
        gc.freeze()
    _hurry()


def _hurry() -> None:
    if not hasattr(socket, "TCP_QUICKACK"):  # Linux alone has it
        return
    with suppress(OSError):
        for entry in os.listdir("/proc/self/fd"):  # noqa: PTH208 -- a pathlib object for each is half of the time
            with suppress(OSError):
                number = int(entry)
                if stat.S_ISSOCK(os.fstat(number).st_mode):
                    _acknowledge(number)


def _acknowledge(number: int) -> None:
    with socket.socket(fileno=os.dup(number)) as copy:
        if copy.family in (socket.AF_INET, socket.AF_INET6) and copy.type == socket.SOCK_STREAM:
            copy.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            copy.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)

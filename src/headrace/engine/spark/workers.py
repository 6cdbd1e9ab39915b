"""Makes Spark's Python workers answer small tasks faster; results are the same without it."""

from __future__ import annotations

import gc
import os
import socket
import stat
from contextlib import suppress

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
    if _tasks == _TASKS_BEFORE_FREEZE:
        gc.collect()
        gc.freeze()
    _acknowledge_at_once()


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

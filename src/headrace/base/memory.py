"""How much memory this process may use: of the machine, or of the container or executor that it runs in."""

from __future__ import annotations

import functools
import os
import resource
from contextlib import suppress
from pathlib import Path

VARIABLE = "HEADRACE_MEMORY"
"""The environment variable with the memory that Headrace may use on a machine, in MB; without it the limits count."""
LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
"""The files with a container's limit: of control groups version 2 and 1."""
TASK_SHARE = 0.6
"""The part of the memory that the databases of tasks may fill; Arrow tables, Python and the JVM have the rest."""
LEAST = 256 << 20
"""A task's database gets so much in any case, in bytes."""


def memory_limit() -> int:
    """Return how many bytes may be used here: the least of the machine's, the container's and the process's limit.

    Spark sets the last one in Python workers that have `spark.executor.pyspark.memory`. `$HEADRACE_MEMORY` (MB) is
    taken instead of all of them. What the machine says is asked once a process.
    """
    chosen = os.environ.get(VARIABLE, "")
    if chosen.isdecimal() and int(chosen):
        return int(chosen) << 20
    return machine_limit()


@functools.cache
def machine_limit() -> int:
    """Return the least of the machine's, the container's and the process's limit in bytes, as they were first asked."""
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for file in LIMITS:
        with suppress(OSError, ValueError):  # no such file, or "max"
            limits.append(int(Path(file).read_text()))
    for kind in (resource.RLIMIT_AS, resource.RLIMIT_DATA):
        soft, _ = resource.getrlimit(kind)
        if soft != resource.RLIM_INFINITY:
            limits.append(soft)
    return min(limits)


def task_memory() -> int:
    """Return how many bytes the database of one task may use: as many tasks run here as there are cores."""
    return max(LEAST, int(memory_limit() * TASK_SHARE) // cores())


def cores() -> int:
    """Return how many cores this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1

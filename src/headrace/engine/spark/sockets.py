"""Unix domain sockets between Spark's JVM and its Python processes on this machine.

Over TCP a task that sends little often waits 40 ms for an acknowledgement that the other side delays.
"""

from __future__ import annotations

import atexit
import os
import shutil
import socket
import tempfile
from functools import cache

_LONGEST_FOLDER = 60
"""In bytes: a socket's path may have 104 on some systems, and its name takes 42."""


def settings() -> dict[str, str]:
    """Return settings of a new session on this machine; none where there are no such sockets."""
    if not hasattr(socket, "AF_UNIX"):
        return {}
    folder = own_folder()
    if len(os.fsencode(folder)) > _LONGEST_FOLDER:
        return {}
    return {"spark.python.unix.domain.socket.enabled": "true", "spark.python.unix.domain.socket.dir": folder}


@cache
def own_folder() -> str:
    """Return a folder that only this user may enter, which goes with this process."""
    folder, owner = tempfile.mkdtemp(prefix="headrace-sockets-"), os.getpid()

    def remove() -> None:
        if os.getpid() == owner:  # not in a process that was forked
            shutil.rmtree(folder, ignore_errors=True)

    atexit.register(remove)
    return folder

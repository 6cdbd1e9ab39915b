"""The app of `supervising`, run where files cannot be locked, and paused at a point.

`leasing.py STORAGE [POINT MARKER]`: the process stops itself (SIGSTOP) when it first reaches the point.
"""

from __future__ import annotations

import signal
import sys
import threading
from dataclasses import dataclass, replace
from pathlib import Path

import supervising

from headrace.engine import lease, storage
from headrace.engine.operation import running


@dataclass(frozen=True)
class Pause:
    """Stops the process at a point, once a file asks for it."""

    point: str
    marker: Path

    def __call__(self, point):
        """Reach a point of the protocol."""
        if point == self.point and self.marker.exists():
            self.marker.unlink()
            # to the process it would go to any thread: this one might go on until that one gets a core
            signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)


def without_locks():
    """Behave as on a file system without locks, with short times."""
    storage.lock_file = lambda file, *, shared=False: None  # noqa: ARG005 -- the signature
    lease.LEASE_SECONDS, lease.BEAT_SECONDS, lease.LOOK_SECONDS = 1.0, 0.1, 0.02


if __name__ == "__main__":
    without_locks()
    plain = running.settings
    where, *pause = sys.argv[1:]
    if pause:
        fault = Pause(pause[0], Path(pause[1]))
        running.settings = lambda app, *, shards: replace(plain(app, shards=shards), fault=fault)
    supervising.make(Path(where)).run(carrier="in-process")

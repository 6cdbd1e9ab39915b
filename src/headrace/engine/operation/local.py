"""The in-process carrier on the clock: an app runs for real without Spark and Java, in a thread of this process."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from headrace.base.errors import NotRunning
from headrace.engine.inprocess import InProcess
from headrace.engine.operation.failures import as_ours

if TYPE_CHECKING:
    from headrace.base.errors import HeadraceError
    from headrace.engine.engine import Engine

POLL_SECONDS = 0.02
"""How often the sources are asked for new records while there are none."""
_SHARDS = "headrace-shard"


class LocalCarrier:
    """Runs an engine's epochs in this process, one after the other, from its creation to `stop`.

    An epoch begins when there are unread records, or when the clock makes one due, as on Spark. The shards of a level
    run in parallel on the machine's cores.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.idle = threading.Event()
        self.idle.set()
        self._pool = ThreadPoolExecutor(cores(), thread_name_prefix=_SHARDS)
        self._stopping = threading.Event()
        self._failure: HeadraceError | None = None
        try:
            self._epochs = InProcess(engine, map_shards=self._pool.map, threads=cores())
        except BaseException:
            self._pool.shutdown()
            raise
        self._thread = threading.Thread(target=self._run, name="headrace-epochs", daemon=True)
        self._thread.start()

    def check(self) -> None:
        """Raise the error that ended the epochs, if there is one.

        Raises:
            HeadraceError: why they ended.

        """
        if self._failure is not None:
            raise self._failure
        if not self._thread.is_alive():
            raise NotRunning("the app is not running", hint="It was stopped; call app.start() again.")

    @property
    def in_epoch(self) -> bool:
        """Whether the caller is called by an epoch, which would wait for itself if it stopped the app."""
        here = threading.current_thread()
        return here is self._thread or here.name.startswith(_SHARDS)

    def stop(self) -> None:
        """Stop at the end of an epoch: a running epoch is finished, no other begins."""
        self._stopping.set()
        self._thread.join()
        self._epochs.close()
        self._pool.shutdown()

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                if self.engine.caught_up:
                    self._stopping.wait(POLL_SECONDS)
                else:
                    self._step()
        except Exception as error:  # noqa: BLE001 -- kept for `check`, which raises it where the app is waited for
            self._failure = as_ours(error)

    def _step(self) -> None:
        self.idle.clear()
        try:
            self._epochs.step()
        finally:
            self.idle.set()


def cores() -> int:
    """Return how many cores this process may use: the shards of an app that starts without Spark."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1

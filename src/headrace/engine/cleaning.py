"""Cleans the topics of an app beside its epochs, as a broker would: retention, compaction, archive."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from headrace.base.errors import HeadraceError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.connect.topics import TopicStore

EVERY_SECONDS = 60.0
logger = logging.getLogger("headrace.engine")


class Cleaning:
    """A thread that cleans topics now and then, from its making until `stop`.

    What cannot be cleaned (the disk is full, the archive is not mounted) is said in the log (`logging`), once as long
    as it stays the same, and tried again: an app does not end for it.
    """

    def __init__(self, store: TopicStore, topics: Sequence[str], *, every: float = EVERY_SECONDS) -> None:
        self._store = store
        self._topics = list(dict.fromkeys(topics))
        self._every = every
        self._said: dict[str, str] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="headrace-cleaning", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread; a cleaning under way is finished first."""
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopping.wait(self._every):
            for name in self._topics:
                if self._stopping.is_set():
                    return
                self._clean(name)

    def _clean(self, name: str) -> None:
        try:
            self._store.clean([name])
            self._said.pop(name, None)
        except HeadraceError as error:
            text = str(error)
            if self._said.get(name) != text:
                self._said[name] = text
                logger.warning('the topic "%s" is not cleaned: %s', name, text)

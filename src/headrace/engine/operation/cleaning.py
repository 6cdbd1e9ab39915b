"""Cleans the topics of an app in the background, as a broker would: retention, compaction, archive."""

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
    """A thread that cleans topics every minute, from its creation until `stop`.

    If a topic cannot be cleaned (the disk is full, the archive is not mounted), a warning is logged (`logging`), once
    while the reason stays the same. The topic is tried again; the app does not stop.
    """

    def __init__(self, store: TopicStore, topics: Sequence[str], *, every: float = EVERY_SECONDS) -> None:
        self._store = store
        self._topics = list(dict.fromkeys(topics))
        self._every = every
        self._warned: dict[str, str] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="headrace-cleaning", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread; the topic that is being cleaned is finished first."""
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
            self._warned.pop(name, None)
        except Exception as error:  # noqa: BLE001 -- the thread goes on, or no topic would be cleaned any more
            text = str(error) if isinstance(error, HeadraceError) else f"{type(error).__name__}: {error}"
            if self._warned.get(name) != text:
                self._warned[name] = text
                logger.warning('the topic "%s" is not cleaned: %s', name, text)

"""The redo log of an epoch: its small files in one, so that one sync makes all of them durable.

To sync a file and its folder is to wait for the disk twice. So a task syncs its large files at its end, each folder
once. It writes its small files unsynced, and their bytes once more into `epochs/<epoch>.<attempt>.redo`, which is on
the disk before the epoch is committed. After a power cut the next start writes them again from there; when they are on
the disk themselves, the log is removed (`engine/redo.py`).
"""

from __future__ import annotations

import os
from threading import Lock
from typing import TYPE_CHECKING

from headrace.base.disk import begin_sync, make_folder, sync_folder
from headrace.kernels.files import write_bytes

if TYPE_CHECKING:
    from pathlib import Path

SUFFIX = ".redo"
SMALL_BYTES = 1 << 20
"""A larger file is synced by itself: to write it twice would cost more than to wait for it."""
MOST_BYTES = 8 << 20
"""What a log takes; further files are synced by themselves."""


class RedoLog:
    """Takes the files that one attempt of an epoch writes, from several threads; `write` makes them durable."""

    def __init__(self, storage: Path, epoch: int, attempt: str) -> None:
        self._storage = storage
        self._path = storage / "epochs" / f"{epoch:012d}.{attempt}{SUFFIX}"
        make_folder(self._path.parent, sync=True)  # before a file that is not synced is the first in it
        self._contents: dict[str, bytes] = {}
        self._large: list[Path] = []
        self._room = MOST_BYTES
        self._lock = Lock()

    def add(self, path: Path, size: int) -> None:
        """Take charge of a file that has just been written; the disk begins with one that is large.

        It may have been written before, with rows that are taken out since: what the log had of it is forgotten.
        """
        name = path.relative_to(self._storage).as_posix()
        with self._lock:
            self._room += len(self._contents.pop(name, b""))
            small = size <= min(SMALL_BYTES, self._room)
            if small:
                self._room -= size
            else:
                self._large.append(path)
        if small:
            self._contents[name] = path.read_bytes()
        else:
            begin_sync(path)

    def write(self) -> None:
        """Sync the large files and write the log: all files that were taken survive a power cut from now on."""
        for path in self._large:
            with path.open("rb") as file:
                os.fsync(file.fileno())
        folders = {folder for path in self._large for folder in path.relative_to(self._storage).parents}
        for folder in sorted(folders, reverse=True):
            sync_folder(self._storage / folder)
        if self._contents:
            write_bytes(self._path, self._contents)

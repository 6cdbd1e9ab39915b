"""Redo logs of a storage: after a power cut lost files are written again; files that are on the disk need no log.

    a task       writes small files unsynced, and `epochs/<n>.<attempt>.redo` with their bytes, synced
    the commit   is linked when the logs of its tasks are on the disk
    `settle`     now and then, and at the end: syncs the files that the last commit needs, and removes the logs
    `restore`    at the start: writes the files that the last commit needs as the logs have them

So without a power cut nothing is ever read from a log.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

from headrace.base.disk import make_folder, sync_folder
from headrace.base.errors import DamagedFile
from headrace.kernels.files import read_bytes, read_metadata
from headrace.kernels.redo import SUFFIX

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    import pyarrow as pa

    from headrace.kernels.state.state import StateHead

    Heads = Mapping[str, Mapping[str, StateHead]]

MOST_LOGS = 256
MOST_BYTES = 64 << 20
"""So many logs, or bytes in them, are settled: what a start may have to read."""


def logs(root: Path) -> list[Path]:
    """Return the redo logs of a storage, the oldest first."""
    return sorted((root / "epochs").glob(f"*{SUFFIX}"))


def epoch_of(log: Path) -> int:
    """Return the epoch of a redo log."""
    return int(log.name.partition(".")[0])


def is_due(found: Iterable[Path]) -> bool:
    """Whether logs are so many that they should be settled."""
    sizes = [log.stat().st_size for log in found]
    return len(sizes) > MOST_LOGS or sum(sizes) > MOST_BYTES


def contents(found: Iterable[Path]) -> dict[str, pa.Buffer]:
    """Return what logs have, by the file's place in the storage; one that is damaged or gone is left out."""
    known: dict[str, pa.Buffer] = {}
    for log in found:
        with suppress(DamagedFile):
            known |= read_bytes(log)
    return known


def state_files(root: Path, heads: Heads) -> Iterator[Path]:
    """Yield the files of state that heads need, each before it is read; a chain ends where a file is damaged."""
    for step, by_shard in heads.items():
        for shard, head in by_shard.items():
            file: str | None = head.file
            with suppress(DamagedFile):
                while file is not None:
                    path = root / "state" / step / shard / file
                    yield path
                    file = read_metadata(path)["previous"]


def restore(root: Path, heads: Heads, staged: Iterable[Path], known: Mapping[str, pa.Buffer]) -> None:
    """Write the files of a commit that a power cut has taken or torn, as the logs have them; sync them all."""
    with_names = _Folders(root)
    for files in (staged, state_files(root, heads)):
        for path in files:
            content = known.get(path.relative_to(root).as_posix())
            if content is not None and not _has(path, content):
                make_folder(path.parent, sync=True)
                path.write_bytes(content)
            with_names.sync(path)
    with_names.close()


def settle(root: Path, heads: Heads, staged: Iterable[Path], found: Iterable[Path]) -> None:
    """Sync the files of a commit, and remove logs of epochs up to its own: nothing needs them any more."""
    restore(root, heads, staged, {})
    for log in found:
        log.unlink(missing_ok=True)
    sync_folder(root / "epochs")


class _Folders:
    """Syncs files, and each folder above them once."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._seen: set[Path] = set()

    def sync(self, path: Path) -> None:
        """Sync a file; one that is not there is reported by whoever reads it."""
        with suppress(FileNotFoundError), path.open("rb") as file:
            os.fsync(file.fileno())
            self._seen.update(self._root / folder for folder in path.relative_to(self._root).parents)

    def close(self) -> None:
        """Sync the folders."""
        for folder in sorted(self._seen, reverse=True):
            sync_folder(folder)


def _has(path: Path, content: pa.Buffer) -> bool:
    try:
        return bool(path.read_bytes() == content.to_pybytes())
    except OSError:
        return False

"""The manifest of a folder: one file that is replaced as a whole. What it does not name is not there."""

from __future__ import annotations

import fcntl
import os
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from headrace.base.checked import from_text, to_text
from headrace.base.disk import make_folder, sync_folder
from headrace.base.outside import Unavailable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HIDDEN = "_headrace"
FILES = f"{HIDDEN}/files"
"""Where files are that may be replaced: Spark and Hive skip names that begin with _."""
MANIFEST = f"{HIDDEN}/manifest.json"


@dataclass(frozen=True)
class DataFile:
    """A file: its path in the folder, the folder of its partition ("" for none), and the run that it is a part of.

    A run is what was written at one moment; of a key, the row of the last run counts. A `finished` file is never
    replaced.
    """

    path: str
    partition: str
    run: int
    rows: int
    bytes: int
    finished: bool = False


@dataclass
class Manifest:
    """What a folder has.

    `writers`: by writer, its last epoch and its generation. `replaced`: files that were gathered into others, and the
    instant of it in microseconds; they are deleted later, for readers that still have an older list.
    """

    schema: str
    key: tuple[str, ...] = ()
    partition_by: tuple[str, ...] = ()
    is_table: bool = False
    next_run: int = 0
    files: list[DataFile] = field(default_factory=list)
    writers: dict[str, dict[str, int]] = field(default_factory=dict)
    replaced: dict[str, int] = field(default_factory=dict)

    @staticmethod
    def read(root: Path) -> Manifest | None:
        """Return the manifest of a folder, None if it has none.

        Raises:
            HeadraceError: it is damaged.

        """
        path = root / MANIFEST
        try:
            raw = path.read_bytes()
        except FileNotFoundError:
            return None
        data: dict[str, Any] = from_text(raw, path, hint="Restore the folder from a backup.")
        known = {name: data[name] for name in Manifest.__dataclass_fields__}
        known |= {name: tuple(known[name]) for name in ("key", "partition_by")}
        return Manifest(**known | {"files": [DataFile(**each) for each in known["files"]]})

    def write(self, root: Path) -> None:
        """Replace the manifest of a folder; it survives a power cut."""
        path = root / MANIFEST
        aside = path.with_suffix(".new")
        with aside.open("w", encoding="utf-8") as file:
            file.write(to_text(asdict(self)))
            file.flush()
            os.fsync(file.fileno())
        aside.replace(path)
        sync_folder(path.parent)

    def runs(self) -> dict[str, dict[int, list[DataFile]]]:
        """Return the files that may be replaced, by partition and run; older runs are first."""
        found: dict[str, dict[int, list[DataFile]]] = {}
        for each in sorted(self.files, key=lambda file: file.run):
            if not each.finished:
                found.setdefault(each.partition, {}).setdefault(each.run, []).append(each)
        return found


@contextmanager
def alone(root: Path, *, wait: bool = False) -> Iterator[None]:
    """Be the only process that changes a folder, for as long as the block runs; it ends with the process.

    Raises:
        Unavailable: another process changes it, and this one is not to wait.

    """
    make_folder(root / FILES, sync=True)
    with (root / HIDDEN / "lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            raise Unavailable(f"another process changes the folder {root}") from None
        yield

"""Places where files are: a folder of this machine; a bucket is another (`connect/s3`).

A file of a place is whole or not there. `create` never replaces one: of two that create it, one is told so.
"""

from __future__ import annotations

import errno
import os
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, NamedTuple, Protocol, Self

from headrace.base.disk import make_folder, sync_folder
from headrace.base.time import MICROS, SystemClock

if TYPE_CHECKING:
    from collections.abc import Iterator

OURS = "_headrace"
"""The folder in a place that has what is not a file for readers yet."""
ASIDE = "new-"
"""How names begin of files that are not whole yet."""
QUIET_SECONDS = 1.0
"""Who writes a file in a folder has ended when it has not changed for so long."""
_NO_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}
CLOCK = SystemClock()


class Stored(NamedTuple):
    """A file of a place.

    `name`: its path in the place. `version`: tells it from others, also from one that replaced it. `changed`: when it
    was written last, in microseconds. `complete`: whether its writer has ended.
    """

    name: str
    version: str
    size: int
    changed: int
    complete: bool


class NewFile(Protocol):
    """A file that is written aside, with the protocol of `with`: at the end of the block it is forgotten."""

    file: IO[bytes]

    def create(self, name: str) -> bool:
        """Let it appear under a name, whole and durable; return False where there is one of that name already."""
        ...

    def __enter__(self) -> Self:
        """Return it."""
        return self

    def __exit__(self, *failure: object) -> None:
        """Remove what is aside."""
        self.file.close()


class OpenPlace(Protocol):
    """A place that is in use."""

    def can_be_read(self) -> bool:
        """Whether it is there: that it has no files then means that they are gone."""
        return True

    def files(self, *, below: str = "", after: str = "") -> Iterator[Stored]:
        """Return the files whose names begin with `below`, sorted by name, those behind `after` alone."""
        ...

    def read(self, file: Stored, start: int, size: int) -> bytes:
        """Return so many bytes of a file from a place on, fewer at its end.

        Raises:
            FileNotFoundError: it is gone, or replaced.

        """
        ...

    def new(self, below: str) -> NewFile:
        """Return a file to write, which appears when its `create` is called.

        Args:
            below: a folder of the place where it may be until then; what a crash leaves there has a name with `ASIDE`.

        """
        ...

    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""
        ...


class Place(Protocol):
    """Where files are: frozen and picklable."""

    @property
    def identity(self) -> str:
        """What it is, without secrets."""
        ...

    @property
    def where(self) -> str:
        """What people call it."""
        ...

    def check(self) -> None:
        """Ask whether it can be read; raises as `open` and `OpenPlace.files` do."""
        ...

    def open(self) -> OpenPlace:
        """Return it for use.

        Raises:
            Unavailable: it does not answer.
            OutsideError: it may not be used.

        """
        ...


def for_readers(name: str) -> bool:
    """Whether a file is one that readers see: no part of its path is hidden or ours."""
    return not any(part.startswith(".") or part == OURS for part in name.split("/"))


@dataclass(frozen=True, slots=True)
class FolderPlace:
    """A folder; in it those of the names that fit a pattern."""

    path: str
    pattern: str = "**/*"

    @property
    def identity(self) -> str:
        """The folder."""
        return f"folder:{self.path}"

    @property
    def where(self) -> str:
        """The folder."""
        return f"the folder {self.path}"

    def check(self) -> None:
        """Read its names."""
        list(Path(self.path).iterdir())

    def open(self) -> OpenPlace:
        """Return it."""
        return _OpenFolder(Path(self.path), self.pattern)


class _OpenFolder(OpenPlace):
    def __init__(self, root: Path, pattern: str) -> None:
        self._root, self._pattern = root, pattern

    def can_be_read(self) -> bool:
        return os.access(self._root, os.R_OK | os.X_OK)

    def files(self, *, below: str = "", after: str = "") -> Iterator[Stored]:
        """Return its files; one that is taken away meanwhile is left out."""
        start = self._root / below
        for path in sorted(start.glob("*") if below else self._root.glob(self._pattern)):
            name = path.relative_to(self._root).as_posix()
            try:
                about = path.stat()
            except FileNotFoundError:
                continue
            if name > after and path.is_file():
                changed = about.st_mtime_ns // 1_000
                complete = CLOCK.now() - changed >= QUIET_SECONDS * MICROS
                yield Stored(name, f"{about.st_dev}:{about.st_ino}", about.st_size, changed, complete)

    def read(self, file: Stored, start: int, size: int) -> bytes:
        with (self._root / file.name).open("rb") as opened:
            about = os.fstat(opened.fileno())
            if file.version != f"{about.st_dev}:{about.st_ino}":
                raise FileNotFoundError(file.name)
            opened.seek(start)
            return opened.read(size)

    def new(self, below: str) -> NewFile:
        make_folder(self._root / below, sync=True)
        return _Aside(self._root, below)

    def remove(self, name: str) -> None:
        (self._root / name).unlink(missing_ok=True)


class _Aside(NewFile):
    """A file beside, which gets its name when it is whole."""

    def __init__(self, root: Path, below: str) -> None:
        self._root = root
        self._path = root / below / f"{ASIDE}{secrets.token_hex(8)}"
        self.file = self._path.open("w+b")

    def create(self, name: str) -> bool:
        path = self._root / name
        make_folder(path.parent, sync=True)
        self.file.flush()
        os.fsync(self.file.fileno())
        appeared = self._appear(path)
        sync_folder(path.parent)
        return appeared

    def __exit__(self, *failure: object) -> None:
        self.file.close()
        self._path.unlink(missing_ok=True)

    def _appear(self, path: Path) -> bool:
        try:
            os.link(self._path, path)
        except FileExistsError:
            return False
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            if path.exists():  # two writers at this moment are kept apart by links alone
                return False
            self._path.rename(path)
        return True

"""File-system faults: everything that this process writes below a folder passes through one seam, where it can fail.

The seam is Python's own: `os` and `io.open`, whoever calls them, so that no writer can forget to use it. What libraries
write by themselves (SQLite's database, DuckDB's temporary files) does not pass here, and memory maps do not.
"""

from __future__ import annotations

import errno
import io
import os
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from headrace.testing.faults import Crash

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FaultKind = Literal["EIO", "ENOSPC", "EROFS", "crash", "torn"]
FAULTS: tuple[FaultKind, ...] = ("EIO", "ENOSPC", "EROFS", "crash", "torn")
"""What a call may do: fail with an error, or end the process before it, or in the middle of its bytes."""

CHANGES = ("write", "create", "sync", "replace", "rename", "link", "unlink", "rmdir", "mkdir", "truncate")
"""The kinds of calls that are counted."""


class Files:
    """Watches a folder's files. Use `watched()` around what runs; `fail` arms one fault.

    `calls` counts the calls that change something. After a `crash` or `torn` fault the process is dead: whatever it
    still does to the folder has no effect, until `revive`.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        self.calls = 0
        self.dead = False
        self.hit: str | None = None
        self._armed: tuple[int, FaultKind, int] | None = None
        self.before: Callable[[str, Path], None] = _nothing
        self.after: Callable[[str, Path], None] = _nothing

    def fail(self, call: int, kind: FaultKind, *, times: int = 1) -> None:
        """Let a call fail, counted from now (0: the next), and the following ones, `times` in all."""
        self._armed, self.hit = (self.calls + call, kind, times), None

    def disarm(self) -> None:
        """Let no call fail."""
        self._armed = None

    def revive(self) -> None:
        """Let writes have an effect again: a new process has started."""
        self.dead = False
        self.disarm()

    def die(self, why: str) -> None:
        """End the process, as far as its files can tell.

        Raises:
            Crash: always.

        """
        self.dead, self.hit = True, why
        raise Crash(why)

    def watches(self, path: Path) -> bool:
        """Whether a path is in the folder."""
        return path == self.folder or str(path).startswith(f"{self.folder}{os.sep}")

    def reach(self, what: str, path: Path, write: Callable[[float], None] | None = None) -> bool:
        """Reach a call that changes something; return whether it is to have an effect.

        `write` writes a share of the bytes, for a fault in the middle of them.

        Raises:
            OSError: an armed fault.
            Crash: an armed fault.

        """
        if self.dead:
            return False
        self.before(what, path)
        number, self.calls = self.calls, self.calls + 1
        if self._armed is not None and self._armed[0] <= number < self._armed[0] + self._armed[2]:
            kind = self._armed[1]
            self.hit = f"{kind} at {what} of {path.name}"
            if kind in ("torn", "ENOSPC") and write is not None:
                write(0.5)
            if kind in ("crash", "torn"):
                self.die(self.hit)
            code = getattr(errno, kind)
            raise OSError(code, os.strerror(code), str(path))
        return True

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Watch, for as long as the context lasts."""
        real = {name: getattr(os, name) for name in _CALLS}
        opened = io.open
        try:
            for name, make in _CALLS.items():
                setattr(os, name, make(self, name, real[name]))
            io.open = _opener(self, opened)
            yield
        finally:
            for name, function in real.items():
                setattr(os, name, function)
            io.open = opened


def _nothing(what: str, path: Path) -> None:
    """Nobody looks."""


def _path(path: Any, folder: int | None = None) -> Path | None:
    """Return the path that a call names: by name, by open file, or by name below an open folder."""
    if isinstance(path, int):
        try:
            return Path(os.readlink(f"/proc/self/fd/{path}"))  # noqa: PTH115 -- the text may say (deleted)
        except OSError:
            return None
    whole = Path(os.fsdecode(path))
    if folder is not None:
        whole = Path(os.readlink(f"/proc/self/fd/{folder}")) / whole  # noqa: PTH115
    return _resolved(whole.parent if whole.is_absolute() else Path.cwd() / whole.parent) / whole.name


@lru_cache(4096)
def _resolved(folder: Path) -> Path:
    return folder.resolve()


_KINDS = {"fsync": "sync", "fdatasync": "sync", "ftruncate": "truncate"}


def _by_path(files: Files, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
    """A call whose last path is the one that appears or disappears."""

    def call(*paths: Any, **options: Any) -> Any:
        folder = options.get("dst_dir_fd", options.get("dir_fd"))
        path = _path(paths[1] if name in ("replace", "rename", "link") else paths[0], folder)
        if path is None or not files.watches(path):
            return real(*paths, **options)
        if not files.reach(name, path):
            return None
        answer = real(*paths, **options)
        files.after(name, path)
        return answer

    return call


def _by_file(files: Files, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
    def call(file: Any, *rest: Any) -> Any:
        path = _path(file if isinstance(file, int) else file.fileno())
        if path is None or not files.watches(path):
            return real(file, *rest)
        kind = _KINDS[name]
        if files.reach(kind, path) and kind != "sync":
            return real(file, *rest)
        if not files.dead:
            files.after(kind, path)  # what a sync keeps is for `after` to know: the disk itself need not hear of it
        return None

    return call


def _writing(files: Files, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
    def call(file: int, data: Any, *rest: Any) -> int:
        path = _path(file)
        if path is None or not files.watches(path):
            return int(real(file, data, *rest))
        raw = b"".join(bytes(part) for part in data) if name == "writev" else bytes(data)

        def write(share: float) -> None:
            half = raw[: int(len(raw) * share)]
            real(file, [half] if name == "writev" else half, *rest)

        if not files.reach("write", path, write):
            return len(raw)
        return int(real(file, data, *rest))

    return call


def _opening(files: Files, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
    del name

    def call(path: Any, flags: int, *rest: Any, **options: Any) -> int:
        if not flags & (os.O_CREAT | os.O_TRUNC):
            return int(real(path, flags, *rest, **options))
        whole = _path(path, options.get("dir_fd"))
        if whole is None or not files.watches(whole):
            return int(real(path, flags, *rest, **options))
        new = not whole.exists()
        if (new or flags & os.O_TRUNC) and not files.reach("create", whole):
            return int(real(os.devnull, os.O_RDWR))
        handle = int(real(path, flags, *rest, **options))
        if new:
            files.after("create", whole)
        return handle

    return call


_CALLS: dict[str, Callable[[Files, str, Callable[..., Any]], Callable[..., Any]]] = {
    **dict.fromkeys(("replace", "rename", "link", "unlink", "remove", "rmdir", "mkdir"), _by_path),
    **dict.fromkeys(("fsync", "fdatasync", "ftruncate"), _by_file),
    **dict.fromkeys(("write", "writev", "pwrite"), _writing),
    "open": _opening,
}


def _opener(files: Files, real: Callable[..., Any]) -> Callable[..., Any]:
    def call(file: Any, mode: str = "r", *rest: Any, **options: Any) -> Any:
        path = None if isinstance(file, int) or not set(mode) & set("wax+") else _path(file)
        if path is None or not files.watches(path):
            return real(file, mode, *rest, **options)
        new = not path.exists()
        if (new or "w" in mode) and not files.reach("create", path):
            return real(os.devnull, mode.replace("x", "w"), *rest, **options)
        opened = _Watched(files, path, real(file, mode, *rest, **options))
        if new:
            files.after("create", path)
        return opened

    return call


class _Watched:
    """An open file whose writes pass the seam."""

    def __init__(self, files: Files, path: Path, real: Any) -> None:
        self._files, self._path, self._real = files, path, real

    def write(self, data: Any) -> int:
        """Write, or fail."""

        def write(share: float) -> None:
            self._real.write(data[: int(len(data) * share)])
            self._real.flush()

        if not self._files.reach("write", self._path, write):
            return len(data)
        return int(self._real.write(data))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._real.close()

    def __iter__(self) -> Iterator[Any]:
        return iter(self._real)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

"""Folders: whether there can be one, and making names survive a power loss. Files: writing much to them, fast."""

from __future__ import annotations

import errno
import os
import resource
import sys
from functools import cache
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

MOST_AT_ONCE = 1 << 20
"""The bytes of one system call. For more, Linux 6 takes pages of 2 MB: new ones come five times as slowly (0093)."""
_VECTORS = 512
"""The buffers of one system call."""
AHEAD = 4 << 20
"""So many bytes are on their way to the disk at once, where they may be before the whole file is written."""
_WRITE = 2
"""Of `sync_file_range`: begin to write, wait for nothing."""
_FULL = (errno.ENOSPC, errno.EDQUOT)
_FULL_TEXTS = tuple(os.strerror(number) for number in _FULL)


def sync_folder(folder: Path) -> None:
    """Sync a folder, so that the names in it survive a power loss."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class SyncAhead:
    """Lets the disk begin, on Linux, with what is written of a file in order: its sync has less to wait for then.

    It promises nothing, and does not wait. `first`: where the writing begins.
    """

    def __init__(self, fd: int, first: int) -> None:
        self._fd, self._begun = fd, first

    def reached(self, end: int) -> None:
        """Begin with the bytes up to `end`, if they are many."""
        if end - self._begun >= AHEAD and (call := _sync_file_range()):
            call(self._fd, self._begun, end - self._begun, _WRITE)
            self._begun = end


def begin_sync(path: Path) -> None:
    """Let the disk begin with all of a file, on Linux; it promises nothing, and does not wait."""
    if call := _sync_file_range():
        with path.open("rb") as file:
            call(file.fileno(), 0, 0, _WRITE)  # 0 bytes: up to its end


@cache
def _sync_file_range() -> Callable[[int, int, int, int], int] | None:
    """Return the system's function, which Python's own modules do not have."""
    if sys.platform != "linux":
        return None
    import ctypes

    call = getattr(ctypes.CDLL(None), "sync_file_range", None)
    if call is not None:
        call.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
    found: Callable[[int, int, int, int], int] | None = call
    return found


def in_the_way(folder: Path) -> Path | None:
    """Return what is no folder where a folder, or one above it, would have to be; None if there is nothing."""
    nearest = next(path for path in (folder, *folder.parents) if path.is_symlink() or path.exists())
    return None if nearest.is_dir() else nearest


def says_full(error: BaseException) -> bool:
    """Whether an error is that of a full disk; DuckDB, Arrow, Spark and stores say so in their texts only."""
    if isinstance(error, OSError) and error.errno in _FULL:
        return True
    return any(text in str(error) for text in _FULL_TEXTS)


def file_size_limit() -> int | None:
    """Return how large a file this process may write, in bytes (`ulimit -f`); None if that is not limited."""
    soft, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    return None if soft == resource.RLIM_INFINITY else soft


def make_folder(folder: Path, *, sync: bool) -> None:
    """Create a folder and those above it that are missing; with `sync` their names survive a power loss.

    Nothing is in a folder before its name is synced. So the name of one that is found empty is synced: the process that
    made it may have died before it could.
    """
    if folder.is_dir():
        if not sync or _has_something(folder):
            return
    else:
        make_folder(folder.parent, sync=sync)
        folder.mkdir(exist_ok=True)
    if sync:
        sync_folder(folder.parent)


def _has_something(folder: Path) -> bool:
    with os.scandir(folder) as entries:
        return next(entries, None) is not None


def pieces(data: Any) -> Iterator[memoryview]:
    """Yield a buffer's bytes in pieces for one system call each."""
    whole = memoryview(data).cast("B")
    return (whole[at : at + MOST_AT_ONCE] for at in range(0, len(whole), MOST_AT_ONCE))


def write_all(file: IO[bytes], data: Any) -> None:
    """Write a buffer's bytes to a file of Python's, in pieces."""
    for piece in pieces(data):
        file.write(piece)


def write_at(fd: int, buffers: Iterable[Any], position: int, *, ahead: bool = False) -> None:
    """Write all buffers at a position of a file, one after the other, however many calls it takes.

    `ahead`: the disk begins with what is written before all is; somebody will wait for it.
    """
    sync = SyncAhead(fd, position) if ahead else None
    for views in _calls(buffers):
        if sync is not None:
            sync.reached(position)
        while views:
            written = _pwritev(fd, views, position)
            position += written
            while views and written >= len(views[0]):
                written -= len(views.pop(0))
            if written:
                views[0] = views[0][written:]


def _calls(buffers: Iterable[Any]) -> Iterator[list[memoryview]]:
    """Yield pieces of buffers, as many as one system call takes."""
    views: list[memoryview] = []
    size = 0
    for piece in (piece for buffer in buffers for piece in pieces(buffer)):
        if size + len(piece) > MOST_AT_ONCE or len(views) == _VECTORS:
            yield views
            views, size = [], 0
        views.append(piece)
        size += len(piece)
    yield views


def _seek_and_write(fd: int, views: list[memoryview], position: int) -> int:
    os.lseek(fd, position, os.SEEK_SET)
    return os.writev(fd, views)


_pwritev = getattr(os, "pwritev", _seek_and_write)  # not every system has it

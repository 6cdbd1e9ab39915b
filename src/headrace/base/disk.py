"""Folders: whether there can be one, and making names survive a power loss."""

from __future__ import annotations

import os
import resource
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def sync_folder(folder: Path) -> None:
    """Sync a folder, so that the names in it survive a power loss."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def in_the_way(folder: Path) -> Path | None:
    """Return what is no folder where a folder, or one above it, would have to be; None if there is nothing."""
    nearest = next(path for path in (folder, *folder.parents) if path.is_symlink() or path.exists())
    return None if nearest.is_dir() else nearest


def file_size_limit() -> int | None:
    """Return how large a file this process may write, in bytes (`ulimit -f`); None if that is not limited."""
    soft, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    return None if soft == resource.RLIM_INFINITY else soft


def make_folder(folder: Path, *, sync: bool) -> None:
    """Create a folder and those above it that are missing; with `sync` their names survive a power loss."""
    if not folder.is_dir():
        make_folder(folder.parent, sync=sync)
        folder.mkdir(exist_ok=True)
        if sync:
            sync_folder(folder.parent)

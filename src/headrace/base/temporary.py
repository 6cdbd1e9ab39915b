"""Folders for files that may be lost at any time, where only this user writes.

The folder of temporary files is shared by all users of a machine: whoever creates a name there first owns it. So a
folder is used only if it is this user's, is no link, and nobody else can write to it.
"""

from __future__ import annotations

import os
import stat
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path

CACHE = "HEADRACE_CACHE"
"""The environment variable with the folder of caches and spilled rows; a local disk with room is best."""


def is_ours(folder: Path) -> bool:
    """Whether it is a folder of this user that nobody else can write to."""
    try:
        seen = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(seen.st_mode) and seen.st_uid == os.getuid() and not seen.st_mode & 0o022


def cache_root() -> Path:
    """Return the folder of caches: `$HEADRACE_CACHE`, or one of this user's in the folder of temporary files.

    Where another user has taken that name, this process gets a new folder of its own.
    """
    chosen = os.environ.get(CACHE)
    if chosen:
        return Path(chosen)
    root = Path(tempfile.gettempdir()) / f"headrace-cache-{os.getuid()}"
    with suppress(OSError):
        root.mkdir(mode=0o700, exist_ok=True)
    return root if is_ours(root) else _own(tempfile.gettempdir())


@cache
def _own(parent: str) -> Path:
    return Path(tempfile.mkdtemp(prefix="headrace-cache-", dir=parent))


def spill_folder() -> Path:
    """Return the folder for rows that do not fit in memory; created if necessary."""
    folder = cache_root() / "spill"
    if not folder.is_dir():
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder

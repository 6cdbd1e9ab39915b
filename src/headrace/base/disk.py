"""Making file names survive a power loss."""

from __future__ import annotations

import os
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


def make_folder(folder: Path, *, sync: bool) -> None:
    """Create a folder and those above it that are missing; with `sync` their names survive a power loss."""
    if not folder.is_dir():
        make_folder(folder.parent, sync=sync)
        folder.mkdir(exist_ok=True)
        if sync:
            sync_folder(folder.parent)

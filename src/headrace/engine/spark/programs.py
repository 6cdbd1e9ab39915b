"""Small programs of ours, which Spark starts instead of others: in the user's cache, or else in a temporary folder."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.base.temporary import is_ours

if TYPE_CHECKING:
    from collections.abc import Iterator


def folders() -> Iterator[Path]:
    """Yield folders for programs of ours, best first; the last one is always new and is not removed."""
    cache = os.environ.get("XDG_CACHE_HOME")
    with suppress(RuntimeError):  # a user without a home
        yield (Path(cache) if cache else Path.home() / ".cache") / "headrace"
    shared = Path(tempfile.gettempdir()) / f"headrace-{os.getuid()}"
    with suppress(OSError):
        shared.mkdir(mode=0o700, exist_ok=True)
    if is_ours(shared):
        yield shared
    with suppress(OSError):
        yield Path(tempfile.mkdtemp(prefix="headrace-"))


def write_program(path: Path, text: str) -> bool:
    """Write a program atomically; return whether it was not there yet."""
    if path.is_file() and path.read_text() == text and os.access(path, os.X_OK):
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    number, fresh = tempfile.mkstemp(dir=path.parent, prefix=f"{path.name}.")
    try:
        with os.fdopen(number, "w") as file:
            file.write(text)
        Path(fresh).chmod(0o755)
        Path(fresh).replace(path)
    except OSError:
        Path(fresh).unlink(missing_ok=True)
        raise
    return True

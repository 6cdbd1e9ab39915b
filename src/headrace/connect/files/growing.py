"""A file that grows, line by line: each line is a record.

from headrace.connect import files

app.stream("requests", "path string, status int, at timestamp", event_time="at", source=files.lines("access.jsonl"))
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

from headrace.connect.feed import Feed
from headrace.connect.files.reading_lines import (
    CHUNK_BYTES,
    HEAD_BYTES,
    MARK,
    begins_as,
    decoded,
    head_of,
    land_while,
)
from headrace.connect.formats import format_named

if TYPE_CHECKING:
    import threading

    from headrace.connect.feed import Landing


def lines(path: str | os.PathLike[str], *, format: str = "json", follow: bool = True) -> Lines:  # noqa: A002 -- as in App.stream
    """Return a feed that lands the lines of a file as they are written.

    The position is the file's inode, its first bytes and the number of bytes read, stored with each append: every line
    is landed exactly once, also after crashes. If the file is replaced under its name (log rotation), the new one is
    read from its start; lines that were written to the old one after the last read are lost. A missing file is waited
    for. Empty lines are skipped; a line that cannot be decoded goes to `<topic>.dead`.

    Args:
        path: the file.
        format: the format of a line: "json".
        follow: False: land the lines in the file, also a last one without a line end, then end.

    Raises:
        InvalidPlan: the format is not known.

    """
    format_named(format)
    return Lines(path=str(Path(path).absolute()), format=format, follow=follow)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lines(Feed):
    """The lines of a file; `lines` creates it."""

    path: str
    format: str
    follow: bool

    @property
    def identity(self) -> str:
        """The file."""
        return f"file:{self.path}"

    def run(self, landing: Landing, stop: threading.Event) -> None:
        """Land lines until `stop` is set; without `follow` until the file's end."""
        land_while(self._land, landing, stop, follow=self.follow)

    def _land(self, landing: Landing) -> bool:
        """Land the lines of one chunk; return whether there were any."""
        with Path(self.path).open("rb") as file:
            about = os.fstat(file.fileno())
            stored = json.loads(landing.position() or b"{}")
            start, head = int(stored.get("bytes", 0)), str(stored.get("head", ""))
            if (
                stored.get("inode") != about.st_ino
                or start > about.st_size
                or not begins_as(head, file.read(HEAD_BYTES))
            ):
                start, head = 0, ""  # another file, or it was truncated and is written again
            file.seek(start)
            chunk = self._complete_lines(file)
        if not chunk:
            return False
        rows, dead = decoded(chunk if start else chunk.removeprefix(MARK), landing.schema, self.format)
        at = {"inode": about.st_ino, "bytes": start + len(chunk), "head": head or head_of(chunk)}
        position = json.dumps(at).encode()
        landing.append(rows, position=position, dead=dead)
        return True

    def _complete_lines(self, file: IO[bytes]) -> bytes:
        chunk = b""
        while True:
            more = file.read(CHUNK_BYTES)
            chunk += more
            end = chunk.rfind(b"\n") + 1
            if end:
                return chunk[:end]
            if not more:  # a line that is still being written
                return b"" if self.follow else chunk

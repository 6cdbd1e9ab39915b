"""Files that grow, line by line: each line is a record.

from headrace.connect import files

app.stream("requests", "path string, status int, at timestamp", event_time="at", source=files.lines("access.jsonl"))
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

import pyarrow as pa

from headrace.connect.feed import DeadRecord, Feed
from headrace.connect.formats import format_named

if TYPE_CHECKING:
    import threading

    from headrace.connect.feed import Landing

CHUNK_BYTES = 1 << 20
LOOK_SECONDS = 0.2


def lines(path: str | os.PathLike[str], *, format: str = "json", follow: bool = True) -> Lines:  # noqa: A002 -- as in App.stream
    """Return a feed that lands each line of a file, as it is written.

    The position is the file's inode and the bytes that were read, kept with each append: every line is landed once,
    whatever crashes. A file that is replaced under its name (log rotation) is read from its start; what was written to
    the old one after the last look is not. A file that is not there yet is waited for. Empty lines are left out; a line
    that cannot be decoded goes to `<topic>.dead`.

    Args:
        path: the file.
        format: how a line is written: "json".
        follow: False: land what is there, the last line without a line end too, and end.

    Raises:
        InvalidPlan: the format is not known.

    """
    format_named(format)
    return Lines(path=str(Path(path).absolute()), format=format, follow=follow)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lines(Feed):
    """A file's lines; made by `lines`."""

    path: str
    format: str
    follow: bool

    @property
    def identity(self) -> str:
        """The file."""
        return f"file:{self.path}"

    def run(self, landing: Landing, stop: threading.Event) -> None:
        """Land lines until `stop` is set; without `follow` until the file's end."""
        while not stop.is_set():
            if landing.has_room() and self._land(landing):
                continue
            if not self.follow and landing.has_room():
                return
            stop.wait(LOOK_SECONDS)

    def _land(self, landing: Landing) -> bool:
        """Land what fits one chunk; return whether there was anything."""
        with Path(self.path).open("rb") as file:
            about = os.fstat(file.fileno())
            kept = json.loads(landing.position() or b"{}")
            start = int(kept.get("bytes", 0)) if kept.get("inode") == about.st_ino else 0
            if start > about.st_size:
                start = 0  # it was cut off and is written anew
            file.seek(start)
            chunk = self._whole_lines(file)
        if not chunk:
            return False
        rows, dead = self._decoded(chunk, landing.schema)
        position = json.dumps({"inode": about.st_ino, "bytes": start + len(chunk)}).encode()
        landing.append(rows, position=position, dead=dead)
        return True

    def _whole_lines(self, file: IO[bytes]) -> bytes:
        chunk = b""
        while True:
            more = file.read(CHUNK_BYTES)
            chunk += more
            end = chunk.rfind(b"\n") + 1
            if end:
                return chunk[:end]
            if not more:  # a line that is still being written
                return b"" if self.follow else chunk

    def _decoded(self, chunk: bytes, schema: pa.Schema) -> tuple[pa.RecordBatch, list[DeadRecord]]:
        texts = [line for line in chunk.decode("utf-8", "replace").split("\n") if line.strip()]
        decoded = format_named(self.format).decode(pa.array(texts, pa.string()), schema)
        reasons = decoded.reasons.to_pylist()
        dead = [DeadRecord(text, why) for text, why in zip(texts, reasons, strict=True) if why is not None]
        return decoded.rows, dead

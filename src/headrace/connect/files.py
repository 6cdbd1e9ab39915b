"""Files that grow, line by line, and folders of them: each line is a record.

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

from headrace.base.arguments import a_path, a_text
from headrace.base.time import MICROS, SystemClock
from headrace.connect.feed import DeadRecord, Feed
from headrace.connect.formats import format_named

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable

    from headrace.connect.feed import Landing

CHUNK_BYTES = 1 << 20
LOOK_SECONDS = 0.2
SETTLED_SECONDS = 1.0
"""The last line of a file in a folder needs no line end when the file has not changed for so long."""
CLOCK = SystemClock()


def lines(path: str | os.PathLike[str], *, format: str = "json", follow: bool = True) -> Lines:  # noqa: A002 -- as in App.stream
    """Return a feed that lands the lines of a file as they are written.

    The position is the file's inode and the number of bytes read, stored with each append: every line is landed exactly
    once, also after crashes. If the file is replaced under its name (log rotation), the new one is read from its start;
    lines that were written to the old one after the last read are lost. A missing file is waited for. Empty lines are
    skipped; a line that cannot be decoded goes to `<topic>.dead`.

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
        _run(self._land, landing, stop, follow=self.follow)

    def _land(self, landing: Landing) -> bool:
        """Land the lines of one chunk; return whether there were any."""
        with Path(self.path).open("rb") as file:
            about = os.fstat(file.fileno())
            stored = json.loads(landing.position() or b"{}")
            start = int(stored.get("bytes", 0)) if stored.get("inode") == about.st_ino else 0
            if start > about.st_size:
                start = 0  # it was truncated and is written again
            file.seek(start)
            chunk = self._complete_lines(file)
        if not chunk:
            return False
        rows, dead = decoded(chunk, landing.schema, self.format)
        position = json.dumps({"inode": about.st_ino, "bytes": start + len(chunk)}).encode()
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


def _run(land: Callable[[Landing], bool], landing: Landing, stop: threading.Event, *, follow: bool) -> None:
    """Call `land` while it finds something; without `follow` until it finds nothing, else until `stop` is set."""
    while not stop.is_set():
        if landing.has_room() and land(landing):
            continue
        if not follow and landing.has_room():
            return
        stop.wait(LOOK_SECONDS)


def decoded(chunk: bytes, schema: pa.Schema, form: str) -> tuple[pa.RecordBatch, list[DeadRecord]]:
    """Return the lines of a chunk as rows, and those that cannot be decoded."""
    texts = [line for line in chunk.decode("utf-8", "replace").split("\n") if line.strip()]
    found = format_named(form).decode(pa.array(texts, pa.string()), schema)
    reasons = found.reasons.to_pylist()
    dead = [DeadRecord(text, why) for text, why in zip(texts, reasons, strict=True) if why is not None]
    return found.rows, dead


def folder(
    path: str | os.PathLike[str],
    pattern: str = "*",
    *,
    format: str = "json",  # noqa: A002 -- as in App.stream
    follow: bool = True,
) -> Folder:
    """Return a feed that lands the lines of all files of a folder, also of those that come later: each exactly once.

    The position is how far each file was read, by its inode, stored with each append; files that are gone are
    forgotten. So a file may be renamed inside the folder, and may grow. The last line of a file needs no line end once
    the file has not changed for a second: write files aside and rename them, or end lines. Files whose names begin
    with a dot are left alone. Files are read in the order of their names. A line that cannot be decoded goes to
    `<topic>.dead`.

    Args:
        path: the folder; it is waited for.
        pattern: which names, such as `"*.jsonl"`.
        format: the format of a line: "json".
        follow: False: land what is in the folder, then end.

    Raises:
        InvalidPlan: the format is not known.
        InvalidArgument: the path or the pattern is none.

    """
    format_named(format)
    a_text(pattern, "pattern")
    return Folder(path=str(a_path(path, "path").absolute()), pattern=pattern, format=format, follow=follow)


@dataclass(frozen=True, slots=True, kw_only=True)
class Folder(Feed):
    """The lines of the files of a folder; `folder` creates it."""

    path: str
    pattern: str
    format: str
    follow: bool

    @property
    def identity(self) -> str:
        """The folder."""
        return f"folder:{self.path}"

    def run(self, landing: Landing, stop: threading.Event) -> None:
        """Land lines until `stop` is set; without `follow` until all files are read."""
        _run(self._land, landing, stop, follow=self.follow)

    def _land(self, landing: Landing) -> bool:
        """Land the lines of one chunk of the first file that has some; return whether there were any."""
        read: dict[str, int] = json.loads(landing.position() or b"{}")
        files = sorted(each for each in Path(self.path).glob(self.pattern) if each.name[0] != "." and each.is_file())
        present: dict[str, int] = {}
        found: tuple[str, int, bytes] | None = None
        for each in files:
            try:
                about = each.stat()
                known = f"{about.st_dev}:{about.st_ino}"
                start = read.get(known, 0) if read.get(known, 0) <= about.st_size else 0
                present[known] = start
                if found is None and start < about.st_size and (chunk := self._chunk(each, start, about)):
                    found = known, start, chunk
            except FileNotFoundError:
                continue  # it was taken away meanwhile
        if found is None:
            return False
        known, start, chunk = found
        rows, dead = decoded(chunk, landing.schema, self.format)
        position = json.dumps(present | {known: start + len(chunk)}).encode()
        landing.append(rows, position=position, dead=dead)
        return True

    def _chunk(self, path: Path, start: int, about: os.stat_result) -> bytes:
        """Return whole lines from a place of a file; the last one needs no end when the file is unchanged."""
        with path.open("rb") as file:
            file.seek(start)
            chunk = b""
            while more := file.read(CHUNK_BYTES):
                chunk += more
                if end := chunk.rfind(b"\n") + 1:
                    return chunk[:end]
        unchanged = CLOCK.now() - about.st_mtime_ns // 1_000 >= SETTLED_SECONDS * MICROS
        return chunk if unchanged or not self.follow else b""

"""The files of a place: the lines of each are landed once, also of those that come later.

The position says how far each file was read: by its version, with the instant of its last change and a hash of how it
begins. A file system gives the number of a file that was removed to another one, which begins in another way.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from headrace.base.arguments import a_path, a_text
from headrace.connect.feed import Feed
from headrace.connect.files.places import FolderPlace, for_readers
from headrace.connect.files.reading_lines import (
    CHUNK_BYTES,
    HEAD_BYTES,
    LOOK_SECONDS,
    MARK,
    begins_as,
    decoded,
    head_of,
    land_while,
)
from headrace.connect.formats import format_named

if TYPE_CHECKING:
    import os
    import threading
    from collections.abc import Iterator

    from headrace.connect.feed import Landing
    from headrace.connect.files.places import OpenPlace, Place, Stored


def folder(
    path: str | os.PathLike[str],
    pattern: str = "*",
    *,
    format: str = "json",  # noqa: A002 -- as in App.stream
    header: bool = False,
    follow: bool = True,
) -> FilesFeed:
    """Return a feed that lands the lines of all files of a folder, also of those that come later: each exactly once.

    The position is how far each file was read, by its inode and its first 1,024 bytes, stored with each append; files
    that are gone are forgotten, unless the folder is gone too. So a file may be renamed inside it, and may grow. The
    last line of a file needs no line end once the file has not changed for a second: write files aside and rename them,
    or end lines. Files whose names begin with a dot are left alone. Files are read in the order of their names. A line
    that cannot be decoded goes to `<topic>.dead`.

    Args:
        path: the folder; it is waited for.
        pattern: which names, such as `"*.jsonl"`; `"**/*.jsonl"` also those in folders below.
        format: the format of a line: "json" or "csv", where no value may have a line end.
        header: whether the first line of each file is left out.
        follow: False: land what is in the folder, then end.

    Raises:
        InvalidPlan: the format is not known.
        InvalidArgument: the path or the pattern is none.

    """
    format_named(format)
    place = FolderPlace(str(a_path(path, "path").absolute()), a_text(pattern, "pattern"))
    return FilesFeed(place=place, format=format, header=header, follow=follow)


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesFeed(Feed):
    """The lines of the files of a place. `ordered`: a file whose name sorts before one that was read is never read.

    `every`: how many seconds after nothing new was found it is looked again.
    """

    place: Place
    format: str
    header: bool = False
    follow: bool = True
    ordered: bool = False
    every: float = LOOK_SECONDS

    @property
    def identity(self) -> str:
        """The place."""
        return self.place.identity

    def check(self) -> None:
        """Ask whether the place can be read; raises as it does."""
        self.place.check()

    def run(self, landing: Landing, stop: threading.Event) -> None:
        """Land lines until `stop` is set; without `follow` until all files are read."""
        reading = PlaceReading(self, self.place.open(), landing, stop)
        land_while(lambda _: reading.land(), landing, stop, follow=self.follow, every=self.every)


class _Read(NamedTuple):
    """How far a file was read: bytes, its last change then, and a hash of its first bytes with their number."""

    bytes: int = 0
    changed: int = 0
    head: str = ""


class PlaceReading:
    """Reads the files of a place from where the last append ended."""

    def __init__(self, feed: FilesFeed, place: OpenPlace, landing: Landing, stop: threading.Event) -> None:
        self._feed, self._place, self._landing, self._stop = feed, place, landing, stop
        stored = json.loads(landing.position() or b"{}")
        self._after: str = stored.get("after", "")
        self._read = {version: _Read(*each) for version, each in stored.get("read", {}).items()}
        self._chunk: list[bytes] = []
        self._bytes = 0
        self._moved = False

    def land(self) -> bool:
        """Land what all files have that was not read yet; return whether there was anything."""
        present, found = set[str](), False
        for file in self._place.files(after=self._after):
            if not for_readers(file.name):
                continue
            present.add(file.version)
            for lines in self._unread(file):
                self._chunk.append(lines)
                self._bytes += len(lines)
                if self._bytes >= CHUNK_BYTES:
                    found = self._append()
                    if self._stop.is_set() or not self._landing.has_room():
                        return True
        if not self._read.keys() <= present:  # one that was renamed meanwhile is seen when it is looked again
            present |= {file.version for file in self._place.files(after=self._after) if for_readers(file.name)}
        if self._place.can_be_read():
            self._read = {version: read for version, read in self._read.items() if version in present}
        return self._append() or found

    def _append(self) -> bool:
        if not self._moved:
            return False
        rows, dead = decoded(b"".join(self._chunk), self._landing.schema, self._feed.format)
        position = json.dumps({"after": self._after, "read": self._read}).encode()
        self._landing.append(rows, position=position, dead=dead)
        self._chunk, self._bytes, self._moved = [], 0, False
        return True

    def _unread(self, file: Stored) -> Iterator[bytes]:
        """Yield the whole lines of a file that were not read; the last one needs no end when the file is complete."""
        try:
            read = self._known(file)
            while chunk := self._lines(file, read.bytes):
                read = _Read(read.bytes + len(chunk), file.changed, read.head or head_of(chunk))
                self._read[file.version], self._moved = read, True
                if read.bytes == len(chunk):
                    chunk = self._behind_header(chunk)
                yield chunk if chunk.endswith(b"\n") or not chunk else chunk + b"\n"
        except FileNotFoundError:
            return  # it was taken away meanwhile
        if self._feed.ordered and read.bytes >= file.size and file.complete:
            self._after = file.name
            self._read.pop(file.version, None)

    def _behind_header(self, first: bytes) -> bytes:
        """Return the records in what a file begins with."""
        if self._feed.header:
            return first[first.find(b"\n") + 1 :] if b"\n" in first else b""
        return first.removeprefix(MARK)

    def _known(self, file: Stored) -> _Read:
        """Return how far a file was read; nothing of it where another one has its number."""
        read = self._read.get(file.version, _Read())
        if not read.bytes or (read.bytes == file.size and read.changed == file.changed):
            return read
        same = read.bytes <= file.size and begins_as(read.head, self._place.read(file, 0, HEAD_BYTES))
        return read if same else _Read()

    def _lines(self, file: Stored, start: int) -> bytes:
        chunk = b""
        while start + len(chunk) < file.size:
            chunk += self._place.read(file, start + len(chunk), min(CHUNK_BYTES, file.size - start - len(chunk)))
            if end := chunk.rfind(b"\n") + 1:
                return chunk[:end]
        return chunk if file.complete or not self._feed.follow else b""

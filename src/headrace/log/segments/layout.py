"""The layout of a partition: which files hold its closed segments, as cleaning left them.

One small file names them; it is replaced as a whole, and by that alone a cleaning happens: before it the old files
count, after it the new ones, and what it does not name is left over from one or the other. Segments from `upto` on are
those that were appended since: they are found by their names. Without the file every segment is.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from headrace.base.crc import crc32
from headrace.base.disk import sync_folder
from headrace.base.errors import CorruptBatch
from headrace.log.segments.segment import INDEX, SEGMENT, bases

if TYPE_CHECKING:
    from collections.abc import Iterator

FILE_NAME = "layout.json"
DRAFT = ".draft"


class SegmentEntry(NamedTuple):
    """A closed segment with the offsets [base, end); compaction may have removed records from it."""

    base: int
    end: int
    name: str  # of its files, without suffix
    size: int  # of the segment's file
    rows: int
    newest: int  # append time of its newest record
    cleaned: bool = False  # everything before its end was compacted together
    due: int = 0  # when the first tombstone in it may be removed; 0 if there is none
    archive: str = ""  # the folder it was moved to; empty if it was not

    def segment_path(self, folder: Path) -> Path:
        """Return the path of the segment's file."""
        return (Path(self.archive) if self.archive else folder) / (self.name + SEGMENT)

    def index_path(self, folder: Path) -> Path:
        """Return the path of the index, which stays when its segment is archived."""
        return folder / (self.name + INDEX)


class Layout(NamedTuple):
    """The closed segments as of the last cleaning."""

    version: int = 0
    start: int = 0  # the first offset that was not deleted
    upto: int = 0  # from this offset on segments are found by their names
    entries: tuple[SegmentEntry, ...] = ()
    producers: tuple[tuple[str, int, int, int], ...] = ()  # their last appends before `upto`

    def live(self, listed: list[int]) -> list[int]:
        """Return the first offsets of segments that were appended since the cleaning."""
        return [base for base in listed if base >= self.upto]

    def files(self) -> set[str]:
        """Return the names of the files in the partition's own folder."""
        return {entry.name + INDEX for entry in self.entries} | {
            entry.name + SEGMENT for entry in self.entries if not entry.archive
        }


def read(folder: Path) -> Layout:
    """Return the layout of a partition; an empty one if it was never cleaned.

    Raises:
        CorruptBatch: the file is damaged.

    """
    path = folder / FILE_NAME
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        return Layout()
    try:
        checksum, _, body = raw.partition(b"\n")
        if checksum != b"%08x" % crc32(body):
            raise ValueError("checksum")  # noqa: TRY301 - all kinds of damage are one error
        content = json.loads(body)
    except ValueError:
        raise CorruptBatch(
            f"the list of closed segments {path} is damaged", hint="Restore the file from a copy."
        ) from None
    entries = tuple(SegmentEntry(*entry) for entry in content.pop("pieces"))
    producers = tuple(tuple(last) for last in content.pop("producers"))
    return Layout(**content, entries=entries, producers=producers)


def listed(folder: Path) -> tuple[Layout, list[int]]:
    """Return the layout and the first offsets of the segments appended since, ascending."""
    found = bases(folder)  # first: what a cleaning removes from the list meanwhile, the layout then names
    layout = read(folder)
    return layout, layout.live(found)


def write(folder: Path, layout: Layout, *, fsync: bool) -> None:
    """Replace the layout, atomically and durably."""
    content = layout._asdict()
    content["pieces"] = content.pop("entries")  # as the file has always called them
    body = json.dumps(content, separators=(",", ":")).encode()
    draft = folder / (FILE_NAME + DRAFT)
    with draft.open("wb") as file:
        file.write(b"%08x\n%s" % (crc32(body), body))
        file.flush()
        if fsync:
            os.fsync(file.fileno())
    draft.replace(folder / FILE_NAME)
    if fsync:
        sync_folder(folder)


def leftovers(folder: Path, layout: Layout) -> Iterator[Path]:
    """Yield the files of segments that are not in the layout and were not appended since."""
    named = layout.files()
    for name in os.listdir(folder):  # noqa: PTH208 - names are all that is wanted
        stem, suffix = os.path.splitext(name)  # noqa: PTH122 - the same
        if suffix == DRAFT and (stem == FILE_NAME or "-" in stem):  # others belong to an appender
            yield folder / name
        if suffix not in (SEGMENT, INDEX) or name in named:
            continue
        appended = len(stem) == 20 and stem.isdecimal()  # noqa: PLR2004 - the digits of an offset
        if not appended or int(stem) < layout.upto:
            yield folder / name

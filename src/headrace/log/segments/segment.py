"""A segment: one file of frames, mapped for reading, with an index that is rebuilt rather than trusted.

The index is the list of the frames' headers: offsets, positions and event times of everything in the segment. A
closed segment has it in a file next to it; if that is missing or wrong, the headers are read again.
"""

from __future__ import annotations

import mmap
import os
import threading
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from headrace.base.crc import crc32
from headrace.base.errors import CorruptBatch
from headrace.log.segments import frame as framing
from headrace.log.segments.frame import HEADER_SIZE, HOLE, SUMS

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from headrace.log.segments.frame import Frame

_MAGIC = b"HRINDEX\x01"
_PREFIX = len(_MAGIC) + 8 + 4
SEGMENT, INDEX = ".segment", ".index"
_DIGITS = 20


class TopicPartition(NamedTuple):
    """The topic and the partition that a file belongs to, for errors."""

    topic: str
    partition: int


def name_of(base: int) -> str:
    """Return the name of the files of an appended segment; cleaning adds a version to it."""
    return f"{base:0{_DIGITS}d}"


def segment_path(folder: Path, base: int) -> Path:
    """Return the path of the segment whose first offset is `base`."""
    return folder / (name_of(base) + SEGMENT)


def index_path(folder: Path, base: int) -> Path:
    """Return the path of that segment's index."""
    return folder / (name_of(base) + INDEX)


def bases(folder: Path) -> list[int]:
    """Return the first offsets of the segments that were appended to in a folder, ascending."""
    names = os.listdir(folder)  # noqa: PTH208 - faster, and only names are needed
    length = _DIGITS + len(SEGMENT)
    found = [name[:_DIGITS] for name in names if len(name) == length and name.endswith(SEGMENT)]
    return sorted(int(name) for name in found if name.isdecimal())


class Segment:
    """The frames of one file; many threads may use it."""

    def __init__(self, path: Path, index: Path, base: int, topic_partition: TopicPartition) -> None:
        self.base = base
        self.path = path
        self.index_path = index
        self.topic_partition = topic_partition
        self._lock = threading.Lock()
        self._data: mmap.mmap | None = None
        self._buffer: pa.Buffer = None
        self._headers = b""
        self._frames = framing.as_array(b"")
        self._indexed_upto = 0  # the position up to which the index was read
        self._checked: dict[int, frozenset[int] | None] = {}  # of frames, by position: these columns; None: all

    def size(self) -> int:
        """Return the file's length."""
        return self.path.stat().st_size

    def frames(self, stop: int, end: int) -> NDArray[np.void]:
        """Return the index up to the position `stop`, at which the offset is `end`."""
        with self._lock:
            if self._indexed_upto < stop:
                self._read_index(stop, end)
            return self._frames

    def hold(self, upto: int) -> None:
        """Map the file up to a position, so that it can be read even after it is deleted.

        Raises:
            FileNotFoundError: it was deleted, or never existed.

        """
        with self._lock:
            if upto:
                self._mapped(upto)

    def let_go(self) -> None:
        """Release the memory of the mapped bytes; they can still be read."""
        with self._lock:
            if self._data is not None:
                self._data.madvise(mmap.MADV_DONTNEED)

    def frame(self, number: int) -> Frame:
        """Return one frame of the index."""
        return framing.unpack(self._headers[number * HEADER_SIZE : (number + 1) * HEADER_SIZE])

    def payload(self, number: int, frame: Frame | None = None, columns: frozenset[int] | None = None) -> pa.Buffer:
        """Return the bytes of a frame's batch, mapped; each is checked once while the segment is open.

        `frame` is `frame(number)`, if the caller has it. `columns`: only these will be read; others may be damaged.

        Raises:
            CorruptBatch: header or payload are damaged.

        """
        frame = frame or self.frame(number)
        with self._lock:
            if frame.flags & HOLE:
                raise self.corrupt(frame, "no valid batch starts here")
            data = self._mapped(frame.end)
            buffer = self._buffer
        self._check(data, frame, columns if frame.flags & SUMS else None)  # two threads may both check a frame
        return buffer.slice(frame.position + HEADER_SIZE, frame.length)

    def corrupt(self, frame: Frame, why: str) -> CorruptBatch:
        """Return the error that names the damaged frame."""
        topic, partition = self.topic_partition
        return CorruptBatch(
            f'topic "{topic}", partition {partition}: the records at offsets {frame.base} to {frame.next - 1} '
            f"are damaged",
            detail=f"File {self.path}, position {frame.position}: {why}.",
            hint=f"Restore the file from a copy, or read on from offset {frame.next}.",
        )

    def save_index(self, stop: int, end: int) -> None:
        """Write the index of a segment that is closed at `stop`."""
        self.frames(stop, end)
        body = stop.to_bytes(8, "little") + self._headers
        raw = _MAGIC + crc32(body).to_bytes(4, "little") + body
        draft = self.index_path.with_suffix(".draft")
        draft.write_bytes(raw)
        draft.replace(self.index_path)

    def saved_index(self, stop: int) -> bytes | None:
        """Return the headers in the index file, if it is intact and belongs to a segment of this length."""
        try:
            raw = self.index_path.read_bytes()
        except OSError:
            return None
        body = raw[len(_MAGIC) + 4 :]
        intact = raw.startswith(_MAGIC) and crc32(body).to_bytes(4, "little") == raw[len(_MAGIC) : _PREFIX - 8]
        return body[8:] if intact and int.from_bytes(body[:8], "little") == stop else None

    def _check(self, data: mmap.mmap, frame: Frame, columns: frozenset[int] | None) -> None:
        """Check a frame's columns, or all of it, unless that was done before."""
        known: frozenset[int] | None = self._checked.get(frame.position, frozenset())
        if known is None or (columns is not None and frame.position in self._checked and columns <= known):
            return
        if framing.parse(data, frame.position) != frame:
            raise self.corrupt(frame, "the batch's header does not match its checksum or the index")
        with memoryview(data) as view:
            if not framing.payload_is_whole(view, frame, None if columns is None else columns - known):
                raise self.corrupt(frame, "the batch's content does not match its checksum")
        self._checked[frame.position] = None if columns is None else columns | known

    def _read_index(self, stop: int, end: int) -> None:
        headers = self.saved_index(stop) if not self._indexed_upto else None
        if headers is None:
            first = self.base if not len(self._frames) else int(self._frames["next"][-1])
            data = self._mapped(stop)
            headers = self._headers + b"".join(framing.walk(data, self._indexed_upto, stop, offset=first, end=end))
        self._headers, self._frames, self._indexed_upto = headers, framing.as_array(headers), stop

    def _mapped(self, upto: int) -> mmap.mmap:
        """Return a map of at least this many bytes; earlier maps live as long as arrays that use them."""
        if self._data is None or len(self._data) < upto:
            fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                size = os.fstat(fd).st_size
                if size < upto:
                    lost = framing.unpack(framing.hole(size, upto, base=self.base, following=self.base + 1))
                    raise self.corrupt(lost, f"the file has {size} bytes, {upto} were acknowledged")
                self._data = mmap.mmap(fd, 0, access=mmap.ACCESS_READ)
            finally:
                os.close(fd)
            self._buffer = pa.py_buffer(self._data)
        return self._data

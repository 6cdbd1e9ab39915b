"""The file of a landing: its last append and the position after it, with checksums.

The file has two places, which are written in turn, so that an append costs one sync of bytes that are there already.
Its head says which place has the last append. It is written when the place is durable, and not synced: a process that
dies in the midst of writing leaves the other place, and the head that names it. After a power loss the head may be
older than the places: then the newest place that is whole is the last append. A place that the head names, or a newer
one, must be whole, or else the file is damaged.

Larger content than a place has room for replaces the file.
"""

from __future__ import annotations

import fcntl
import io
import json
import os
import struct
import uuid
from contextlib import closing, suppress
from typing import IO, TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from headrace.base.crc import crc32
from headrace.base.disk import make_folder, sync_folder, write_all, write_at
from headrace.base.errors import DamagedFile
from headrace.base.outside import FeedRunsElsewhere

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    Contents = tuple[dict[bytes, bytes], dict[str, pa.Table]]
    """What a file says, and rows by name."""

FOLDER = "landings"
_HEAD = struct.Struct("<8sQQI")  # what it is, the room of a place, the number of the last content, CRC-32
_PLACE = struct.Struct("<QQII")  # the number of the content, its length and its CRC-32, CRC-32 of these
_MAGIC = b"HRLAND02"
_PAGE = 4096
_ROOM = 4  # pages
_WASTED = 16
"""A file whose places have so many times the room that is needed is written anew when its landing is opened."""
_SHORT = 1_000
"""Longer values of what the file says are not in its line of JSON, where a byte takes up to six: a position with the
ids of messages has 160 kB."""
_SEAL = b"HRSUM %08x\n"  # the end of a file of earlier releases: the CRC-32 of all before it
_SEAL_BYTES = len(_SEAL % 0)
_ARROW_END = b"ARROW1"


class _Stored(NamedTuple):
    """The last content of a file; `head`: the number that the head has."""

    room: int
    head: int
    number: int
    content: memoryview


def write(path: Path, about: Mapping[bytes, bytes], parts: Mapping[str, pa.Table], *, sync: bool) -> None:
    """Store what the file says, and rows by name. With `sync` it is durable on return."""
    content = _packed(about, parts)
    with suppress(FileNotFoundError), path.open("r+b", buffering=0) as file:
        if _written(file.fileno(), content, sync=sync):
            return
    _anew(path, content, sync=sync)


def replace(path: Path, content: Sequence[bytes | memoryview], *, sync: bool) -> None:
    """Replace a file atomically."""
    aside = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        with aside.open("wb") as file:
            for each in content:
                write_all(file, each)
            file.flush()
            if sync:
                os.fsync(file.fileno())
        aside.replace(path)
        if sync:
            sync_folder(path.parent)
    finally:
        aside.unlink(missing_ok=True)


def recovered(path: Path) -> Contents:
    """Do as `read`, before the first `write`, by who has the lock: what a process left that died is the last content.

    Raises:
        FileNotFoundError: it does not exist.
        DamagedFile: it is not as it was written.

    """
    raw, found = _read(path)
    if raw.startswith(_MAGIC):
        stored = _stored(raw)
        if stored.room > _WASTED * max(len(stored.content), _PAGE):
            _anew(path, [stored.content], sync=True)
        elif stored.number != stored.head:
            with path.open("r+b", buffering=0) as file:
                os.pwrite(file.fileno(), _packed_head(stored.room, stored.number), 0)
    return found


def read(path: Path) -> Contents:
    """Return what the file says, and the rows by name.

    Raises:
        FileNotFoundError: it does not exist.
        DamagedFile: it is not as it was written.

    """
    return _read(path)[1]


def _read(path: Path) -> tuple[bytes, Contents]:
    """Return the bytes of a file, and what they say; raises as `read` does."""
    try:
        return _parsed(path)
    except FileNotFoundError:
        raise
    except (pa.ArrowException, OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise damaged(path, str(error)) from error


def locked(path: Path, name: str) -> IO[str]:
    """Return a lock on the file of a topic, or of topics that are filled together.

    Raises:
        FeedRunsElsewhere: another process has it.

    """
    make_folder(path.parent, sync=True)
    lock = path.with_name(f".{path.name}.lock").open("a+")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        lock.close()
        raise FeedRunsElsewhere(name) from None
    return lock


def damaged(path: Path, why: str) -> DamagedFile:
    """Return the error that the file is gone, or not as it was written."""
    hint = (
        "Restore it from a copy. It has the feed's position: if you remove it, the feed starts from its beginning, "
        f'and what it has landed in the topic "{path.name}" comes once more.'
    )
    return DamagedFile(str(path), why, hint=hint)


def _written(fd: int, content: Sequence[memoryview], *, sync: bool) -> bool:
    """Write content to the place that does not have the last one; False: there is no room, or there are no places."""
    head, length = _head(os.pread(fd, _HEAD.size, 0)), sum(len(each) for each in content)
    if head is None or length + _PLACE.size > head[0]:
        return False
    room, number = head[0], head[1] + 1
    write_at(fd, [_place(number, content), *content], _PAGE + number % 2 * room)
    if sync:
        getattr(os, "fdatasync", os.fsync)(fd)
    os.pwrite(fd, _packed_head(room, number), 0)
    return True


def _anew(path: Path, content: Sequence[memoryview], *, sync: bool) -> None:
    """Replace the file by one with room for as much as this content, and somewhat more."""
    length = sum(len(each) for each in content) + _PLACE.size
    pages = length // _PAGE + length // _PAGE // 4 + _ROOM
    head = _packed_head(pages * _PAGE, 0)
    replace(path, (head, bytes(_PAGE - len(head)), _place(0, content), *content), sync=sync)


def _head(raw: bytes) -> tuple[int, int] | None:
    """Return the room of a place and the number of the last content; None: it is no head."""
    if len(raw) < _HEAD.size:
        return None
    magic, room, number, checksum = _HEAD.unpack_from(raw)
    return (room, number) if magic == _MAGIC and checksum == crc32(raw[: _HEAD.size - 4]) else None


def _packed_head(room: int, number: int) -> bytes:
    head = _HEAD.pack(_MAGIC, room, number, 0)[:-4]
    return head + struct.pack("<I", crc32(head))


def _place(number: int, content: Sequence[memoryview]) -> bytes:
    checksum = 0
    for each in content:
        checksum = crc32(each, checksum)
    place = _PLACE.pack(number, sum(len(each) for each in content), checksum, 0)[:-4]
    return place + struct.pack("<I", crc32(place))


def _stored(raw: bytes) -> _Stored:
    """Return the newest content that is whole.

    Raises:
        ValueError: the head is not as it was written, or the content that it names.

    """
    head = _head(raw)
    if head is None or any(raw[_HEAD.size : _PAGE]):
        raise ValueError("its head does not match its checksum")
    room, last = head
    found = [each for at in (_PAGE, _PAGE + room) if (each := _whole(raw, at)) is not None and each[0] >= last]
    if not found:
        raise ValueError("its content does not match its checksum")
    number, content = max(found, key=lambda each: each[0])
    return _Stored(room, last, number, content)


def _whole(raw: bytes, at: int) -> tuple[int, memoryview] | None:
    """Return the number and the content of a place, None if it is not whole."""
    place = raw[at : at + _PLACE.size]
    if len(place) < _PLACE.size:
        return None
    number, length, checksum, own = _PLACE.unpack(place)
    content = memoryview(raw)[at + _PLACE.size : at + _PLACE.size + length]
    whole = own == crc32(place[:-4]) and len(content) == length and crc32(content) == checksum
    return (number, content) if whole else None


def _parsed(path: Path) -> tuple[bytes, Contents]:
    """Return what `write` wrote; what is written meanwhile is read again."""
    raw = path.read_bytes()
    while True:
        try:
            return raw, _contents(raw)
        except ValueError:
            again = path.read_bytes()
            if again == raw:
                raise
            raw = again


def _contents(raw: bytes) -> Contents:
    """Return what a file contains. Files of earlier releases are Arrow files, the oldest without a checksum."""
    if raw.startswith(_MAGIC[:-2]):
        return _unpacked(_stored(raw).content)
    body, seal = raw[:-_SEAL_BYTES], raw[-_SEAL_BYTES:]
    if seal == _SEAL % crc32(body):
        raw = body
    elif not raw.endswith(_ARROW_END):
        raise ValueError("its content does not match its checksum")
    with pa.ipc.open_file(pa.BufferReader(raw)) as stored:
        batch = stored.get_batch(0)
        parts = {name: pa.ipc.open_stream(batch.column(name)[0].as_buffer()).read_all() for name in batch.schema.names}
        return dict(stored.schema.metadata), parts


class _Pieces(io.RawIOBase):
    """What Arrow writes, piece by piece: the columns of a table are not copied."""

    def __init__(self) -> None:
        self.pieces: list[memoryview] = []

    def write(self, piece: Any) -> int:
        view = memoryview(piece).cast("B")
        self.pieces.append(view)
        return len(view)

    def writable(self) -> bool:
        return True


def _packed(about: Mapping[bytes, bytes], parts: Mapping[str, pa.Table]) -> list[memoryview]:
    """Return a line of JSON, long values of `about` as they are, then the rows as Arrow streams; it has their sizes."""
    sizes: dict[str, int] = {}
    pieces: list[memoryview] = []
    for name, rows in parts.items():
        out = _Pieces()
        with closing(pa.PythonFile(out, mode="w")) as file, pa.ipc.new_stream(file, rows.schema) as stream:
            stream.write_table(rows)
        sizes[name] = sum(len(each) for each in out.pieces)
        pieces += out.pieces
    long = {key: value for key, value in about.items() if len(value) > _SHORT}
    said = {key.decode("latin-1"): value.decode("latin-1") for key, value in about.items() if key not in long}
    line = {"about": said, "sizes": sizes}
    if long:
        line["long"] = {key.decode("latin-1"): len(value) for key, value in long.items()}
    return [memoryview(json.dumps(line).encode() + b"\n"), *(memoryview(each) for each in long.values()), *pieces]


def _unpacked(content: memoryview) -> Contents:
    line, _, _ = bytes(content).partition(b"\n")
    said, at, parts = json.loads(line), len(line) + 1, {}
    about = {key.encode("latin-1"): value.encode("latin-1") for key, value in said["about"].items()}
    for key, size in said.get("long", {}).items():  # earlier releases have all values in the line
        about[key.encode("latin-1")] = bytes(content[at : at + size])
        at += size
    for name, size in said["sizes"].items():
        parts[name] = pa.ipc.open_stream(pa.py_buffer(content[at : at + size])).read_all()
        at += size
    return about, parts

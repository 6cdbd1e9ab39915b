"""Checksummed files of Arrow tables: state deltas and staged outputs.

A file is its sections, each an Arrow IPC stream, then a line of JSON (the sections with their lengths and CRC-32, and
free metadata), then a fixed tail that finds and checks the line. It is written under a name of its own, synced, and
never changed: a commit says its name.
"""

from __future__ import annotations

import json
import os
import struct
from typing import IO, TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from headrace.base.crc import crc32
from headrace.base.disk import SyncAhead, make_folder, pieces, sync_folder, write_all
from headrace.base.errors import DamagedFile
from headrace.kernels.arrays import room
from headrace.kernels.narrow import is_narrow, narrowed, widened

if TYPE_CHECKING:
    from collections.abc import Container, Iterator, Mapping, Sequence
    from pathlib import Path

_TAIL = struct.Struct("<4sIQ")
_MAGIC = b"HRT1"
COMPRESSED_FROM = 1 << 20
"""Tables of so many bytes travel compressed: counts are mostly zeros, and pipes and exchanges cost by the byte."""


class Later(Protocol):
    """What makes files durable after they are written, and before the commit that names them."""

    def add(self, path: Path, size: int) -> None:
        """Take charge of a file that has just been written, and of the names of its folders."""
        ...


def write_tables(
    path: Path,
    tables: Mapping[str, pa.Table | pa.RecordBatchReader],
    metadata: Mapping[str, Any],
    *,
    sync: bool | Later,
) -> int:
    """Write tables and metadata to a new file, and return its size in bytes.

    A reader instead of a table is written batch by batch. `sync`: the file is on the disk when this returns; or
    something else takes charge of that; or it need not be.
    """
    make_folder(path.parent, sync=sync is True)
    sections = []
    with path.open("wb") as raw:
        ahead = None if sync is False else SyncAhead(raw.fileno(), 0)
        for name, table in tables.items():
            file = _Checked(raw, ahead)
            with pa.PythonFile(file, "w") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
                for batch in table.to_batches() if isinstance(table, pa.Table) else table:
                    writer.write_batch(batch)
            sections.append([name, file.size, file.checksum])
        _end(raw, sections, metadata)
        if sync is True:
            os.fsync(raw.fileno())
            sync_folder(path.parent)
        size = raw.tell()
    if not isinstance(sync, bool):
        sync.add(path, size)
    return size


def _end(raw: IO[bytes], sections: Sequence[Any], metadata: Mapping[str, Any]) -> None:
    line = json.dumps({"sections": sections, "metadata": dict(metadata)}).encode()
    raw.write(line)
    raw.write(_TAIL.pack(_MAGIC, crc32(line), len(line)))
    raw.flush()


def write_bytes(path: Path, contents: Mapping[str, bytes]) -> None:
    """Write named bytes to a new file, which is on the disk when this returns."""
    make_folder(path.parent, sync=True)
    with path.open("wb") as raw:
        for content in contents.values():
            write_all(raw, content)
        _end(raw, [[name, len(content), crc32(content)] for name, content in contents.items()], {})
        os.fsync(raw.fileno())
    sync_folder(path.parent)


def read_bytes(path: Path) -> dict[str, pa.Buffer]:
    """Return what `write_bytes` wrote.

    Raises:
        DamagedFile: it is missing, cut short, or does not match its checksums.

    """
    data = _mapped(path)
    return dict(_sections(path, data, _about(path, data)))


class _Checked:
    """A file for Arrow to write to, which counts bytes and computes their checksum.

    `ahead`: the disk begins with what is written of the file before all is; somebody will wait for it.
    """

    closed = False

    def __init__(self, raw: Any, ahead: SyncAhead | None) -> None:
        self.raw = raw
        self.size = 0
        self.checksum = 0
        self._first, self._ahead = raw.tell(), ahead

    def write(self, data: Any) -> int:
        """Write, count, add to the checksum."""
        before = self.size
        for piece in pieces(data):
            self.checksum = crc32(piece, self.checksum)
            self.size += self.raw.write(piece)
            if self._ahead is not None:
                self._ahead.reached(self._first + self.size)
        return self.size - before

    def tell(self) -> int:
        """Return where in the section the next byte goes."""
        return self.size

    def flush(self) -> None:
        """Leave it to the owner of the file."""

    def close(self) -> None:
        """Leave it to the owner of the file."""


def read_tables(
    path: Path, *, named: Container[str] | None = None, checked: bool = True
) -> tuple[dict[str, pa.Table], dict[str, Any]]:
    """Return the tables and the metadata of a file; where some are `named`, the others are not read.

    `checked` False: this process has just written the file, so checksums of its tables would say nothing.

    Raises:
        DamagedFile: it is missing, cut short, or a checksum of what is read does not match.

    """
    data = _mapped(path)
    about = _about(path, data)
    parts = _sections(path, data, about, named, checked=checked)
    return {name: decode(part) for name, part in parts}, about["metadata"]


def _sections(
    path: Path,
    data: pa.Buffer,
    about: Mapping[str, Any],
    named: Container[str] | None = None,
    *,
    checked: bool = True,
) -> Iterator[tuple[str, pa.Buffer]]:
    at = 0
    for name, size, checksum in about["sections"]:
        if named is None or name in named:
            section = data.slice(at, size)
            if section.size != size or (checked and crc32(section) != checksum):
                raise DamagedFile(str(path), f'section "{name}" does not match its checksum')
            yield name, section
        at += size


def read_metadata(path: Path) -> dict[str, Any]:
    """Return the metadata alone, without reading the tables."""
    metadata: dict[str, Any] = _about(path, _mapped(path))["metadata"]
    return metadata


def _mapped(path: Path) -> pa.Buffer:
    try:
        return pa.memory_map(str(path)).read_buffer()
    except OSError as error:
        raise DamagedFile(str(path), str(error)) from error


def _about(path: Path, data: pa.Buffer) -> dict[str, Any]:
    if data.size >= _TAIL.size:
        magic, checksum, size = _TAIL.unpack(data.slice(data.size - _TAIL.size).to_pybytes())
        if magic == _MAGIC and size + _TAIL.size <= data.size:
            line = data.slice(data.size - _TAIL.size - size, size).to_pybytes()
            if crc32(line) == checksum:
                about: dict[str, Any] = json.loads(line)
                return about
    raise DamagedFile(str(path), "its end does not match its checksum")


def in_few_bytes(table: pa.Table) -> pa.Table:
    """Return a table for a file that is read once: narrow if it is large, but not more than fits into the memory."""
    return narrowed(table) if COMPRESSED_FROM <= table.nbytes <= room() else table


def encode(table: pa.Table) -> pa.Buffer:
    """Return a table as an Arrow IPC stream, of few bytes where it is large."""
    sink = pa.BufferOutputStream()
    if table.nbytes >= COMPRESSED_FROM:
        table = narrowed(table)
    large = any(column.nbytes >= COMPRESSED_FROM and not is_narrow(column.type) for column in table.columns)
    options = pa.ipc.IpcWriteOptions(compression="lz4") if large else None
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    return sink.getvalue()


def decode(data: pa.Buffer) -> pa.Table:
    """Return the table of an Arrow IPC stream; its columns point into `data`."""
    with pa.ipc.open_stream(data) as reader:
        return widened(reader.read_all())

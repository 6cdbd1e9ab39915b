"""Checksummed files of Arrow tables: state deltas and staged outputs.

A file is one line of JSON (sections with their lengths and CRC-32, and free metadata), then the sections, each an
Arrow IPC stream. It is written under a name of its own, synced, and never changed: who needs it is told its name.
"""

from __future__ import annotations

import json
import os
import zlib
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headrace.base.errors import DamagedFile

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def write_tables(path: Path, tables: Mapping[str, pa.Table], metadata: Mapping[str, Any], *, sync: bool) -> int:
    """Write tables and metadata to a new file, synced to the disk, and return its size in bytes."""
    sections = {name: encode(table) for name, table in tables.items()}
    head = {
        "sections": [[name, data.size, zlib.crc32(data)] for name, data in sections.items()],
        "metadata": dict(metadata),
    }
    line = json.dumps(head).encode()
    _make_folder(path.parent, sync=sync)
    with path.open("wb") as file:
        file.write(b"%d %d\n" % (len(line), zlib.crc32(line)))
        file.write(line)
        for data in sections.values():
            file.write(data)
        file.flush()
        if sync:
            os.fsync(file.fileno())
            sync_folder(path.parent)
        return file.tell()


def sync_folder(folder: Path) -> None:
    """Make the names in a folder survive a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _make_folder(folder: Path, *, sync: bool) -> None:
    if not folder.is_dir():
        _make_folder(folder.parent, sync=sync)
        folder.mkdir(exist_ok=True)
        if sync:
            sync_folder(folder.parent)


def read_tables(path: Path) -> tuple[dict[str, pa.Table], dict[str, Any]]:
    """Return the tables and the metadata of a file.

    Raises:
        DamagedFile: it is missing, cut short, or a checksum does not match.

    """
    try:
        data = pa.memory_map(str(path)).read_buffer()
    except OSError as error:
        raise DamagedFile(str(path), str(error)) from error
    head, at = _head(path, data)
    tables = {}
    for name, size, checksum in head["sections"]:
        section = data.slice(at, size) if at + size <= data.size else None
        if section is None or zlib.crc32(section) != checksum:
            raise DamagedFile(str(path), f'section "{name}" does not match its checksum')
        tables[name] = decode(section)
        at += size
    return tables, head["metadata"]


def read_metadata(path: Path) -> dict[str, Any]:
    """Return the metadata alone, without reading the tables."""
    try:
        data = pa.memory_map(str(path)).read_buffer()
    except OSError as error:
        raise DamagedFile(str(path), str(error)) from error
    metadata: dict[str, Any] = _head(path, data)[0]["metadata"]
    return metadata


def _head(path: Path, data: pa.Buffer) -> tuple[dict[str, Any], int]:
    first = data.slice(0, min(64, data.size)).to_pybytes().partition(b"\n")
    try:
        size, checksum = (int(part) for part in first[0].split())
        start = len(first[0]) + 1
        line = data.slice(start, size).to_pybytes()
        if len(line) == size and zlib.crc32(line) == checksum:
            return json.loads(line), start + size
    except ValueError:
        pass
    raise DamagedFile(str(path), "its head does not match its checksum")


def encode(table: pa.Table) -> pa.Buffer:
    """Return a table as an Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def decode(data: pa.Buffer) -> pa.Table:
    """Return the table of an Arrow IPC stream; its columns point into `data`."""
    with pa.ipc.open_stream(data) as reader:
        return reader.read_all()

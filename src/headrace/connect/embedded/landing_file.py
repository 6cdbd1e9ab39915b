"""The file of a landing: its last append and the position after it, replaced atomically, with a checksum."""

from __future__ import annotations

import fcntl
import os
import uuid
from typing import IO, TYPE_CHECKING
from zlib import crc32

import pyarrow as pa

from headrace.base.disk import sync_folder
from headrace.base.errors import DamagedFile
from headrace.base.outside import FeedRunsElsewhere

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

FOLDER = "landings"
_SEAL = b"HRSUM %08x\n"  # the end of the file: the CRC-32 of all before it
_SEAL_BYTES = len(_SEAL % 0)
_ARROW_END = b"ARROW1"


def write(path: Path, about: Mapping[bytes, bytes], parts: Mapping[str, pa.Table], *, sync: bool) -> None:
    """Replace the file: what it says, and rows by name. With `sync` it is durable on return."""
    packed = {name: _packed(rows) for name, rows in parts.items()}
    batch = pa.record_batch({name: pa.array([value], pa.binary()) for name, value in packed.items()})
    content = pa.BufferOutputStream()
    with pa.ipc.new_file(content, batch.schema.with_metadata(dict(about))) as out:
        out.write_batch(batch)
    raw = content.getvalue()
    replace(path, (raw, _SEAL % crc32(raw)), sync=sync)


def replace(path: Path, content: Sequence[bytes | pa.Buffer], *, sync: bool) -> None:
    """Replace a file atomically."""
    aside = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        with aside.open("wb") as file:
            for each in content:
                file.write(each)
            file.flush()
            if sync:
                os.fsync(file.fileno())
        aside.replace(path)
        if sync:
            sync_folder(path.parent)
    finally:
        aside.unlink(missing_ok=True)


def read(path: Path) -> tuple[dict[bytes, bytes], dict[str, pa.Table]]:
    """Return what the file says, and the rows by name.

    Raises:
        FileNotFoundError: it does not exist.
        DamagedFile: it is not as it was written.

    """
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
    path.parent.mkdir(parents=True, exist_ok=True)
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


def _parsed(path: Path) -> tuple[dict[bytes, bytes], dict[str, pa.Table]]:
    """Return what `write` wrote. Files of earlier releases have no checksum: they end as Arrow's do."""
    raw = path.read_bytes()
    body, seal = raw[:-_SEAL_BYTES], raw[-_SEAL_BYTES:]
    if seal == _SEAL % crc32(body):
        raw = body
    elif not raw.endswith(_ARROW_END):
        raise ValueError("its content does not match its checksum")
    with pa.ipc.open_file(pa.BufferReader(raw)) as stored:
        batch = stored.get_batch(0)
        return dict(stored.schema.metadata), {name: _unpacked(batch, name) for name in batch.schema.names}


def _packed(rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as out:
        out.write_table(rows)
    packed: bytes = sink.getvalue().to_pybytes()
    return packed


def _unpacked(batch: pa.RecordBatch, name: str) -> pa.Table:
    return pa.ipc.open_stream(batch.column(name)[0].as_buffer()).read_all()

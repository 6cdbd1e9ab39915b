"""Rows that may be more than the memory: kept in it up to a size, beyond that in a file that is mapped.

The file loses its name as soon as it is mapped, so it is gone with the last table that points into it, also after a
kill. Mapped rows cost no memory of the process: the system may drop its pages at any time, and read them again.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from headrace.base.memory import task_memory
from headrace.base.temporary import spill_folder

if TYPE_CHECKING:
    from collections.abc import Iterable

MEMORY_SHARE = 8
"""A spool holds this part of a task's memory before it spills."""


class Spool:
    """Collects batches of one schema. Call `table` once, at the end."""

    def __init__(self, schema: pa.Schema, *, in_memory: int | None = None) -> None:
        self.schema = schema
        self.in_memory = task_memory() // MEMORY_SHARE if in_memory is None else in_memory
        self._batches: list[pa.RecordBatch] = []
        self._bytes = 0
        self._file: _SpillFile | None = None

    def add(self, batch: pa.RecordBatch) -> None:
        """Take a batch.

        Raises:
            OSError: the disk of the spill folder is full.

        """
        if not batch.num_rows:
            return
        self._batches.append(batch)
        self._bytes += batch.nbytes
        if self._bytes > self.in_memory:
            self._spill()

    def _spill(self) -> None:
        if self._file is None:
            self._file = _SpillFile(self.schema)
        for batch in self._batches:
            self._file.writer.write_batch(batch)
        self._batches, self._bytes = [], 0

    def table(self) -> pa.Table:
        """Return what was collected, in order; large tables are mapped."""
        if self._file is None:
            return pa.Table.from_batches(self._batches, self.schema)
        self._spill()
        return self._file.mapped()


class _SpillFile:
    def __init__(self, schema: pa.Schema) -> None:
        number, name = tempfile.mkstemp(dir=spill_folder(), suffix=".arrow")
        os.close(number)
        self.path = Path(name)
        try:
            self.sink = pa.OSFile(name, "wb")
            self.writer = pa.ipc.new_stream(self.sink, schema)
        except BaseException:
            self.path.unlink(missing_ok=True)
            raise

    def __del__(self) -> None:
        """Remove the file of a spool that was given up."""
        self.path.unlink(missing_ok=True)

    def mapped(self) -> pa.Table:
        self.writer.close()
        self.sink.close()
        with pa.memory_map(str(self.path)) as source:
            buffer = source.read_buffer()
        self.path.unlink()
        return pa.ipc.open_stream(buffer).read_all()


def spooled(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> pa.Table:
    """Return batches as a table, in memory or mapped."""
    spool = Spool(schema)
    for batch in batches:
        spool.add(batch)
    return spool.table()

"""The user's objects as sinks: `.to(object)` calls `object.write(epoch, rows)` with each epoch's rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from headrace.connect.sink import Form, Sink, SinkWriter

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headrace.base.time import Clock


class Writable(Protocol):
    """What `.to` takes."""

    def write(self, epoch: int, rows: pa.Table) -> None:
        """Take an epoch's delta: the step's columns, `_weight` and `_time` (int64 microseconds)."""
        ...


@dataclass(frozen=True, slots=True)
class ObjectSink(Sink):
    """An object with `write(epoch, rows)`."""

    target: Writable

    @property
    def form(self) -> Form:
        """The delta as it is."""
        return "delta"

    def open(self, *, writer: str, clock: Clock) -> SinkWriter:
        """Return the writer."""
        del writer, clock
        return ObjectWriter(self.target)


class ObjectWriter(SinkWriter):
    """Calls the object once for each epoch, and again after a crash: the object must recognize a repeated epoch."""

    def __init__(self, target: Writable) -> None:
        self.target = target

    def last_epoch(self) -> int | None:
        """Return None: the object cannot tell."""
        return None

    def publish(self, epoch: int, rows: Iterator[pa.RecordBatch]) -> None:
        """Pass the rows to the object, as one table."""
        self.target.write(epoch, pa.Table.from_batches(rows))

    def close(self) -> None:
        """Do nothing: the object is the user's."""

"""The user's objects as sinks: `.to(object)` calls `object.write(epoch, rows)` with each epoch's rows."""

from __future__ import annotations

import traceback
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from headrace.base.disk import says_full
from headrace.base.errors import FunctionError, HeadraceError
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
        """Pass the rows to the object, as one table.

        Raises:
            FunctionError: it raised an error of no place outside.

        """
        table = pa.Table.from_batches(rows)
        try:
            self.target.write(epoch, table)
        except Exception as error:
            if isinstance(error, OSError | HeadraceError) or says_full(error):
                raise
            at = traceback.extract_tb(error.__traceback__)[:2][-1]
            raise FunctionError(
                f"{type(self.target).__qualname__}.write ({at.filename}:{at.lineno}) raised {type(error).__name__}: "
                f"{error}",
                detail=f"Epoch {epoch} is committed, and its rows are staged under the app's storage.",
                hint="Mend it and start the app again: it gets the epoch first, then those that follow.",
            ) from error

    def close(self) -> None:
        """Do nothing: the object is the user's."""

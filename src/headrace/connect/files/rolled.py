"""Out: rows as files that end at a size or an age. A file has whole epochs, and is never changed.

An epoch is published when its part is there, hidden in `_headrace/<writer>/`; then `last_epoch` has it. A file ends in
three steps: a record that names its epochs, by the first of which the record is named; the file, which joins their
parts; the parts go. Each step creates something that is never replaced, so after a crash the next step is taken by
whoever comes, and of two writers at once the second finds what the first has decided.
"""

from __future__ import annotations

import hashlib
import threading
import weakref
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple, Self

import pyarrow as pa

from headrace.base.arguments import a_path, a_whole_number, one_of
from headrace.base.blame import HeadraceError
from headrace.base.checked import from_text, to_text
from headrace.base.errors import InvalidArgument, InvalidPlan
from headrace.base.time import MICROS, duration
from headrace.connect.files.contents import FORMATS, contents_of
from headrace.connect.files.places import ASIDE, OURS, FolderPlace, Place, Stored
from headrace.connect.sink import SinkWriter
from headrace.connect.store import StoreDiffers, StoreSink

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator
    from datetime import timedelta

    from headrace.base.time import Clock
    from headrace.connect.files.places import OpenPlace

MAX_BYTES, MAX_AGE = 128 << 20, "10 minutes"
DELETED = "_deleted"
_PART, _ENDED = "part-", "ended-"
_LOOKS, _SLOWEST_LOOK = 10, 1.0
"""A writer looks so often in the longest age of a file whether one is too old, at least each second."""


def rolling(
    folder: str | os.PathLike[str],
    *,
    format: str = "json",  # noqa: A002 -- as in App.stream
    max_bytes: int = MAX_BYTES,
    max_age: str | timedelta = MAX_AGE,
) -> RollingFiles:
    """Return a sink that writes files to a folder: each row is in one file, exactly once.

    A file is there whole or not at all, has whole epochs, and is never changed once it is there; its name has the first
    and the last of them. It ends when it has `max_bytes`, when its first row is `max_age` old, and when the app stops.
    So rows appear late by up to `max_age`, and a file is larger than `max_bytes` by up to an epoch. Until then they are
    in the hidden folder `_headrace`, which belongs to the app: without it the app refuses to go on (`SINK_BEHIND`).

    A table's files have a row a change of a key, with a column `_deleted`. CSV has a header.

    Args:
        folder: where to; it is created. Several sinks may write to one folder. Who reads files may remove them.
        format: "json" (a line a row), "csv" or "parquet".
        max_bytes: at which size a file ends.
        max_age: how long after its first row a file ends, as `"10 minutes"`.

    Raises:
        InvalidArgument: an option has an impossible value.
        InvalidTime: `max_age` is no duration.

    """
    place = FolderPlace(str(a_path(folder, "folder").absolute()))
    return rolling_to(place, format=format, max_bytes=max_bytes, max_age=max_age)


def rolling_to(place: Place, *, format: str, max_bytes: int, max_age: str | timedelta) -> RollingFiles:  # noqa: A002
    """Return a sink that writes files to a place; raises as `rolling` does."""
    age = duration(max_age, what="max_age")
    if age <= 0:
        raise InvalidArgument(f"max_age={max_age!r} is not possible", hint='For example max_age="10 minutes".')
    one_of(format, "format", FORMATS)
    return RollingFiles(
        place=place, format=format, max_bytes=a_whole_number(max_bytes, "max_bytes", least=1), max_age=age
    )


@dataclass(frozen=True, kw_only=True)
class RollingFiles(StoreSink):
    """Files in a place; `max_age` in microseconds."""

    place: Place
    format: str
    max_bytes: int
    max_age: int

    @property
    def where(self) -> str:
        """The place."""
        return self.place.where

    @property
    def name(self) -> str:
        """The place."""
        return f"files:{self.place.identity}"

    @property
    def stored(self) -> pa.Schema:
        """The columns of the files."""
        return self.columns.append(pa.field(DELETED, pa.bool_())) if self.is_table else self.columns

    def for_step(
        self, *, schema: pa.Schema, key: tuple[str, ...] | None, is_table: bool, sealed: frozenset[str]
    ) -> Self:
        """Return the sink for the rows of a step.

        Raises:
            InvalidPlan: it is a table without a key, columns are private, or the format has no nested values.

        """
        if sealed:
            raise InvalidPlan(
                f"private columns cannot be written to {self.where}: {', '.join(sorted(sealed))}",
                detail="Files that have ended are never changed, so nobody could forget a subject there.",
                hint="Leave them out with .select(…).",
            )
        contents_of(self.format).check(schema)
        if is_table and not key:
            return super().for_step(schema=schema, key=key, is_table=is_table, sealed=sealed)
        return replace(self, columns=schema, key=key or (), is_table=is_table)

    def prepare(self, *, clock: Clock) -> None:
        """Check that files can be written there; raises as the place does."""
        del clock
        with self.place.open().new(OURS):
            self.place.check()

    def open(self, *, writer: str, clock: Clock) -> SinkWriter:
        """Return a writer; what a crash left half done is done.

        Raises:
            Unavailable: the place does not answer.

        """
        return RollingWriter(self, writer, clock)


class Ended(NamedTuple):
    """A file that has ended: its epochs and its name."""

    epochs: tuple[int, ...] = (-1,)
    name: str = ""


class RollingWriter(SinkWriter):
    """Writes epochs as parts, and ends files."""

    def __init__(self, sink: RollingFiles, writer: str, clock: Clock) -> None:
        self.sink, self.clock = sink, clock
        self._contents = contents_of(sink.format)
        self._tag = hashlib.sha256(writer.encode()).hexdigest()[:12]
        self._own = f"{OURS}/{self._tag}/"
        self._place: OpenPlace = sink.place.open()
        self._lock = threading.RLock()
        self._parts: dict[int, int] = {}
        self._ended = Ended()
        self._begun = 0
        self._failure: HeadraceError | None = None
        self._closed = threading.Event()
        self._finish()
        self._end()  # what an earlier process has left: it may have had other columns
        look = min(_SLOWEST_LOOK, sink.max_age / MICROS / _LOOKS)
        threading.Thread(target=_look, args=(weakref.ref(self), self._closed, look), daemon=True).start()

    def last_epoch(self) -> int:
        """Return the last epoch of which there is a part or a file."""
        with self._lock:  # a file that ends just now
            return max(self._ended.epochs[-1], *self._parts, -1)

    def publish(self, epoch: int, rows: Iterator[pa.RecordBatch]) -> None:
        """Write an epoch's part; a file that has become large or old enough ends.

        Raises:
            OSError: the place does not take it.
            Unavailable: the same.
            StoreDiffers: somebody has deleted rows that were in no file yet.

        """
        with self._lock:
            if self._failure is not None:
                raise self._failure
            if epoch > self.last_epoch():
                self._write(epoch, rows)
            self.end_old()

    def _write(self, epoch: int, rows: Iterator[pa.RecordBatch]) -> None:
        with self._place.new(self._own) as part:
            self._contents.write(part.file, rows, self.sink.stored)
            size = part.file.tell()
            self.sink.fault("before_part")
            part.create(f"{self._own}{_PART}{epoch:012d}")
        self.sink.fault("after_part")
        self._begun = self._begun if self._parts else self.clock.now()
        self._parts[epoch] = size

    def end_old(self) -> None:
        """End the file if it is large or old enough."""
        with self._lock:
            large = sum(self._parts.values()) >= self.sink.max_bytes
            if self._parts and (large or self.clock.now() - self._begun >= self.sink.max_age):
                self._end()

    def end_old_later(self) -> None:
        """End the file if it is old enough; what goes wrong is tried again, or raised by the next `publish`."""
        try:
            self.end_old()
        except OSError:
            pass
        except HeadraceError as error:
            self._failure = None if error.may_pass else error

    def _end(self) -> None:
        """Decide that the file has the epochs of all parts, and write it."""
        if not self._parts:
            return
        self._check_parts()
        epochs = tuple(sorted(self._parts))
        name = f"{self._tag}-{epochs[0]:012d}-{epochs[-1]:012d}{self._contents.suffix}"
        with self._place.new(self._own) as record:
            record.file.write(to_text(Ended(epochs, name)._asdict()).encode())
            self.sink.fault("before_ended")
            record.create(f"{self._own}{_ENDED}{epochs[0]:012d}")
        self.sink.fault("after_ended")
        self._finish()

    def _check_parts(self) -> None:
        """Check that nobody has deleted parts: those that are missing later are taken for those of a file.

        Raises:
            StoreDiffers: somebody has.

        """
        parts, records, _ = self._listed()
        ended = self._read(records[max(records)]).epochs[-1] if records else -1
        if gone := [epoch for epoch in self._parts if epoch > ended and epoch not in parts]:
            raise StoreDiffers(
                f"{self.sink.where} has lost {len(gone)} epochs that were in no file yet, the first is {min(gone)}",
                detail=f"They were in its folder {self._own}",
                hint="Restore that folder, or fill another one: the app's storage no longer has these rows.",
            )

    def _finish(self) -> None:
        """Read what there is; write the file that has ended last if it is not there, and remove its parts."""
        parts, records, left = self._listed()
        if records:
            last = max(records)
            self._ended = self._read(records.pop(last))
            self._write_file([parts[epoch] for epoch in self._ended.epochs if epoch in parts])
        gone = [epoch for epoch in parts if epoch <= self._ended.epochs[-1]]
        for each in (*(parts.pop(epoch) for epoch in sorted(gone)), *records.values(), *left):
            self._place.remove(each.name)
            self.sink.fault("after_removal")
        self._parts = {epoch: part.size for epoch, part in parts.items()}

    def _write_file(self, parts: list[Stored]) -> None:
        """Write the file that has ended last, unless it was written: parts are removed after that alone."""
        if len(parts) < len(self._ended.epochs):
            return
        with self._place.new(self._own) as file:
            self._contents.join(file.file, self._place, parts)
            self.sink.fault("before_file")
            file.create(self._ended.name)
        self.sink.fault("after_file")

    def _listed(self) -> tuple[dict[int, Stored], dict[int, Stored], list[Stored]]:
        """Return the parts and the records by their first epochs, and what a crash has left aside."""
        parts, records, left = dict[int, Stored](), dict[int, Stored](), list[Stored]()
        for each in self._place.files(below=self._own):
            name = each.name.removeprefix(self._own)
            if name.startswith(_PART):
                parts[int(name.removeprefix(_PART))] = each
            elif name.startswith(_ENDED):
                records[int(name.removeprefix(_ENDED))] = each
            elif name.startswith(ASIDE):
                left.append(each)
        return parts, records, left

    def _read(self, record: Stored) -> Ended:
        text = self._place.read(record, 0, record.size)
        read = from_text(text, record.name, hint="Restore it from a backup.")
        return Ended(tuple(read["epochs"]), read["name"])

    def close(self) -> None:
        """End the file; where that fails the next writer does it."""
        self._closed.set()
        with self._lock, suppress(OSError, HeadraceError):
            self._end()


def _look(writer: weakref.ref[RollingWriter], closed: threading.Event, seconds: float) -> None:
    while not closed.wait(seconds):
        found = writer()
        if found is None:
            return
        found.end_old_later()
        del found

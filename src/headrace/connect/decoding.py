"""Decodes records: rows get their event time and weight, records that cannot be read become dead letters."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from functools import reduce
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from headrace.base.calendar import DAY
from headrace.base.dead_letters import dead_letters, undecoded_letters
from headrace.base.errors import TopicDiffers
from headrace.base.schema import type_name
from headrace.base.time import END_OF_TIME, as_datetime
from headrace.connect.format import HEADERS, KEY, VALUE
from headrace.connect.undecoded import Undecoded

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from headrace.connect.format import Format
    from headrace.connect.source import OffsetRange, SourceReader

FIRST_TIME, LAST_TIME = (int(datetime(year, 1, 1, tzinfo=UTC).timestamp()) * 1_000_000 for year in (2, 9_990))
"""The bounds of windows around an event time must be times as well, of the years 1 to 9999: microseconds."""
MOST_REACH = 1_000 * 366 * DAY
"""Longer windows are for all times, and reach around those of today."""


class Span(NamedTuple):
    """The event times that records may have, from the first to the last: windows around them are in the calendar."""

    first: int = FIRST_TIME
    last: int = LAST_TIME

    @classmethod
    def around(cls, reach: int) -> Span:
        """Return those that may be so far from a window's bounds, in microseconds."""
        reach = min(reach, MOST_REACH)
        return cls(max(FIRST_TIME, FIRST_TIME - 365 * DAY + reach), min(LAST_TIME, END_OF_TIME - reach))

    def has(self, time: int | None) -> bool:
        """Whether it is one of them."""
        return time is not None and self.first <= time <= self.last

    @property
    def reason(self) -> str:
        """Say what is wrong with another time: it is outside these whole years."""
        first, last = as_datetime(self.first - 1).year + 1, as_datetime(self.last + 1).year - 1
        return f"is not in the years {first} to {last}"

    def far(self, times: pa.ChunkedArray) -> pa.ChunkedArray | None:
        """Return for each row whether its event time is too far away for the windows around it; None where none is."""
        span = pc.min_max(times).as_py()
        if span["min"] is None or (span["min"] >= self.first and span["max"] <= self.last):
            return None
        return pc.fill_null(pc.or_(pc.less(times, self.first), pc.greater(times, self.last)), fill_value=False)


NEAR = Span()


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordShape:
    """The records of a source as its step declares them.

    `upserts`: records insert, replace or (tombstones) delete rows by `key`. `sent_time`: when a device sent the record,
    by its own clock. `format`: that of the column `value`; None where the source has the columns themselves. The key's
    columns are read from the value, and where it has none, from the record's key: from the columns beside the value, or
    where the source is `undecoded` and has bytes alone, in the `key_format`. `arrived`: the column of the decoded rows
    with the time at which a record was stored, in microseconds. `span`: the event times that records may have.
    """

    topic: str
    schema: pa.Schema
    event_time: str | None = None
    sent_time: str | None = None
    key: tuple[str, ...] = ()
    upserts: bool = False
    format: Format | None = None
    key_format: Format | None = None
    undecoded: bool = False
    arrived: str | None = None
    span: Span = NEAR

    @property
    def stored(self) -> list[str]:
        """The source's own columns that are read."""
        if self.undecoded:
            headers = [HEADERS] if self.format is not None and HEADERS in self.format.columns else []
            return [*([KEY] if self.key and self.key_format is not None else []), VALUE, *headers]
        if self.format is None:
            return list(self.schema.names)
        return [*(name for name in self.schema.names if name in self.key), VALUE]

    def read_for(self, wanted: Collection[str]) -> list[str]:
        """Return the columns that are read where only some are wanted: fewer than all only of plain records."""
        if self.undecoded or self.format is not None or self.upserts:
            return self.columns
        needed = {*wanted, self.event_time, self.sent_time}
        return [name for name in self.columns if name in needed or name not in self.schema.names]

    def decoded_for(self, wanted: Collection[str]) -> pa.Schema:
        """Return the declared columns that a row has once it is read, where only some are wanted."""
        read = self.read_for(wanted)
        whole = self.undecoded or self.format is not None
        return pa.schema([field for field in self.schema if whole or field.name in read])

    @property
    def columns(self) -> list[str]:
        """All columns that may be read."""
        needs = {
            "_time": self.event_time is None or self.upserts,
            "_appended": self.sent_time is not None or self.arrived is not None,
            "_deleted": self.upserts,
            "_offset": self.undecoded,
        }
        return [*self.stored, *(name for name, needed in needs.items() if needed)]


@dataclass(frozen=True, slots=True)
class Decoded:
    """A decoded range: rows with `_time` in microseconds (upserts also with `_weight`), and the dead letters.

    `records`: for each row the number of its record in the range; None: each record is a row.
    """

    rows: pa.Table
    dead: pa.Table | None
    records: pa.Array | None = None


def decode(
    reader: SourceReader, part: OffsetRange, shape: RecordShape, wanted: Collection[str] | None = None
) -> Decoded:
    """Read a range as rows: all columns of the shape or, where others are not needed, at least those that are wanted.

    Records without an event time are dead letters, and upserts with a null in their key. A tombstone may have no event
    time: its `_time` is then null. With `sent_time`, `_time` is corrected by the time of the log's clock when the
    record arrived, except where `sent_time` is null. Private columns stay sealed.

    Raises:
        OffsetsLost: records at the start of the range are gone.
        TopicDiffers: a column has another type than declared.

    """
    batches = list(reader.read(part, shape.columns if wanted is None else shape.read_for(wanted)))
    if not batches:
        return Decoded(empty(shape), None)
    table = pa.Table.from_batches(batches)
    letters = _Letters(reader, part, shape)
    if shape.format is not None:
        table = _formatted(table, shape, shape.format, letters)
    _refuse_other_types(table, shape, [name for name in shape.schema.names if name in table.column_names])
    rows = _changes(table, shape, letters) if shape.upserts else _facts(table, shape, letters)
    return Decoded(rows, letters.table(), letters.chosen)


def changes(reader: SourceReader, part: OffsetRange, shape: RecordShape) -> pa.Table:
    """Read a range as rows with `_deleted`; records that cannot be read are left out."""
    rows = decode(reader, part, shape).rows
    deleted = (
        pc.less(rows.column("_weight"), 0)
        if shape.upserts
        else pa.chunked_array([pa.repeat(pa.scalar(value=False), len(rows))])
    )
    return rows.append_column("_deleted", deleted)


def letters_of(
    reader: SourceReader, part: OffsetRange, shape: RecordShape, decoded: Decoded, reasons: Mapping[int, str]
) -> pa.Table:
    """Return dead letters of records that were decoded, by their rows.

    Args:
        reader: what the range was read with.
        part: the range, as it was decoded.
        shape: the records.
        decoded: what `decode` returned of the range.
        reasons: why, by the number of the row in `decoded.rows`.

    """
    letters = _Letters(reader, part, shape)
    rows = pa.array(sorted(reasons), pa.int64())
    records = rows if decoded.records is None else decoded.records.take(rows)
    by_record = {record: reasons[row] for record, row in zip(records.to_pylist(), rows.to_pylist(), strict=True)}
    letters.add_records(pa.array(sorted(by_record), pa.int64()), [by_record[record] for record in sorted(by_record)])
    return letters.found[0]


def corrected(times: pa.ChunkedArray, *, sent: pa.ChunkedArray, received: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a device's times corrected to the clock of the receiver, by the rule of three timestamps.

    If the transfer takes no time, the error of the device's clock is the time of arrival by the receiver's clock minus
    the time of sending by the device's (Kleppmann, Designing Data-Intensive Applications, chapter 11). Where `sent` is
    null, the time is not changed. All are int64 microseconds.
    """
    return pc.add(times, pc.coalesce(pc.subtract(received, sent), pa.scalar(0, pa.int64())))


class _Letters:
    """Collects the dead letters of a range; since they are rare, their records are read again with offsets.

    `chosen`: for each row that is still good, the number of its record; None: each record is a row. `records`: those of
    the range with offsets, if they were read.
    """

    def __init__(self, reader: SourceReader, part: OffsetRange, shape: RecordShape) -> None:
        self.reader, self.part, self.shape = reader, part, shape
        self.found: list[pa.Table] = []
        self.chosen: pa.Array | None = None
        self.records: pa.Table | None = None

    def drop(self, rows: pa.Table, reasons: Mapping[str, pa.ChunkedArray | None]) -> pa.Table:
        """Return the rows that are good; by reason, `reasons` has for each row whether it is bad (None: none is)."""
        bad = {reason: rows_ for reason, rows_ in reasons.items() if rows_ is not None and pc.any(rows_).as_py()}
        if not bad:
            return rows
        for reason, rows_ in bad.items():
            at = self._records_of(pc.indices_nonzero(rows_)).unique().sort()
            self.add_records(at, pa.repeat(pa.scalar(reason), len(at)))
        good = pc.invert(reduce(pc.or_, bad.values()))
        self.chosen = self._records_of(pc.indices_nonzero(good))
        return rows.filter(good)

    def _records_of(self, rows: pa.Array) -> pa.Array:
        return rows.cast(pa.int64()) if self.chosen is None else self.chosen.take(rows)

    def add_records(self, at: pa.Array, reasons: pa.Array | Sequence[str]) -> None:
        """Add records by their numbers in the range, in ascending order, with the reason of each."""
        if self.records is None:
            columns = [*self.shape.columns, "_offset"]
            self.records = pa.Table.from_batches(list(self.reader.read(self.part, list(dict.fromkeys(columns)))))
        records = self.records.take(at)
        number = int(self.part.partition) if self.part.partition.isdecimal() else -1
        partition = pa.repeat(pa.scalar(number, pa.int32()), len(at))
        offset = _as_array(records.column("_offset")).cast(pa.int64())
        reasons = _as_array(reasons) if isinstance(reasons, pa.Array | pa.ChunkedArray) else pa.array(reasons)
        where = (self.shape.topic, partition, offset, reasons.cast(pa.string()))
        if self.shape.undecoded:
            self.found.append(undecoded_letters(*where, _as_array(records.column(VALUE))))
        else:
            self.found.append(dead_letters(*where, records.select(self.shape.columns)))

    def table(self) -> pa.Table | None:
        """Return all dead letters, or None."""
        return pa.concat_tables(self.found) if self.found else None


def _as_array(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    return values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values


def empty(shape: RecordShape) -> pa.Table:
    """Return an empty table with the columns of decoded rows."""
    fields = [(field.name, field.type) for field in shape.schema]
    weight = [("_weight", pa.int32())] if shape.upserts else []
    arrived = [(shape.arrived, pa.int64())] if shape.arrived is not None else []
    return pa.schema([*fields, *arrived, *weight, ("_time", pa.int64())]).empty_table()


def _formatted(table: pa.Table, shape: RecordShape, form: Format, letters: _Letters) -> pa.Table:
    """Return records with a format as the declared columns, of upserts also with `_deleted`, and their times."""
    if shape.undecoded:
        letters.records = table
    else:
        _refuse_other_types(table, shape, [name for name in shape.key if name in table.column_names])
    found = Undecoded(shape.schema, shape.key, form, shape.key_format, shape.upserts).rows(table)
    if len(found.bad):
        letters.add_records(found.bad, found.reasons)
    rows = found.rows
    if not found.whole:
        letters.chosen = found.at
    for name in ("_time", "_appended"):
        if name in shape.columns:
            rows = rows.append_column(name, table.column(name) if found.whole else table.column(name).take(found.at))
    return rows


def _facts(table: pa.Table, shape: RecordShape, letters: _Letters) -> pa.Table:
    time = shape.event_time or "_time"
    times = _micros(table.column(time))
    if shape.sent_time is not None:
        sent, received = _micros(table.column(shape.sent_time)), _micros(table.column("_appended"))
        times = corrected(times, sent=sent, received=received)
    rows = _selected(table, shape).append_column("_time", times)
    absent = times.is_null() if times.null_count else None
    return letters.drop(
        rows,
        {
            f'the event time "{time}" is null': absent,
            f'the event time "{time}" {shape.span.reason}': shape.span.far(times),
        },
    )


def _selected(table: pa.Table, shape: RecordShape) -> pa.Table:
    """Return the columns of the step's schema, and when each record was stored, where that is needed."""
    rows = table.select([name for name in shape.schema.names if name in table.column_names])
    return rows if shape.arrived is None else rows.append_column(shape.arrived, _micros(table.column("_appended")))


def _changes(table: pa.Table, shape: RecordShape, letters: _Letters) -> pa.Table:
    deleted, times = table.column("_deleted"), _micros(table.column("_time"))
    if shape.event_time is not None:
        own = _micros(table.column(shape.event_time))
        times = pc.if_else(pc.and_(deleted, own.is_null()), times, own)
    weights = pc.if_else(deleted, pa.scalar(-1, pa.int32()), pa.scalar(1, pa.int32()))
    rows = _selected(table, shape).append_column("_weight", weights).append_column("_time", times)
    keyless = any_null(table, shape.key)
    timeless = pc.and_(pc.and_not(times.is_null(), deleted), pc.invert(keyless))
    subject = "it is" if len(shape.key) == 1 else "one of them is"
    reasons = {
        f"no key: rows of the table are identified by {', '.join(shape.key)}, and {subject} null": keyless,
        f'the event time "{shape.event_time or "_time"}" is null': timeless,
    }
    far = shape.span.far(times)
    if far is not None:
        reasons[f'the event time "{shape.event_time or "_time"}" {shape.span.reason}'] = pc.and_not(far, keyless)
    return letters.drop(rows, reasons)


def any_null(table: pa.Table, columns: Sequence[str]) -> pa.ChunkedArray:
    """Return for each row whether one of the columns is null."""
    found = pc.is_null(table.column(columns[0]))
    for name in columns[1:]:
        found = pc.or_(found, pc.is_null(table.column(name)))
    return found


def _refuse_other_types(table: pa.Table, shape: RecordShape, names: Sequence[str]) -> None:
    for field in map(shape.schema.field, names):
        kind = table.schema.field(field.name).type
        if kind != field.type:
            raise TopicDiffers(
                f'the topic "{shape.topic}" has changed while the app runs: its column "{field.name}" is '
                f"{type_name(kind)} now",
                detail=f"The app declares {type_name(field.type)}; nothing of these records was taken.",
                hint=f"Declare it as {type_name(kind)} and start the app again.",
            )


def _micros(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return pa.chunked_array([chunk.view(pa.int64()) for chunk in column.chunks], pa.int64())

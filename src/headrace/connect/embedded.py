"""The embedded log as a source and a sink: slices of partitions in, staged rows out."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from headrace.base.errors import TopicDiffers
from headrace.base.schema import TIMESTAMP, to_ddl, type_name
from headrace.log import evolution

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headrace.log import Log, Topic

DEAD = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("reason", pa.string()),
        ("record", pa.string()),
    ]
)
"""The columns of `<topic>.dead`: where the record stands, why it could not be read, and what it says, as JSON."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetRange:
    """The records [first, last) of a partition, for the source of a step."""

    source: str
    topic: str
    partition: int
    first: int
    last: int

    @property
    def rows(self) -> int:
        """How many offsets it spans."""
        return self.last - self.first

    def cut(self, parts: int) -> list[OffsetRange]:
        """Return the slice in so many parts of like length, in order."""
        step = -(-self.rows // parts) if self.rows else 1
        return [
            OffsetRange(
                source=self.source, topic=self.topic, partition=self.partition, first=at, last=min(at + step, self.last)
            )
            for at in range(self.first, self.last, step)
        ]


@dataclass(frozen=True, slots=True)
class Decoded:
    """A slice, read: good rows with `_time` in microseconds, and the dead letters."""

    rows: pa.Table
    dead: pa.Table | None


def ensure_topic(
    log: Log, name: str, schema: pa.Schema, *, partitions: int, key: Sequence[str], event_time: str | None, cleanup: str
) -> Topic:
    """Return the topic, created if it is missing.

    Raises:
        TopicDiffers: it exists with other columns.

    """
    if not log.has_topic(name):
        return log.create_topic(
            name, schema, partitions=partitions, key=tuple(key) or None, event_time=event_time, cleanup=cleanup
        )
    topic = log.topic(name)
    has = {field.name: field.type for field in topic.schema}
    for field in schema:
        if has.get(field.name) != field.type:
            raise TopicDiffers(
                f'the topic "{name}" has no column "{field.name}" of the declared type',
                detail=f"It has: {to_ddl(topic.schema)}. Declared: {to_ddl(schema)}.",
                hint=_way_on(log, topic, schema),
            )
    return topic


def ordered_by_key(topic: Topic, key: Sequence[str]) -> None:
    """Refuse to read a topic as a table where nothing says which of two records of one key is the later.

    Raises:
        TopicDiffers: records of one key may be in several partitions.

    """
    if topic.partitions > 1 and not (topic.key and set(topic.key) <= set(key)):
        has = f"is spread by {', '.join(topic.key)}" if topic.key else "has no key"
        raise TopicDiffers(
            f'the topic "{topic.name}" cannot be read as a table by {", ".join(key)}: it {has}',
            detail=f"Records of one key may be in any of its {topic.partitions} partitions, and have no order there.",
            hint=f"Read it as a stream and take the last by event time: app.stream(…, event_time=…)"
            f".latest({', '.join(repr(name) for name in key)}).",
        )


def _way_on(log: Log, topic: Topic, declared: pa.Schema) -> str:
    """Say what brings a topic and a declaration together."""
    wanted = evolution.merged(topic.schema, declared)
    if evolution.may_become(topic.schema, wanted, topic.key):
        call = f'Log("{log.path}").topic("{topic.name}").evolve("{to_ddl(wanted)}")'
        return f"The topic can take what is declared: {call}."
    return "Declare the columns that the topic has, or use another topic."


def take(
    topic: Topic, piece: OffsetRange, schema: pa.Schema, event_time: str | None, sent_time: str | None = None
) -> Decoded:
    """Read a slice's columns in place, with `_time`; records without an event time are dead letters.

    With `sent_time`, when a device sent the record by its own clock, `_time` is corrected by what the log's clock said
    when it came; where it is null, it is not. Private columns are read sealed: what an app keeps of them, it keeps as
    tokens.

    Raises:
        TopicDiffers: the topic was widened since the app has started.

    """
    names = [*schema.names, *([] if event_time else ["_time"]), *(["_appended"] if sent_time else [])]
    batches = list(topic.batches(piece.partition, piece.first, piece.last, columns=names, sealed=True))
    fields = [(field.name, field.type) for field in schema]
    time = event_time or "_time"
    if not batches:
        return Decoded(pa.schema([*fields, ("_time", pa.int64())]).empty_table(), None)
    table = pa.Table.from_batches(batches)
    _refuse_widened(topic, table, schema)
    times = _micros(table.column(time))
    if sent_time is not None:
        times = corrected(times, sent=_micros(table.column(sent_time)), received=_micros(table.column("_appended")))
    rows = table.select(schema.names).append_column("_time", times)
    if not times.null_count:
        return Decoded(rows, None)
    dead = _dead(topic, piece, names, f'the event time "{time}" is null', times.is_null())
    return Decoded(rows.filter(times.is_valid()), dead)


def decode_changes(
    topic: Topic, piece: OffsetRange, schema: pa.Schema, event_time: str | None, key: Sequence[str]
) -> Decoded:
    """Read a slice as changes of rows by key: `_weight` is 1 for an upsert, -1 for a delete.

    Records with a null in their key are dead letters, and upserts without an event time. A delete may have none: its
    `_time` is the one that the log knows, else null.

    Raises:
        TopicDiffers: the topic was widened since the app has started.

    """
    names = [*schema.names, "_time", "_deleted"]
    batches = list(topic.batches(piece.partition, piece.first, piece.last, columns=names, sealed=True))
    if not batches:
        fields = [(field.name, field.type) for field in schema]
        return Decoded(pa.schema([*fields, ("_weight", pa.int32()), ("_time", pa.int64())]).empty_table(), None)
    table = pa.Table.from_batches(batches)
    _refuse_widened(topic, table, schema)
    deleted, times = table.column("_deleted"), _micros(table.column("_time"))
    if event_time is not None:
        own = _micros(table.column(event_time))
        times = pc.if_else(pc.and_(deleted, own.is_null()), times, own)
    weights = pc.if_else(deleted, pa.scalar(-1, pa.int32()), pa.scalar(1, pa.int32()))
    rows = table.select(schema.names).append_column("_weight", weights).append_column("_time", times)
    keyless = _any_null(table, key)
    timeless = pc.and_(pc.and_not(times.is_null(), deleted), pc.invert(keyless))
    reasons = {
        f"no key: a table's rows are told by {', '.join(key)}, and {'it' if len(key) == 1 else 'one'} is null": keyless,
        f'the event time "{event_time or "_time"}" is null': timeless,
    }
    dead = [_dead(topic, piece, names, why, bad) for why, bad in reasons.items() if pc.any(bad).as_py()]
    if not dead:
        return Decoded(rows, None)
    return Decoded(rows.filter(pc.invert(pc.or_(keyless, timeless))), pa.concat_tables(dead))


def corrected(times: pa.ChunkedArray, *, sent: pa.ChunkedArray, received: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return times of a device's clock by the clock that received them, by the rule of three timestamps.

    What the device's clock said when it sent the record, and what ours said when it came, tell how far they are apart,
    where the way between takes no time (Kleppmann, Designing Data-Intensive Applications, chapter 11). A record that
    does not say when it was sent keeps its time.
    """
    return pc.add(times, pc.coalesce(pc.subtract(received, sent), pa.scalar(0, pa.int64())))


def _any_null(table: pa.Table, columns: Sequence[str]) -> pa.ChunkedArray:
    found = pc.is_null(table.column(columns[0]))
    for name in columns[1:]:
        found = pc.or_(found, pc.is_null(table.column(name)))
    return found


def _refuse_widened(topic: Topic, table: pa.Table, schema: pa.Schema) -> None:
    for field in schema:
        kind = table.schema.field(field.name).type
        if kind != field.type:
            raise TopicDiffers(
                f'the topic "{topic.name}" has changed while the app runs: its column "{field.name}" is '
                f"{type_name(kind)} now",
                detail=f"The app declares {type_name(field.type)}; nothing of these records was taken.",
                hint=f"Declare it as {type_name(kind)} and start the app again.",
            )


def _micros(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return pa.chunked_array([chunk.view(pa.int64()) for chunk in column.chunks], pa.int64())


def _dead(topic: Topic, piece: OffsetRange, names: list[str], reason: str, chosen: pa.ChunkedArray) -> pa.Table:
    batches = topic.batches(piece.partition, piece.first, piece.last, columns=[*names, "_offset"], sealed=True)
    table = pa.Table.from_batches(batches)
    bad = table.filter(chosen)
    partition = pa.repeat(pa.scalar(piece.partition, pa.int32()), bad.num_rows)
    return _letters(piece.topic, partition, bad.column("_offset").cast(pa.int64()), reason, bad.select(names))


def _letters(topic: str, partition: pa.Array, offset: pa.Array, reason: str, rows: pa.Table) -> pa.Table:
    records = [json.dumps(row, default=str, ensure_ascii=False) for row in rows.to_pylist()]
    count = len(records)
    columns = [
        pa.array([topic] * count, pa.string()),
        partition,
        offset,
        pa.array([reason] * count, pa.string()),
        pa.array(records, pa.string()),
    ]
    return pa.table(columns, schema=DEAD)


def keyed(topic: Topic, rows: pa.Table) -> tuple[pa.Table, pa.Table | None]:
    """Return the rows that a topic takes, and the dead letters of those that it refuses for want of a key.

    A null in a group's key makes a group like any other, but no record of a compacted topic.
    """
    if topic.cleanup != "compact" or not all(rows.column(name).null_count for name in topic.key):
        return rows, None
    absent = pc.is_null(rows.column(topic.key[0]))
    for name in topic.key[1:]:
        absent = pc.and_(absent, pc.is_null(rows.column(name)))
    bad = rows.filter(absent)
    if not bad.num_rows:
        return rows, None
    reason = f"no key: {', '.join(topic.key)} is null, and the topic is compacted"
    nothing = pa.nulls(bad.num_rows, pa.int32()), pa.nulls(bad.num_rows, pa.int64())
    return rows.filter(pc.invert(absent)), _letters(topic.name, *nothing, reason, bad)


def append(topic: Topic, rows: pa.Table, *, producer: str, sequence: int) -> Mapping[int, range]:
    """Append staged rows, idempotently by (producer, sequence); `_time` is microseconds or null for now."""
    at = rows.schema.get_field_index("_time")
    times = rows.column(at).cast(pa.int64()).cast(TIMESTAMP)
    made = rows.set_column(at, pa.field("_time", TIMESTAMP), times)
    return topic.append(made, producer=producer, sequence=sequence)

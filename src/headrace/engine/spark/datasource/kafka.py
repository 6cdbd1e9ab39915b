"""Kafka's topics in plain PySpark: offsets, options and loss as for a log, records by the readers of the connector."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema

from headrace.base.errors import DataLoss, InvalidOption, UnknownColumn, UnknownTopic, UnreadableRecord, WrongColumnType
from headrace.base.outside import OffsetsLost
from headrace.base.schema import TIMESTAMP, type_name
from headrace.base.time import SystemClock
from headrace.connect.format import HEADERS, KEY, VALUE
from headrace.connect.undecoded import Undecoded
from headrace.engine.spark.datasource import batch, columns, read_tasks, stream

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql.datasource import InputPartition
    from pyspark.sql.types import StructType

    from headrace.connect.kafka.source import KafkaReader, KafkaSource
    from headrace.connect.source import OffsetRange
    from headrace.engine.spark.datasource.kafka_options import KafkaOptions
    from headrace.log import Log, Topic

_FORMAT = 'format("headrace")'
_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
RAW = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": TIMESTAMP,
    "timestampType": pa.int32(),
    "headers": _HEADERS,
}
"""The columns of records that are not decoded: those of Spark's own connector."""
_STORED = {"key": KEY, "value": VALUE, "offset": "_offset", "timestamp": "_time", "headers": HEADERS}
_BESIDE = {"_topic": "topic", "_partition": "partition", "_offset": "offset", "_time": "timestamp"}
"""Columns that may be read beside those of a format."""
_SHOWN = 200


def spark_schema(options: KafkaOptions) -> StructType:
    """Return the columns that are read unless the user gives a schema.

    Raises:
        InvalidOption: a format needs a schema.

    """
    if options.format is not None:
        raise InvalidOption(
            f'format "{options.format.name}" needs the columns of the records',
            hint='Say .schema("id int, at timestamp"); _topic, _partition, _offset and _time may be among them.',
        )
    fields = [(name, kind) for name, kind in RAW.items() if name != "headers" or options.metadata]
    return columns.spark_schema(pa.schema(fields))


class KafkaLog:
    """The topics of a cluster, as the planner of a log's queries knows them."""

    def __init__(self, options: KafkaOptions, *, anew: bool = False) -> None:
        self.options, self.anew = options, anew
        self.path = str(options.address)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        """Readers stay open for the next micro-batch."""

    def topics(self) -> list[str]:
        """Return the names of all topics, without the address's prefix."""
        from headrace.connect.kafka.client.administration import cluster

        prefix = self.options.address.prefix
        return [name.removeprefix(prefix) for name in cluster(self.options.address).names()]

    def has_topic(self, name: str) -> bool:
        """Whether there is a topic."""
        return bool(_reader(self.options, name).bounds().end)

    def topic(self, name: str) -> KafkaTopic:
        """Return a topic.

        Raises:
            UnknownTopic: there is none.

        """
        reader = _reader(self.options, name, anew=self.anew)
        bounds = reader.bounds()
        if not bounds.end:
            raise UnknownTopic(name, log=self.path, topics=self.topics())
        ends = {int(number): end for number, end in sorted(bounds.end.items())}
        return KafkaTopic(name, {number: bounds.earliest[str(number)] for number in ends}, ends, reader)


@dataclass(frozen=True)
class KafkaTopic:
    """A topic with its bounds at one moment."""

    name: str
    first: dict[int, int]
    last: dict[int, int]
    reader: KafkaReader

    @property
    def partitions(self) -> int:
        """How many there are."""
        return len(self.last)

    def start_offsets(self) -> dict[int, int]:
        """Return the first offset of each partition."""
        return self.first

    def end_offsets(self) -> dict[int, int]:
        """Return the end of each partition: what is committed."""
        return self.last

    def offsets_at(self, time_ms: int) -> dict[int, int]:
        """Return the first offset with this timestamp or a later one; the end where there is none."""
        at = self.reader.topic.offsets(time_ms)[0]
        return {number: at[number] if at.get(number, -1) >= 0 else end for number, end in self.last.items()}


_READERS: dict[tuple[int, KafkaSource], KafkaReader] = {}
"""Open readers, which a process keeps between micro-batches; by process, since connections do not survive a fork."""


def _reader(options: KafkaOptions, name: str, *, anew: bool = False) -> KafkaReader:
    """Return the reader of a topic. `anew`: it knows nothing yet of the topic that has this name."""
    from headrace.connect.kafka.source import KafkaSource

    source = KafkaSource(address=options.address, topic=name, isolation=options.isolation, reader=options.reader)
    place = os.getpid(), source
    if anew and place in _READERS:
        _READERS.pop(place).close()
    if place not in _READERS:
        _READERS[place] = source.open(clock=SystemClock())
    return _READERS[place]


class KafkaBatchReader(batch.BatchReader):
    """Reads the records of a subscription between two sets of offsets."""

    options: KafkaOptions

    def arrow_schema(self, schema: StructType) -> pa.Schema:
        """Return the columns that Spark asks for, if records have them."""
        return _checked(self.options, schema)

    def log(self) -> Log:
        """Return the cluster's topics."""
        return KafkaLog(self.options, anew=True)  # type: ignore[return-value] # what the planner needs of a log

    def pruned(self, topic: Topic, range_: OffsetRange) -> list[OffsetRange]:
        """Return the range: Kafka has no index that filters could use."""
        del topic
        return [range_] if range_.rows else []

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of one task."""
        assert isinstance(partition, read_tasks.ReadTask)  # noqa: S101 -- `partitions` returned it
        return _batches(self.options, self.schema, partition.ranges)


class KafkaStreamReader(stream.StreamReader):
    """Plans and reads micro-batches of a subscription."""

    options: KafkaOptions

    def arrow_schema(self, schema: StructType) -> pa.Schema:
        """Return the columns that Spark asks for, if records have them."""
        return _checked(self.options, schema)

    def log(self) -> Log:
        """Return the cluster's topics."""
        return KafkaLog(self.options)  # type: ignore[return-value] # what the planner needs of a log

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of one task."""
        assert isinstance(partition, read_tasks.ReadTask)  # noqa: S101 -- `partitions` returned it
        return _batches(self.options, self.schema, partition.ranges)


def _checked(options: KafkaOptions, schema: StructType) -> pa.Schema:
    wanted: pa.Schema = to_arrow_schema(schema, timezone="UTC")
    for field in wanted:
        kind = RAW.get(field.name if options.format is None else _BESIDE.get(field.name, ""))
        if kind is None and options.format is None:
            raise UnknownColumn(field.name, step=_FORMAT, columns=list(RAW))
        if kind is not None and kind != field.type:
            needs = f"read as {type_name(field.type)}: cast it in the query"
            raise WrongColumnType(field.name, step=_FORMAT, is_type=type_name(kind), needs=type_name(kind), role=needs)
    return wanted


def _batches(options: KafkaOptions, schema: pa.Schema, ranges: Sequence[OffsetRange]) -> Iterator[pa.RecordBatch]:
    for range_ in ranges:
        reader = _reader(options, range_.source)
        if not reader.knows_its_topic():  # a batch was planned after the topic was created again
            reader = _reader(options, range_.source, anew=True)
        for records in _records(options, schema, reader, range_):
            rows = (
                _raw(records, reader, range_, schema)
                if options.format is None
                else _rows(options, records, reader, range_, schema)
            )
            yield from rows.to_batches()


def _records(
    options: KafkaOptions, schema: pa.Schema, reader: KafkaReader, range_: OffsetRange
) -> Iterator[pa.RecordBatch]:
    beside = {_STORED[_BESIDE[name]] for name in schema.names if _BESIDE.get(name) in _STORED}
    if options.format is None:
        needed = {_STORED[name] for name in schema.names if name in _STORED}
    else:
        needed = {*options.format.columns, VALUE, "_offset", *([KEY] if options.key else []), *beside}
    try:
        yield from reader.read(range_, sorted(needed | {"_offset"}))
    except OffsetsLost as error:
        if options.fail_on_data_loss:
            raise DataLoss(
                f'topic "{range_.source}", partition {range_.partition}: the records from {range_.start} on are gone',
                detail=f"It begins at offset {error.earliest} now; they went after the planning.",
                hint='Keep records longer than a query takes, or accept the loss: .option("failOnDataLoss", "false").',
            ) from error
        if error.earliest < range_.end:
            yield from _records(options, schema, reader, replace(range_, start=error.earliest))


def _raw(records: pa.RecordBatch, reader: KafkaReader, range_: OffsetRange, schema: pa.Schema) -> pa.Table:
    """Return records with columns of `RAW`."""
    count = records.num_rows
    make: dict[str, Any] = {
        "topic": lambda: pa.repeat(pa.scalar(range_.source), count),
        "partition": lambda: pa.repeat(pa.scalar(int(range_.partition), pa.int32()), count),
        "timestampType": lambda: pa.repeat(pa.scalar(int(_dated_by_broker(reader)), pa.int32()), count),
        "headers": lambda: _headers(records.column(HEADERS)),
    }
    stored = {name: records.column(at) for name, at in _STORED.items() if at in records.schema.names}
    arrays = [make[field.name]() if field.name in make else stored[field.name] for field in schema]
    return pa.Table.from_arrays(arrays, schema=schema)


def _dated_by_broker(reader: KafkaReader) -> bool:
    from headrace.connect.kafka.client.administration import cluster

    settings = cluster(reader.source.address).settings(reader.source.name)
    return settings.get("message.timestamp.type") == "LogAppendTime"


def _headers(headers: pa.Array) -> pa.Array:
    """Return headers with Spark's names of their parts."""
    pairs = pa.StructArray.from_arrays(headers.values.flatten(), fields=list(_HEADERS.value_type))
    return pa.ListArray.from_arrays(headers.offsets, pairs, type=_HEADERS)


def _rows(
    options: KafkaOptions, records: pa.RecordBatch, reader: KafkaReader, range_: OffsetRange, schema: pa.Schema
) -> pa.Table:
    """Return decoded records, with the columns beside them.

    Raises:
        UnreadableRecord: a record cannot be decoded, unless such records are dropped.

    """
    assert options.format is not None  # noqa: S101 -- the caller checks it
    inside = pa.schema([field for field in schema if field.name not in _BESIDE])
    table = pa.Table.from_batches([records])
    how = Undecoded(inside, options.key, options.format, options.key_format, upserts=False)
    decoded = how.rows(table)
    if len(decoded.bad) and options.mode == "FAILFAST":
        first = decoded.bad[0].as_py()
        raise UnreadableRecord(
            f'the topic "{range_.source}" has a record that cannot be read: {decoded.reasons[0].as_py()}',
            detail=f"partition {range_.partition}, offset {table.column('_offset')[first].as_py()}: "
            f"{str(table.column(VALUE)[first].as_py())[:_SHOWN]}",
            hint='Leave such records out: .option("mode", "DROPMALFORMED").',
        )
    at = table.take(decoded.at)
    names = [name for name in schema.names if name in _BESIDE]
    beside = pa.schema([pa.field(_BESIDE[name], RAW[_BESIDE[name]]) for name in names])
    batches = at.combine_chunks().to_batches()
    found = _raw(batches[0], reader, range_, beside) if batches else beside.empty_table()
    arrays = [
        found.column(_BESIDE[field.name]) if field.name in names else decoded.rows.column(field.name)
        for field in schema
    ]
    return pa.Table.from_arrays(arrays, schema=schema)

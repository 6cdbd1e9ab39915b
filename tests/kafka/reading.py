"""What tests of reading share: topics with records, and two readers that must agree."""

from __future__ import annotations

from contextlib import closing

import pyarrow as pa
from confluent_kafka import Producer

from headrace.base.time import ManualClock
from headrace.connect.kafka.address import KafkaAddress
from headrace.connect.kafka.client.administration import cluster
from headrace.connect.kafka.reading.raw_columns import TYPES
from headrace.connect.kafka.source import KafkaSource
from headrace.connect.source import OffsetRange

ALL = tuple(TYPES)


def created(broker, name="t", *, partitions=1, **settings):
    """Create a topic; return its name in the cluster. Settings have underscores for dots.

    It keeps old records: tests give them times of their own.
    """
    settings = {"retention.ms": "-1"} | {key.replace("_", "."): str(value) for key, value in settings.items()}
    cluster(KafkaAddress.parse(broker.address)).create(broker.topic(name), partitions=partitions, settings=settings)
    return broker.topic(name)


def producer(broker, **options):
    """Return a producer of librdkafka. Options have underscores for dots."""
    return Producer(
        {"bootstrap.servers": broker.bootstrap, "linger.ms": 20, "log_level": 0}
        | {key.replace("_", "."): value for key, value in options.items()}
    )


def source(broker, name="t", **options):
    return KafkaSource(address=KafkaAddress.parse(broker.address), topic=name, **options)


def ranges(reader):
    """Return all that can be read now."""
    bounds = reader.bounds()
    return [
        OffsetRange(source="s", partition=each, start=bounds.earliest[each], end=end)
        for each, end in sorted(bounds.end.items())
    ]


def table(reader, parts, columns=ALL):
    empty = pa.schema([(name, TYPES[name]) for name in columns]).empty_table()
    batches = [batch for part in parts for batch in reader.read(part, columns)]
    return pa.concat_tables([empty, pa.Table.from_batches(batches)]) if batches else empty


def read_by(broker, reader, name="t", columns=ALL, **options):
    with closing(source(broker, name, reader=reader, **options).open(clock=ManualClock())) as opened:
        return table(opened, ranges(opened), columns)


def read_twice(broker, name="t", **options):
    """Return the rows that both readers see, which are the same."""
    fast, slow = (read_by(broker, reader, name, **options) for reader in ("fast", "librdkafka"))
    assert fast.combine_chunks().equals(slow.combine_chunks()), "both readers read the same"
    return fast.to_pylist()

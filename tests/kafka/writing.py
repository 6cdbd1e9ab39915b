"""What tests of writing share: a sink of a topic, rows, and what a reader of committed records sees."""

from __future__ import annotations

import json
from contextlib import closing

import pyarrow as pa

from headrace.base.time import SystemClock
from headrace.connect.formats import format_named
from headrace.connect.kafka.address import KafkaAddress
from headrace.connect.kafka.sink import KafkaSink
from headrace.connect.kafka.source import KafkaSource
from headrace.connect.source import OffsetRange
from headrace.connect.topics import TopicSpec

CLOCK = SystemClock()
COLUMNS = pa.schema([("id", pa.int32()), ("text", pa.string())])
AT = 1_767_225_600_000_000  # 2026-01-01, microseconds
WAYS = {"fast": "", "librdkafka": "&compression.type=snappy"}
"""What an address says so that one of the two producers writes."""


def sink(broker, name="out", *, way="fast", key=("id",), changelog=False, **more):
    address = KafkaAddress.parse(f"{broker.address}{WAYS[way]}")
    return sink_at(address, name, key=key, changelog=changelog, **more)


def sink_at(address, name="out", *, key=("id",), changelog=False, **more):
    spec = TopicSpec(name=name, schema=COLUMNS, key=key, changelog=changelog)
    made = {"format": format_named("json"), "partitions": 2} | more
    return KafkaSink(address=address, topic=spec, **made)


def opened(*sinks, writer="app/1"):
    for each in sinks:
        each.prepare(clock=CLOCK)
    return sinks[0].open_together({each.topic.name: each for each in sinks}, writer=writer, clock=CLOCK)


def rows(*ids, text="t{}", deleted=None):
    columns = {
        "id": pa.array(ids, pa.int32()),
        "text": pa.array([text.format(each) for each in ids]),
        "_time": pa.array([AT + 1_000_000 * (each or 0) for each in ids], pa.int64()),
    }
    if deleted is not None:
        columns["_deleted"] = pa.array([each in deleted for each in ids])
    return iter([pa.record_batch(columns)])


def records(broker, name="out", *, reader="fast"):
    """Return by partition what is committed: dicts with key, value, headers, time."""
    source = KafkaSource(address=KafkaAddress.parse(broker.address), topic=name, reader=reader)
    columns = ["_key", "value", "_headers", "_time"]
    found = {}
    with closing(source.open(clock=CLOCK)) as opened:
        bounds = opened.bounds()
        for part, end in bounds.end.items():
            each = OffsetRange(source="s", partition=part, start=bounds.earliest[part], end=end)
            found[int(part)] = [row for batch in opened.read(each, columns) for row in batch.to_pylist()]
    return found


def values(broker, name="out", **more):
    """Return the values of all partitions, as JSON, in the order of their ids."""
    found = [json.loads(each["value"]) for part in records(broker, name, **more).values() for each in part]
    return sorted(found, key=json.dumps)


def ids(broker, name="out", **more):
    return sorted(each["id"] for each in values(broker, name, **more))

"""Bids as JSON in a Kafka topic, and the same in Parquet: what the Kafka benches read, and where answers come from.

Seeded; some 190 bytes a bid, in the order of event time, 10,000 a second of it. Half of the bids go to the auction that
is hot at the moment, three quarters come from the bidder who is. A bid's key is its auction, its Kafka timestamp its
event time. The names of fields and topic are those of the Nexmark generators of the rivals.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from bench.words import join, words

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from bench.setting import Setting

SEED = 20260131
FIRST_MS = 1_767_225_600_000  # 2026-01-01, the start of a window
RATE = 10_000
PARTITIONS = 2
SCHEMA = "auction bigint, bidder bigint, price bigint, channel string, url string, dateTime timestamp, extra string"
_CHUNK = 100_000
_ACTIVE = 1_000
_CHANNELS = 10_000


@dataclass(frozen=True)
class Bids:
    """Where the bids are. The topic is `<prefix>-bid`, since the rivals name it so."""

    servers: str
    prefix: str
    rows: int
    parquet: Path

    @property
    def topic(self) -> str:
        """The topic's name."""
        return f"{self.prefix}-bid"

    def ask(self, query: str) -> tuple[int, ...]:
        """Return the numbers that a query over `bid` gives."""
        with duckdb.connect() as con:
            con.execute(f"CREATE VIEW bid AS FROM '{self.parquet}'")
            (found,) = con.execute(query).fetchall()
        return tuple(int(number) for number in found)


def make(
    setting: Setting,
    servers: str,
    *,
    rows: int,
    name: str = "bids",
    change: Callable[[pa.Array], pa.Array] = lambda values: values,
) -> Bids:
    """Write the bids to a new topic and to a Parquet file; `change` may change the records' values in the topic."""
    setting.say(f"writing {rows:,} bids to a topic and to Parquet")
    folder = setting.fresh(name)
    folder.mkdir(parents=True)
    bids = Bids(servers, f"{name}-{setting.folder.name[-8:]}", rows, folder / "bid.parquet")
    create(servers, bids.topic, partitions=PARTITIONS)
    producer = _producer(servers)
    with pq.ParquetWriter(bids.parquet, next(chunks(1)).schema) as writer:
        for table in chunks(rows):
            writer.write_table(table)
            _send(producer, bids.topic, table, change(as_json(table)))
    producer.flush()
    return bids


def create(servers: str, topic: str, *, partitions: int, **settings: str) -> None:
    """Create a topic that keeps records of any time for ever."""
    from confluent_kafka.admin import AdminClient, NewTopic

    spec = NewTopic(topic, partitions, 1, config={"retention.ms": "-1"} | settings)
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    for done in admin.create_topics([spec]).values():
        done.result()


def delete(servers: str, *topics: str) -> None:
    """Delete topics."""
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    for done in admin.delete_topics(list(topics)).values():
        done.result()


def values(servers: str, topic: str) -> Iterator[bytes]:
    """Yield the value of each record that a consumer with read_committed gets."""
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    settings = {"isolation.level": "read_committed", "enable.auto.commit": False, "enable.partition.eof": True}
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "bench-check", **settings})
    unread = set(consumer.list_topics(topic, timeout=30).topics[topic].partitions)
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in unread])
    while unread:
        for message in consumer.consume(10_000, 1):
            if message.error():  # the end of a partition
                unread.discard(message.partition())
            else:
                yield message.value()
    consumer.close()


def _producer(servers: str) -> object:
    from confluent_kafka import Producer

    return Producer(
        {
            "bootstrap.servers": servers,
            "log_level": 0,
            "enable.idempotence": True,
            "linger.ms": 20,
            "batch.size": 1_000_000,
            "queue.buffering.max.messages": 500_000,
            "partitioner": "murmur2_random",
        }
    )


def _send(producer: object, topic: str, table: pa.Table, values: pa.Array) -> None:
    keys = table["auction"].cast(pa.string()).cast(pa.binary()).to_pylist()
    times = table["dateTime"].cast(pa.int64()).to_pylist()
    for value, key, at in zip(values.to_pylist(), keys, times, strict=True):
        while True:
            try:
                producer.produce(topic, value, key, timestamp=at)  # type: ignore[attr-defined]
                break
            except BufferError:
                producer.poll(0.1)  # type: ignore[attr-defined]
    producer.poll(0)  # type: ignore[attr-defined]


def chunks(rows: int) -> Iterator[pa.Table]:
    """Make the bids some at a time: a chunk's numbers follow from the seed and its place alone."""
    random = np.random.default_rng([SEED, 2**32])
    parts_of_paths = words(random, 3 * _CHANNELS, 5, 5)
    ids = pa.array(random.integers(0, 2**31, _CHANNELS)).cast(pa.string())
    parts = [parts_of_paths.slice(i * _CHANNELS, _CHANNELS) for i in range(3)]
    urls = join("https://www.nexmark.com/", parts[0], "/", parts[1], "/", parts[2], "/item.htm?query=1&channel_id=",
                 ids)  # fmt: skip
    channels = pa.array(["Google", "Facebook", "Baidu", "Apple", *(f"channel-{i}" for i in range(4, _CHANNELS))])
    for number, first in enumerate(range(0, rows, _CHUNK)):
        random = np.random.default_rng([SEED, number])
        event = np.arange(first, min(first + _CHUNK, rows), dtype=np.int64)
        count = len(event)
        auction, bidder = event // 15, event // 46
        hot = (auction // 100 * 100, bidder // 100 * 100 + 1)
        channel = pa.array(
            np.where(random.random(count) < 0.5, random.integers(0, 4, count), random.integers(4, _CHANNELS, count))
        )
        yield pa.table(
            {
                "auction": 1000
                + np.where(random.random(count) < 0.5, hot[0], auction - random.integers(0, 110, count)).clip(0),
                "bidder": 1000
                + np.where(random.random(count) < 0.75, hot[1], bidder - random.integers(0, _ACTIVE, count)).clip(0),
                "price": np.rint(10.0 ** (random.random(count) * 6) * 100).astype(np.int64),
                "channel": channels.take(channel),
                "url": urls.take(channel),
                "dateTime": pa.array(FIRST_MS + event * 1000 // RATE, pa.timestamp("ms")),
                "extra": words(random, count, 0, 12),
            }
        )


def as_json(table: pa.Table) -> pa.Array:
    """Return one JSON text a row; no text made here needs escaping."""
    parts: list[pa.Array | str] = []
    for number, field in enumerate(table.schema):
        column = table[field.name].combine_chunks()
        parts.append(("{" if number == 0 else ",") + f'"{field.name}":')
        if pa.types.is_timestamp(field.type):
            column = pc.strftime(column, "%Y-%m-%d %H:%M:%S")
        parts += [column.cast(pa.string())] if pa.types.is_integer(field.type) else ['"', column, '"']
    return join(*parts, "}").cast(pa.binary())

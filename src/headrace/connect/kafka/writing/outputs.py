"""Sends rows to topics of a cluster, in a transaction: with their keys, partitions and times, and dead letters."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.base.broker_errors import RecordTooLarge, TopicMissing
from headrace.base.dead_letters import DEAD, NO_KEY, dead_letters, keyless
from headrace.base.outside import OutputLost
from headrace.base.text import counted
from headrace.connect.formats import format_named
from headrace.connect.kafka.client.administration import cluster
from headrace.connect.kafka.writing.marks import Written
from headrace.connect.kafka.writing.partitioner import partitions_of
from headrace.connect.kafka.writing.records import Records, encode
from headrace.connect.kafka.writing.transactions import BATCH_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from headrace.base.errors import HeadraceError
    from headrace.base.time import Clock
    from headrace.connect.format import Format
    from headrace.connect.kafka.address import KafkaAddress
    from headrace.connect.kafka.writing.marks import Mark
    from headrace.connect.kafka.writing.transactions import Spans, Transactions

logger = logging.getLogger("headrace.kafka")

FRESH_SECONDS = 30.0
"""How long it is believed how many partitions a topic has."""
_SHOWN_RECORD = 10_000
_LONGEST_CHARACTER = 8
"""A character of a record has at most so many bytes in a dead letter, and room is left for the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputTopic:
    """A topic to write to, by its name in the cluster; `ensure` creates it if it is missing."""

    name: str
    dead_name: str
    schema: pa.Schema
    key: tuple[str, ...]
    format: Format
    key_format: Format | None
    too_large: str
    ensure: Callable[[], None]

    @property
    def has_dead_letters(self) -> bool:
        """Whether it is a topic of dead letters itself."""
        return self.name == self.dead_name


@dataclass(frozen=True, slots=True)
class _Known:
    """What is known of a topic since `at` (seconds)."""

    id: str
    partitions: int
    compacted: bool
    largest: int
    at: float


class Outputs:
    """The topics that one writer sends to, and what is known of them."""

    def __init__(self, address: KafkaAddress, clock: Clock) -> None:
        self.address = address
        self.clock = clock
        self._known: dict[str, _Known] = {}
        self._formats: dict[str, tuple[Format, Format | None]] = {}

    def send(self, transactions: Transactions, topic: OutputTopic, batch: pa.RecordBatch, first: int) -> None:
        """Send rows in their order.

        Args:
            transactions: a transaction that has begun.
            topic: where to.
            batch: columns of the topic, `_time` (int64), and of a changelog `_deleted`, perhaps `_before`.
            first: where to begin to spread rows without a key.

        Raises:
            RecordTooLarge: a record is larger than the topic takes, and `too_large` is "fail".
            TopicMissing: the topic was deleted.

        """
        known = self._topic(topic.name, topic.ensure)
        batch = _complete(batch, topic.schema)
        if known.compacted and topic.key:
            batch = self._without_keyless(transactions, topic, batch, first)
        form, key_format = self._formats_of(topic)
        as_records = partial(
            encode, schema=topic.schema, key=topic.key, format=form, key_format=key_format, now=self.clock.now()
        )
        records = as_records(batch)
        if topic.has_dead_letters and (large := records.sizes() > known.largest).any():
            records = as_records(_shortened(batch, known.largest, pa.array(large)))
        records = self._without_large(transactions, topic, batch, records, known.largest)
        self._to(transactions, topic.name, records, known, first)

    def _to(self, transactions: Transactions, name: str, records: Records, known: _Known, first: int) -> None:
        """Send records to a topic, in batches that it takes: packing may add some bytes."""
        places = partitions_of(records.keys, known.partitions, first=first)
        transactions.send(name, records, places, most=min(BATCH_BYTES, known.largest - known.largest // 50))

    def _formats_of(self, topic: OutputTopic) -> tuple[Format, Format | None]:
        """Return the formats of a topic's values and keys."""
        if topic.name not in self._formats:
            keys = None if topic.key_format is None else topic.key_format.bound(topic.name, key=True)
            self._formats[topic.name] = topic.format.bound(topic.name), keys
        return self._formats[topic.name]

    def _without_keyless(
        self, transactions: Transactions, topic: OutputTopic, batch: pa.RecordBatch, first: int
    ) -> pa.RecordBatch:
        """Return the rows with a key: a compacted topic refuses the others, which become dead letters."""
        absent = keyless(batch, topic.key)
        if absent is None:
            return batch
        reason = f"{NO_KEY}: {', '.join(topic.key)} is null, and the topic is compacted"
        self._bury(transactions, topic, batch.filter(absent), reason, first)
        return batch.filter(pc.invert(absent))

    def _without_large(
        self, transactions: Transactions, topic: OutputTopic, batch: pa.RecordBatch, records: Records, largest: int
    ) -> Records:
        """Return the records that the topic takes.

        Raises:
            RecordTooLarge: one is larger.

        """
        sizes = records.sizes()
        if not len(sizes) or sizes.max() <= largest:
            return records
        large = np.flatnonzero(sizes > largest)
        row, size = int(large[0]), int(sizes[large[0]])
        if topic.too_large == "dead_letter":
            reason = f"too large: its record has {size} bytes, and the topic {topic.name} takes {largest}"
            rows = batch.take(pa.array(records.rows_of(large)))
            self._bury(transactions, topic, rows, reason, 0)
            too_large = counted(len(rows), "row")
            logger.warning("%s too large for the topic %s: see %s", too_large, topic.name, topic.dead_name)
            return records.take(np.flatnonzero(sizes <= largest))
        key = records.keys[row].as_py()
        raise RecordTooLarge(
            f'a record for the topic "{topic.name}" has {size:,} bytes, and the topic takes {largest:,}',
            detail=f"Its key is {'null' if key is None else repr(key[:200].decode('utf-8', 'replace'))}. "
            "Nothing of its epoch is visible; the rows are staged.",
            hint=f"Let the topic take it: kafka-configs --alter --entity-type topics --entity-name {topic.name} "
            f"--add-config max.message.bytes={2 * size}; then start the app again.",
        )

    def _bury(
        self, transactions: Transactions, topic: OutputTopic, rows: pa.RecordBatch, reason: str, first: int
    ) -> None:
        """Send rows to the dead letters of a topic, in the same transaction."""
        table = pa.Table.from_batches([rows])
        reasons = pa.array([reason] * len(rows), pa.string())
        nowhere = pa.array([-1] * len(rows), pa.int32()), pa.array([-1] * len(rows), pa.int64())
        letters = dead_letters(topic.name, *nowhere, reasons, table)
        timed = letters.append_column("_time", rows.column("_time")).combine_chunks().to_batches()[0]
        known = self._topic(topic.dead_name, lambda: self.create_dead(topic.dead_name))
        timed = _shortened(timed, known.largest, pa.repeat(pa.scalar(value=True), len(rows)))
        records = encode(timed, DEAD, (), format=format_named("json"), key_format=None, now=self.clock.now())
        self._to(transactions, topic.dead_name, records, known, first)

    def create_dead(self, name: str) -> None:
        """Create a topic of dead letters, by its name in the cluster; one that exists is no error."""
        cluster(self.address).create(name, settings={"retention.ms": "-1"})

    def doubt(self) -> None:
        """Ask the cluster again what is known of the topics: something failed, and one may be gone."""
        self._known = {name: replace(known, at=float("-inf")) for name, known in self._known.items()}

    def written(self, mark: Mark, epoch: int, spans: Spans) -> dict[str, Written]:
        """Return what the next mark says of topics, by name: also of partitions that got nothing this time.

        Raises:
            TopicMissing: a topic was deleted and created again since the mark.
            OutputLost: a topic has lost records since the mark.

        """
        return {name: self._written(mark, name, epoch, by_partition) for name, by_partition in spans.items()}

    def _written(self, mark: Mark, name: str, epoch: int, spans: Mapping[int, range]) -> Written:
        before, known = mark.topics.get(name), self._known[name]
        ends = dict(before.ends) if before is not None and before.id == known.id else {}
        for partition, span in spans.items():
            if span.start < ends.get(partition, 0):
                raise self._lost(name, f"partition {partition} ended at offset {span.start}, not {ends[partition]}")
        ends |= {partition: span.stop for partition, span in spans.items()}
        return Written(known.id, epoch, ends, {partition: span.start for partition, span in spans.items()})

    def _topic(self, name: str, ensure: Callable[[], None]) -> _Known:
        """Return what is known of a topic; a missing one is created only before the first rows."""
        known = self._known.get(name)
        now = self.clock.monotonic()
        if known is not None and now - known.at < FRESH_SECONDS:
            return known
        at = cluster(self.address)
        if known is None:
            ensure()
        found = at.topic(name)
        if known is not None and found.id != known.id:
            raise self._another(name)
        settings = at.settings(name)
        compacted = "compact" in settings.get("cleanup.policy", "")
        largest = int(settings.get("max.message.bytes", 1 << 20))
        self._known[name] = _Known(found.id, found.partitions, compacted, largest, now)
        return self._known[name]

    def _lost(self, name: str, what: str) -> HeadraceError:
        """Return what it means that a topic ended before what was written to it."""
        if cluster(self.address).topic(name).id != self._known[name].id:
            return self._another(name)
        return OutputLost(f'the topic "{name}" of Kafka at {self.address.servers} has lost records: {what}')

    def _another(self, name: str) -> TopicMissing:
        return TopicMissing(
            f'the topic "{name}" of Kafka at {self.address.servers} was deleted and created again',
            hint="The next start says what can be done: what was published to it before is gone.",
        )


def _complete(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return rows with every column: one that the program has got since an epoch was staged is null, as in a log."""
    for field in schema:
        if field.name not in rows.schema.names:
            rows = rows.append_column(field, pa.nulls(len(rows), field.type))
    return rows


def _shortened(letters: pa.RecordBatch, largest: int, which: pa.Array) -> pa.RecordBatch:
    """Return dead letters for a topic that takes so many bytes: some have only the first characters of their record."""
    records = letters.column("record")
    shown = pc.utf8_slice_codeunits(records, 0, min(_SHOWN_RECORD, largest // _LONGEST_CHARACTER))
    shown = pc.if_else(which, shown, records)
    return letters.set_column(letters.schema.get_field_index("record"), DEAD.field("record"), shown)

"""Writes epochs to the topics of a cluster: an epoch is one transaction, and the mark in it says that it is there.

What happens when something fails:

- Before the commit: the transaction is aborted, nobody sees its records, and the epoch is written again.
- In the commit, without an answer: whether it happened is not known. A new producer of the same transactional id is
  opened, which makes the cluster finish what was left; then the mark says it.
- The cluster refuses this producer: another process has opened the id (its mark shows it: `Fenced`), or the
  transaction took longer than the broker allows (the next one may take twice as long).
"""

from __future__ import annotations

import uuid
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.base.broker_errors import RecordTooLarge, TopicMissing
from headrace.base.dead_letters import DEAD, dead_letters
from headrace.base.errors import HeadraceError
from headrace.base.outside import Fenced, OutputLost, Unavailable
from headrace.connect.formats import format_named
from headrace.connect.kafka import marks
from headrace.connect.kafka.administration import cluster
from headrace.connect.kafka.marks import Mark, Written
from headrace.connect.kafka.partitioner import partitions_of
from headrace.connect.kafka.records import Records, encode, keyless
from headrace.connect.kafka.transactions import LONGEST_TIMEOUT_MS, TIMEOUT_MS, TransactionFenced, Transactions
from headrace.connect.sink import SharedWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from headrace.base.time import Clock
    from headrace.connect.format import Format
    from headrace.connect.kafka.address import KafkaAddress

FRESH_SECONDS = 30.0
"""How long it is believed how many partitions a topic has."""
_SHOWN_RECORD = 10_000


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


@dataclass(frozen=True, slots=True)
class _Known:
    """What is known of a topic since `at` (seconds)."""

    id: str
    partitions: int
    compacted: bool
    largest: int
    at: float


class KafkaWriter(SharedWriter):
    """Writes epochs to topics of a cluster, each in one transaction.

    Args:
        address: the cluster.
        topics: the topics, by the names of their sinks.
        writer: `<app>/<storage id>`; a newer writer of the same name fences this one.
        clock: the clock of the app.
        fault: called at each point where a test may crash.

    Raises:
        Unavailable: the cluster does not answer.

    """

    def __init__(
        self,
        address: KafkaAddress,
        topics: Mapping[str, OutputTopic],
        *,
        writer: str,
        clock: Clock,
        fault: Callable[[str], None],
    ) -> None:
        self.address = address
        self.topics = topics
        self.writer = writer
        self.clock = clock
        self.fault = fault
        self.instance = uuid.uuid4().hex
        self._known: dict[str, _Known] = {}
        self._timeout_ms = TIMEOUT_MS
        self._transactions: Transactions | None = None
        marks.ensure_marks(address)
        self._mark = Mark(writer)
        self._open(first=True)

    def last_epoch(self) -> int | None:
        """Return the epoch of the mark, -1 if there is none."""
        return self._mark.epoch

    def check_published(self, epochs: Mapping[str, int]) -> None:
        """Check that each topic is the one that was written to, and ends no earlier.

        Raises:
            OutputLost: it was deleted, perhaps created again, or lost records.

        """
        names = {self.topics[sink].name for sink in epochs if sink in self.topics}
        found = cluster(self.address).describe(names)
        for name in sorted(names & set(self._mark.topics)):
            written = self._mark.topics[name]
            if name not in found or (written.id and found[name].id != written.id):
                gone = "is gone" if name not in found else "was deleted and created again"
                raise OutputLost(f'the topic "{name}" of Kafka at {self.address.servers} {gone}')
            ends = cluster(self.address).ends(name, found[name].partitions, committed=False)
            for partition, end in written.ends.items():
                if ends.get(partition, 0) < end:
                    where = f'the topic "{name}", partition {partition} ends at offset {ends.get(partition, 0)}'
                    raise OutputLost(f"{where}, and the app has published up to offset {end}")

    def publish(self, epoch: int, rows: Mapping[str, Iterator[pa.RecordBatch]]) -> None:
        """Write rows and the mark of the epoch in one transaction; an epoch that is there already is left out.

        Raises:
            Fenced: a newer writer of this name is open.
            RecordTooLarge: a record is larger than its topic allows, and `too_large` is "fail".
            TopicMissing: a topic was deleted.
            Unavailable: the cluster does not answer; call it again.

        """
        transactions = self._transactions or self._open()
        if self._mark.epoch >= epoch:
            return
        try:
            mark = self._write(transactions, epoch, rows)
        except TransactionFenced as error:
            self._drop()
            raise self._fenced(error) from error
        except Exception:
            self._abort()
            raise
        try:
            self.fault("before_transaction_ends")
            transactions.commit()
        except TransactionFenced as error:
            self._drop()
            raise self._fenced(error) from error
        except Exception:
            self._drop()  # it may have happened
            raise
        self._mark = mark
        self.fault("after_transaction")

    def close(self) -> None:
        """Close the connections; an unfinished transaction is aborted."""
        if self._transactions is not None:
            self._drop()

    # ---- one transaction ----

    def _write(self, transactions: Transactions, epoch: int, rows: Mapping[str, Iterator[pa.RecordBatch]]) -> Mark:
        """Write an epoch up to the commit, and return its mark."""
        self.fault("before_transaction")
        transactions.begin()
        for sink, batches in rows.items():
            for number, batch in enumerate(batches):
                if batch.num_rows:
                    self._send(transactions, self.topics[sink], batch, epoch + number)
        self.fault("in_transaction")
        ends = transactions.ends()
        written = {name: self._written(name, epoch, by_partition) for name, by_partition in ends.items()}
        mark = self._mark.after(epoch, self.instance, written)
        self.fault("before_transaction_mark")
        self._send_mark(transactions, mark)
        return mark

    def _send(self, transactions: Transactions, topic: OutputTopic, batch: pa.RecordBatch, first: int) -> None:
        known = self._topic(topic.name, topic.ensure)
        if known.compacted and topic.key:
            batch = self._without_keyless(transactions, topic, batch, first)
        records = encode(
            batch,
            topic.schema,
            topic.key,
            format=topic.format,
            key_format=topic.key_format,
            now=self.clock.now(),
        )
        records = self._without_large(transactions, topic, batch, records, known.largest)
        transactions.send(topic.name, records, partitions_of(records.keys, known.partitions, first=first))

    def _without_keyless(
        self, transactions: Transactions, topic: OutputTopic, batch: pa.RecordBatch, first: int
    ) -> pa.RecordBatch:
        """Return the rows with a key: a compacted topic refuses the others, which become dead letters."""
        absent = keyless(batch.select(list(topic.key)))
        if absent is None:
            return batch
        reason = f"no key: {', '.join(topic.key)} is null, and the topic is compacted"
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
            self._bury(transactions, topic, batch.take(pa.array(large)), reason, 0)
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
        nowhere = pa.nulls(len(rows), pa.int32()), pa.nulls(len(rows), pa.int64())
        letters = dead_letters(topic.name, *nowhere, reasons, table)
        shown = pc.utf8_slice_codeunits(letters.column("record"), 0, _SHOWN_RECORD)
        letters = letters.set_column(DEAD.get_field_index("record"), DEAD.field("record"), shown)
        timed = letters.append_column("_time", rows.column("_time")).combine_chunks().to_batches()[0]
        known = self._topic(topic.dead_name, lambda: self._create_dead(topic.dead_name))
        records = encode(timed, DEAD, (), format=format_named("json"), key_format=None, now=self.clock.now())
        transactions.send(topic.dead_name, records, partitions_of(records.keys, known.partitions, first=first))

    def _create_dead(self, name: str) -> None:
        cluster(self.address).create(name, settings={"retention.ms": "-1"})

    def _written(self, name: str, epoch: int, ends: Mapping[int, int]) -> Written:
        """Return what the mark says of a topic: also of its partitions that got nothing this time."""
        before, known = self._mark.topics.get(name), self._known[name]
        earlier = before.ends if before is not None and before.id == known.id else {}
        return Written(known.id, epoch, {**earlier, **ends})

    def _send_mark(self, transactions: Transactions, mark: Mark) -> None:
        name = self.address.cluster_name(marks.MARKS)
        known = self._topic(name, lambda: marks.ensure_marks(self.address))
        now = np.array([self.clock.now() // 1_000], np.int64)
        records = Records(pa.array([mark.key()], pa.binary()), pa.array([mark.value()], pa.binary()), now)
        number = marks.partition_of(self.writer, known.partitions)
        transactions.send(name, records, np.array([number], np.int32))

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
            raise TopicMissing(f'the topic "{name}" of Kafka at {self.address.servers} was deleted and created again')
        settings = at.settings(name)
        compacted = "compact" in settings.get("cleanup.policy", "")
        largest = int(settings.get("max.message.bytes", 1 << 20))
        self._known[name] = _Known(found.id, found.partitions, compacted, largest, now)
        return self._known[name]

    # ---- producers ----

    def _open(self, *, first: bool = False) -> Transactions:
        """Open a producer: from then on an older one of this writer is fenced, and what it left is finished.

        Raises:
            Fenced: a newer writer is open already.

        """
        if not first:
            self._refuse_newer()
        transactions = Transactions(self.address, self._transactional_id, timeout_ms=self._timeout_ms)
        try:
            self._mark = marks.read_mark(self.address, self.writer) or Mark(self.writer)
            if self._mark.instance != self.instance:
                transactions.begin()
                self._mark = self._mark.after(self._mark.epoch, self.instance, {})
                self._send_mark(transactions, self._mark)
                transactions.commit()
        except TransactionFenced as error:
            transactions.close()
            raise self._fenced(error) from error
        except BaseException:
            transactions.close()
            raise
        self._transactions = transactions
        return transactions

    @property
    def _transactional_id(self) -> str:
        return f"{self.address.prefix}headrace.{self.writer.replace('/', '.')}"

    def _refuse_newer(self) -> None:
        found = marks.read_mark(self.address, self.writer)
        if found is not None and found.instance != self.instance:
            raise Fenced(f"of {self.writer}", by=f"it writes to Kafka at {self.address.servers}")

    def _fenced(self, error: Exception) -> HeadraceError:
        """Return what it means that the cluster refuses the producer: a newer writer, or too long a transaction."""
        try:
            self._refuse_newer()
        except HeadraceError as found:
            return found
        self._timeout_ms = min(2 * self._timeout_ms, LONGEST_TIMEOUT_MS)
        return Unavailable(
            f"Kafka at {self.address.servers} has ended the transaction of an epoch: {error}",
            detail=f"It took too long. The next attempt may take {self._timeout_ms // 1_000} seconds "
            "(transaction.timeout.ms of the address).",
        )

    def _abort(self) -> None:
        """Abort the transaction; a producer that cannot is dropped."""
        transactions = self._transactions
        try:
            if transactions is not None:
                transactions.abort()
        except (HeadraceError, TransactionFenced):
            self._drop()

    def _drop(self) -> None:
        transactions, self._transactions = self._transactions, None
        if transactions is not None:
            with suppress(HeadraceError, TransactionFenced):
                transactions.close()

"""A topic: what a user of the log reads and appends to."""

from __future__ import annotations

import logging
import threading
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headrace.base.errors import HeadraceError, InvalidTopic, LogClosed
from headrace.base.time import instant
from headrace.log import changes, records
from headrace.log.appending.producers import first_of, identity
from headrace.log.appending.requests import check_arguments, check_partition, request_for
from headrace.log.appending.together import each
from headrace.log.appending.writer import Writer
from headrace.log.cleaning.rules import Cleaned, Cleaner
from headrace.log.cleaning.verify import Finding, verify, verify_keys
from headrace.log.meta import SETTINGS, Meta, MetaFile
from headrace.log.privacy.subjects import Privacy
from headrace.log.projection import Projection, result_schema
from headrace.log.segments import payload as payloads
from headrace.log.segments import times
from headrace.log.segments.partition import Partition
from headrace.log.segments.segment import Place

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
    from pathlib import Path

    from headrace.log.log import Log
    from headrace.log.rows import Rows
    from headrace.log.segments.frame import Frame
    from headrace.log.segments.segment import Segment

_LOGGER = logging.getLogger("headrace.log")
_READ = ("_offset", "_time", "_deleted")


class Topic:
    """A named, partitioned, append-only log of records with a schema; made by `Log.topic` and `Log.create_topic`.

    May be used by many threads, and pickled: elsewhere it opens the same path. Reading changes nothing on disk and
    never waits for writers.
    """

    def __init__(self, log: Log, folder: Path) -> None:
        self._log = log
        self._file = MetaFile(folder)
        self._first = self._file.current()
        self._privacy = Privacy(folder, self._first, fsync=log.fsync)
        self._lock = threading.Lock()
        self._partitions: dict[int, Partition] = {}
        self._writers: dict[int, Writer] = {}
        self._turn = -1
        self._stored: dict[tuple[int, int], pa.Schema] = {}

    def __repr__(self) -> str:
        return f'Topic("{self.name}", path="{self._file.folder}")'

    def __reduce__(self) -> tuple[object, ...]:
        return _reopened, (self._log, self.name)

    # ---- what it is ------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """The topic's name."""
        return self._first.name

    @property
    def schema(self) -> pa.Schema:
        """The columns of its records."""
        return self._meta().schema

    @property
    def partitions(self) -> int:
        """How many partitions it has; another process may have added some since the last look."""
        return self._meta().partitions

    @property
    def key(self) -> tuple[str, ...]:
        """The key columns; empty when records have no key."""
        return self._first.key

    @property
    def event_time(self) -> str | None:
        """The column that holds the event time, if one does."""
        return self._first.event_time

    @property
    def private(self) -> dict[str, str]:
        """The private columns, each with the column that says whose its values are."""
        return dict(self._first.private)

    @property
    def cleanup(self) -> str:
        """What becomes of old records: "delete" or "compact"."""
        return self._meta().cleanup

    @property
    def retention(self) -> int | None:
        """How long records are kept, in microseconds; None for ever."""
        return self._meta().retention

    @property
    def settings(self) -> dict[str, Any]:
        """What `alter` changes, by name; durations in microseconds, None where there is no bound."""
        meta = self._meta()
        return {name: getattr(meta, name) for name in SETTINGS}

    def sizes(self) -> dict[int, int]:
        """Return the bytes that each partition's records take on disk, archived ones included."""
        return {number: self._partition(number).size() for number in range(self.partitions)}

    # ---- changing what it is ---------------------------------------------------------------------------

    def evolve(self, schema: str | pa.Schema, defaults: Mapping[str, object] | None = None) -> list[str]:
        """Give the topic a new schema, and return in words what it changes; nothing when it is the same.

        `schema` is the whole new one. What it may do: add columns; widen types so that every old value stays exactly
        what it is (integers to wider ones, to a double if they have at most 32 bits and to a decimal with room for
        them; float to double; decimals to more digits on both sides of the point; date to timestamp_ntz; the same
        inside arrays, maps and structs; of key columns integers only); allow nulls. `defaults` gives added columns
        the value that older records have and that rows without the column get (a row that says None gets null).
        An added column that is not null needs one. All else is refused.

        Old records are read under the new schema, their files stay as they are. Whoever uses the topic sees it with
        the next call; a reader that runs keeps its columns.

        Raises:
            SchemaRefused: old records could not be read under it; the error lists what differs, and why.
            InvalidTopic: a default is no value of its column.
            ChangeFailed: the disk refused; all is as before.

        """
        return changes.evolve(self._open_file(), schema, defaults or {}, fsync=self._log.fsync)

    def add_partitions(self, total: int) -> None:
        """Give the topic more partitions, `total` in all; running readers find them.

        Trap: in a topic with a key most keys go to another partition from now on. Old records stay where they are,
        so the order of one key's records across the change is lost, and an append or a numbered row that is retried
        across the change may be appended twice.

        Raises:
            InvalidTopic: fewer are asked for than there are, or too many.
            ChangeFailed: the disk refused; all is as before.

        """
        changes.add_partitions(self._open_file(), total, fsync=self._log.fsync)

    def alter(self, **settings: Any) -> None:
        """Change settings that `Log.create_topic` took, such as `retention` and `cleanup`; others stay.

        Raises:
            InvalidTopic: there is no such setting, or it makes no sense for this topic.
            ChangeFailed: the disk refused; all is as before.

        """
        changes.alter(self._open_file(), settings, fsync=self._log.fsync)

    @property
    def schemas(self) -> list[pa.Schema]:
        """All schemas that it has had, in order; the last one is in force."""
        meta = self._meta()
        return [meta.schema_of(number + 1) for number in range(len(meta.schemas))]

    # ---- appending -------------------------------------------------------------------------------------

    def append(
        self,
        rows: Rows,
        *,
        partition: int | None = None,
        producer: str | None = None,
        sequence: int | None = None,
        sealed: bool = False,
    ) -> dict[int, range]:
        """Append rows and return the offsets given in each partition, once they are safe on disk.

        Rows are dicts, a `pyarrow.Table` or a `RecordBatch` (see `rows_to_table`), and may carry the system columns
        `_time` (the event time, where no column of the topic holds it), `_deleted` (a tombstone: only its key and
        its event time are kept) and `_headers`. Without `partition` the key's hash decides; without a key whole
        appends go round the partitions. No rows: nothing happens, and the answer is empty.

        One bad row, and nothing is written. In each partition the rows become visible all at once, but an append
        that spreads over several partitions is not atomic over them: after a crash some may have it, some not.

        With `producer` and `sequence` (it must grow) a retry of the same rows appends nothing: a partition in which
        the producer's last append has this sequence answers with the offsets of that append, and with an empty
        range at its end for a sequence older than the last. This holds over restarts. With `sealed` private columns
        hold what `batches(…, sealed=True)` gave.

        Raises:
            InvalidRows: a row does not fit.
            AppendFailed: the disk refused; the rows are not in that partition.

        """
        meta = self._meta()
        check_arguments(meta, partition, producer, sequence)
        now = self._log.clock.now()
        table = records.as_records(rows, meta, now=now)
        if not table.num_rows:
            return {}
        table = self._privacy.seal(table, meta, sealed=sealed)
        requests = {}
        for number, part in self._spread(table, meta, partition, sequence).items():
            request = request_for(part, meta, now)
            if producer is not None and sequence is not None:
                request.producer, request.sequence = identity(producer), sequence
            requests[number] = request
        given = each(lambda n: self._writer(n).append(requests[n]), requests, at_once=self._log.fsync)
        return dict(zip(requests, given, strict=True))

    def _spread(self, table: pa.Table, meta: Meta, partition: int | None, sequence: int | None) -> dict[int, pa.Table]:
        if partition is not None:
            return {partition: table}
        if meta.partitions == 1:
            return {0: table}
        if meta.key:
            return records.by_partition(table, meta.key, meta.partitions)
        if sequence is not None:  # a retry must meet the partition of the first attempt
            return {sequence % meta.partitions: table}
        return {self._next_turn(meta.partitions): table}

    def _next_turn(self, partitions: int) -> int:
        with self._lock:
            fresh = self._turn < 0
            self._turn += 1
        if fresh:
            ends = self.end_offsets()
            self._turn = min(ends, key=lambda number: (ends[number], number))
        return self._turn % partitions

    # ---- reading ---------------------------------------------------------------------------------------

    def read(self, partition: int, offset: int, max_rows: int, *, sealed: bool = False) -> pa.Table:
        """Return up to `max_rows` records from `offset` on: the columns, then `_offset`, `_time` and `_deleted`.

        At the end the table is empty; at an offset that compaction took, reading goes on with the next one.

        Raises:
            OffsetOutOfRange: the offset is before the first or behind the end.
            CorruptBatch: the records there are damaged.

        """
        end = self._partition(partition).check(offset, offset).end
        columns = [*self.schema.names, *_READ]
        found: list[pa.RecordBatch] = []
        left = max_rows
        for batch in self.batches(partition, offset, end, columns=columns, sealed=True) if left > 0 else ():
            found.append(batch if batch.num_rows <= left else batch.slice(0, left))
            left -= batch.num_rows
            if left <= 0:
                break
        meta = self._meta()
        rows = list(found if sealed else self._privacy.unseal(iter(found), meta, columns))
        return pa.Table.from_batches(rows, schema=rows[0].schema if rows else result_schema(meta, columns))

    def batches(
        self, partition: int, start: int, end: int, *, columns: Sequence[str] | None = None, sealed: bool = False
    ) -> Iterator[pa.RecordBatch]:
        """Yield the records with offsets in [start, end), in order, without copying them.

        `columns` names what is wanted, in order, system columns `_offset _time _deleted _headers _appended` included;
        by default all columns of the schema. Batches have at most some 65 000 rows. They rest on mapped files and stay
        valid when the topic is closed or deleted. A private column is null where its subject was forgotten before the
        batch was asked for; `sealed` gives the tokens that are stored in its place.

        Raises:
            OffsetOutOfRange: the range is not, or no longer, all there. Raised by the call, not by the first batch.
            UnknownColumn: a column is not the topic's.
            CorruptBatch: records in the range are damaged: none of their batch is given.

        """
        state = self._partition(partition).check(start, end)  # before the schema: no frame is newer than that
        meta = self._meta()
        schema = result_schema(meta, meta.schema.names if columns is None else columns)
        found = self._batches(self._partition(partition).between(start, end, state), end, schema)
        return found if sealed else self._privacy.unseal(found, self._meta(), schema.names)

    def _batches(
        self, frames: Iterator[tuple[Segment, int, int]], end: int, schema: pa.Schema
    ) -> Iterator[pa.RecordBatch]:
        projection = Projection(schema, self._meta())
        for segment, number, start in frames:
            frame = segment.frame(number)
            stored = self._stored_schema(frame)
            batch = payloads.decode(segment.payload(number, frame), stored)
            made = projection.of(batch, frame, stored)
            first, count = payloads.cut(batch, frame, start, end)
            if count:
                yield made if count == frame.rows else made.slice(first, count)

    def _decoded(self, segment: Segment, number: int) -> pa.RecordBatch:
        frame = segment.frame(number)
        return payloads.decode(segment.payload(number, frame), self._stored_schema(frame))

    def _stored_schema(self, frame: Frame) -> pa.Schema:
        stored = self._stored.get((frame.schema, frame.flags))
        if stored is None:
            stored = payloads.stored_schema(self._meta().schema_of(frame.schema), frame.flags)
            self._stored[frame.schema, frame.flags] = stored
        return stored

    # ---- offsets and times -----------------------------------------------------------------------------

    def start_offsets(self) -> dict[int, int]:
        """Return the first offset of each partition."""
        return {number: self._partition(number).state().start for number in range(self.partitions)}

    def end_offsets(self) -> dict[int, int]:
        """Return the offset behind the last acknowledged record of each partition; costs microseconds."""
        return {number: self._partition(number).state().end for number in range(self.partitions)}

    def first_of(self, producers: Collection[str], partition: int, start: int, end: int) -> int | None:
        """Return the first offset in [start, end) that one of those producers appended with a number, or None."""
        return first_of(self._partition(partition), (start, end), producers)

    def offsets_at(self, time: object) -> dict[int, int]:
        """Return for each partition the first offset whose event time is `time` or later, else its end.

        `time` is ISO text, a datetime or *milliseconds* since 1970. Records behind that offset may well be earlier:
        event times need not ascend.
        """
        micros = instant(time)
        decode, event_time = self._decoded, self.event_time
        return {
            number: times.first_at(self._partition(number), micros, decode, event_time)
            for number in range(self.partitions)
        }

    def max_time(self, partition: int, start: int, end: int) -> int | None:
        """Return the greatest event time of the records in [start, end), in microseconds; None where none has one.

        It is exact, and comes from the index: only batches that the bounds cut are looked into.
        """
        found = self._partition(partition)
        return times.extremes(found, (start, end), self._decoded, self.event_time)[1]

    def min_time(self, partition: int, start: int, end: int) -> int | None:
        """Return the least event time of the records in [start, end), in microseconds; None where none has one."""
        found = self._partition(partition)
        return times.extremes(found, (start, end), self._decoded, self.event_time)[0]

    def ranges(self, partition: int, start: int, end: int, *, since: int, until: int) -> list[range]:
        """Return what of the offsets [start, end) may hold event times in [since, until], in microseconds.

        It comes from the index alone, by batches: outside of the ranges there is no such record, inside there may be
        others too.
        """
        return times.overlapping(self._partition(partition), (start, end), since, until)

    def seal(self, rows: pa.Table) -> pa.Table:
        """Return rows with tokens in their private columns, as `append(…, sealed=True)` takes them from elsewhere."""
        return self._privacy.seal(rows, self._meta())

    def forget(self, subject: object, *, column: str | None = None) -> int:
        """Destroy the keys of a subject's private values, for good; return how many there were, 0 the second time.

        Wherever those values were copied to as tokens (segments, archives, an app's state and views), reading gives
        null from now on. Other columns and other topics are not touched, nor is what somebody has read already; a
        later record of the subject gets a new key. `column` says which column the subject stands in; by default any.

        Raises:
            UnknownSubject: the topic never had a private value of it.
            ChangeFailed: the disk refused; try again.

        """
        return self._privacy.forget(self._meta(), subject, column)

    # ---- cleaning --------------------------------------------------------------------------------------

    def clean(self) -> Cleaned:
        """Apply the topic's rules: retention, compaction where it is worth its cost, the archive. Says what was done.

        Only closed segments are touched. Retention closes a segment by itself once all its records are due, so that
        quiet topics expire too. Appends and reads go on meanwhile, in all processes; after a crash at any moment the
        topic is as it was before or as it is after. An append that closes a segment applies retention; the rest
        happens here only, so call this now and then.

        Raises:
            CorruptBatch: a segment that should be compacted is damaged.
            ArchiveMissing: the archive's folder is not there.
            CleaningFailed: the disk refused.

        """
        return self._cleaned(Cleaner.clean)

    def compact(self) -> Cleaned:
        """Close the segments that are written to and keep the last record of each key, now.

        Offsets and order stay as they are. Memory is bounded whatever the number of keys.

        Raises:
            InvalidTopic: the topic is not one that is compacted.
            CorruptBatch: a segment is damaged.

        """
        if self.cleanup != "compact":
            raise InvalidTopic(
                f'the topic "{self.name}" is not compacted: its cleanup is "{self.cleanup}"',
                hint='Create it with cleanup="compact" and a key.',
            )
        return self._cleaned(Cleaner.compact)

    def verify(self) -> list[Finding]:
        """Read all files of the topic anew and return what is wrong with them; nothing when the topic is whole.

        Checks every checksum and every rule: offsets ascend and none is missing, headers agree with their batches, the
        index with its segment, the head and the list of closed segments with the files, compaction left no key twice,
        keys of private columns are whole.
        Changes nothing; appends, reads and cleanings may go on meanwhile.

        Raises:
            CorruptBatch: the topic's description is damaged.

        """
        meta, folder = self._meta(), self._file.folder
        each = [found for number in range(meta.partitions) for found in verify(folder / str(number), number, meta)]
        return [*verify_keys(folder, meta), *each]

    def _cleaned(self, do: Callable[[Cleaner], Cleaned]) -> Cleaned:
        return sum((do(self._cleaner(number)) for number in range(self.partitions)), Cleaned())

    def _cleaner(self, number: int) -> Cleaner:
        return Cleaner(
            partition=self._partition(number),
            writer=self._writer(number),
            meta=self._meta(),
            fsync=self._log.fsync,
            segment_bytes=self._log.segment_bytes,
            now=self._log.clock.now(),
        )

    def _retain(self, number: int) -> None:
        """Apply retention after an append has closed a segment; what fails does not concern who appended."""
        meta = self._meta()
        if meta.retention is None and meta.retention_bytes is None:
            return
        try:
            self._cleaner(number).retain()
        except HeadraceError as error:
            _LOGGER.warning("%s: retention failed: %s", self._file.folder / str(number), error)

    # ---- inside ----------------------------------------------------------------------------------------

    def _open_file(self) -> MetaFile:
        self._meta()
        return self._file

    def _meta(self) -> Meta:
        if self._log.closed:
            raise LogClosed(f'the log "{self._log.path}" is closed', hint="Open it again.")
        return self._file.current()

    def _partition(self, number: int) -> Partition:
        meta = self._meta()
        found = self._partitions.get(number)
        if found is not None:
            return found
        check_partition(meta, number)
        with self._lock:
            folder = self._file.folder / str(number)
            return self._partitions.setdefault(number, Partition(folder, Place(self.name, number)))

    def _writer(self, number: int) -> Writer:
        known = self._writers.get(number)
        if known is not None:
            return known
        partition = self._partition(number)
        with self._lock:
            if number not in self._writers:
                self._writers[number] = Writer(
                    partition,
                    fsync=self._log.fsync,
                    segment_bytes=self._log.segment_bytes,
                    segment_age=lambda: self._file.known().segment_age,
                    rolled=partial(self._retain, number),
                )
            return self._writers[number]

    def _close(self) -> None:
        with self._lock:
            for writer in self._writers.values():
                writer.close()
            for partition in self._partitions.values():
                partition.close()
            self._writers, self._partitions = {}, {}


def _reopened(log: Log, name: str) -> Topic:
    return log.topic(name)

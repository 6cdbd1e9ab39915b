"""A topic: the public front for reading, appending, changing and cleaning."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.base.arguments import a_mapping
from headrace.base.errors import InvalidTopic
from headrace.base.time import instant
from headrace.log import changes, reading, records
from headrace.log.appending import bulk
from headrace.log.appending.producers import first_of, last_sequence
from headrace.log.appending.writer import wait_for
from headrace.log.cleaning.rules import Cleaned, Cleaner
from headrace.log.cleaning.verify import Finding, verify, verify_description, verify_keys, verify_missing_keys
from headrace.log.disk_errors import disk, each
from headrace.log.open_topic import OpenTopic
from headrace.log.privacy.subjects import key_owners
from headrace.log.segments import times
from headrace.log.settings import SETTINGS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa

    from headrace.log.folder import LogFolder
    from headrace.log.privacy.subjects import Origin
    from headrace.log.rows import Rows


class Topic:
    """A named, partitioned, append-only log of records with a schema. Get one from `Log.topic` or `Log.create_topic`.

    Many threads may use it. A pickled topic opens the same path elsewhere. Reading changes nothing on disk and never
    waits for writers.
    """

    def __init__(self, opened: OpenTopic) -> None:
        self.opened = opened
        """Its open files, for the rest of this package."""

    def __repr__(self) -> str:
        return f'Topic("{self.name}", path="{self.opened.folder}")'

    def __reduce__(self) -> tuple[object, ...]:
        return _reopened, (self.opened.log, self.name)

    @property
    def place(self) -> str:
        """What errors of the disk name: the topic and its folder."""
        return f'topic "{self.name}" in {self.opened.folder}'

    # ---- description ------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """The topic's name."""
        return self.opened.first.name

    @property
    def id(self) -> str:
        """Its identity, made at its creation: a topic that is deleted and created again has another one."""
        return self.opened.first.id

    @property
    def schema(self) -> pa.Schema:
        """The columns of its records."""
        return self.opened.meta().schema

    @property
    def partitions(self) -> int:
        """How many partitions it has now; another process may add some at any time."""
        return self.opened.meta().partitions

    @property
    def key(self) -> tuple[str, ...]:
        """The key columns; empty when records have no key."""
        return self.opened.first.key

    @property
    def event_time(self) -> str | None:
        """The column that holds the event time; None if none does."""
        return self.opened.first.event_time

    @property
    def private(self) -> dict[str, str]:
        """The private columns, each with the column of its subject: whose the values are."""
        return dict(self.opened.first.private)

    @property
    def sealed(self) -> frozenset[str]:
        """The columns with values that are private to other topics; an app that passed them on marked these."""
        return frozenset(self.opened.meta().sealed)

    @property
    def key_owners(self) -> list[Origin]:
        """The topics whose keys open the private and sealed columns; an empty log means the topic's own."""
        return key_owners(self.opened.meta())

    @property
    def cleanup(self) -> str:
        """What happens to old records: "delete" or "compact"."""
        return self.opened.meta().cleanup

    @property
    def retention(self) -> int | None:
        """How long records are kept, in microseconds; None means for ever."""
        return self.opened.meta().retention

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that `alter` changes, by name; durations in microseconds, None for no bound."""
        meta = self.opened.meta()
        return {name: getattr(meta, name) for name in SETTINGS}

    @disk
    def sizes(self) -> dict[int, int]:
        """Return the bytes on disk of each partition's records, archived ones included."""
        return {number: self.opened.partition(number).size() for number in range(self.partitions)}

    # ---- changing the description ---------------------------------------------------------------------------

    @disk
    def evolve(self, schema: str | pa.Schema, defaults: Mapping[str, object] | None = None) -> list[str]:
        """Give the topic a new schema, and return a text for each change; none if the schema is the same.

        `schema` is the complete new one. It may add columns; widen types so that every old value stays exactly the
        same (integers to wider ones, to a double if they have at most 32 bits and to a decimal with room for
        them; float to double; decimals to more digits on both sides of the point; date to timestamp_ntz; the same
        inside arrays, maps and structs; of key columns integers only); allow nulls. `defaults` gives added columns
        the value that older records have and that rows without the column get (a row that says None gets null).
        An added column that is not null needs one. Every other change is refused.

        Old records are read under the new schema; their files do not change. All users of the topic see it with their
        next call; an iterator that is already reading keeps its columns.

        Raises:
            SchemaRefused: old records could not be read under it. The error lists each difference and its reason.
            InvalidTopic: a default is not a value of its column.
            ChangeFailed: the disk refused; nothing was changed.

        """
        return changes.evolve(self.opened, schema, a_mapping({} if defaults is None else defaults, "defaults"))

    @disk
    def add_partitions(self, total: int) -> None:
        """Give the topic more partitions, `total` in all; running readers find them.

        Trap: in a topic with a key most keys go to another partition from now on. Old records stay where they are,
        so the order of one key's records across the change is lost, and an append or a numbered row that is retried
        across the change may be appended twice.

        Raises:
            InvalidTopic: `total` is less than the topic has, or too large.
            ChangeFailed: the disk refused; nothing was changed.

        """
        changes.add_partitions(self.opened, total)

    @disk
    def alter(self, **settings: Any) -> None:
        """Change settings of `Log.create_topic`, such as `retention` and `cleanup`; the others stay.

        Raises:
            InvalidTopic: there is no such setting, or its value is not possible for this topic.
            ChangeFailed: the disk refused; nothing was changed.

        """
        changes.alter(self.opened, settings)

    @property
    def schemas(self) -> list[pa.Schema]:
        """All schemas that it has had, in order; the last one is the current one."""
        meta = self.opened.meta()
        return [meta.schema_of(number + 1) for number in range(len(meta.schemas))]

    @disk
    def mark_sealed(self, columns: Iterable[str], owners: Iterable[Origin]) -> None:
        """Mark columns as holding values that these topics have sealed: reading them asks these topics for keys.

        Raises:
            ChangeFailed: the disk refused; nothing was changed.

        """
        changes.mark_sealed(self.opened, columns, owners)

    # ---- appending -------------------------------------------------------------------------------------

    @disk
    def append(
        self,
        rows: Rows,
        *,
        partition: int | None = None,
        producer: str | None = None,
        sequence: int | None = None,
        sealed: bool = False,
    ) -> dict[int, range]:
        """Append rows and return their offsets in each partition, once they are safe on disk.

        Rows are dicts, a `pyarrow.Table` or a `RecordBatch` (see `rows_to_table`), and may carry the system columns
        `_time` (the event time, if no column of the topic holds it), `_deleted` (a tombstone: only its key and its
        event time are stored) and `_headers`. Without `partition` the hash of the key decides; without a key each
        append goes to one partition, in turn. Without rows nothing happens, and the result is empty.

        If one row is bad, nothing is written. In each partition the rows become visible all at once, but an append
        that spreads over several partitions is not atomic over them: after a crash some may have it, some not.

        With `producer` and `sequence` (which must grow) a retry of the same rows appends nothing: a partition in which
        the last append of the producer has this sequence returns the offsets of that append, and an empty range at
        its end for an older sequence. This also holds after restarts. With `sealed` the private columns hold tokens,
        as `batches(…, sealed=True)` returns them.

        Raises:
            InvalidRows: a row does not fit.
            AppendFailed: the disk refused; the rows are not in that partition.

        """
        return bulk.append(self.opened, rows, partition=partition, producer=producer, sequence=sequence, sealed=sealed)

    @disk
    def check(self, rows: Rows) -> None:
        """Check that `append` would take rows; nothing is written.

        Raises:
            InvalidRows: a row does not fit.

        """
        records.as_records(rows, self.opened.meta(), now=self.opened.log.clock.now())

    # ---- reading ---------------------------------------------------------------------------------------

    @disk
    def read(self, partition: int, offset: int, max_rows: int, *, sealed: bool = False) -> pa.Table:
        """Return up to `max_rows` records from `offset` on: the columns, then `_offset`, `_time` and `_deleted`.

        At the end the table is empty. If compaction removed the record at `offset`, the table begins with the next one.

        Raises:
            OffsetOutOfRange: the offset is before the first one or after the end.
            CorruptBatch: the records there are damaged.

        """
        return reading.read(self.opened, partition, offset, max_rows, sealed=sealed)

    @disk
    def batches(
        self, partition: int, start: int, end: int, *, columns: Sequence[str] | None = None, sealed: bool = False
    ) -> Iterator[pa.RecordBatch]:
        """Yield the records with offsets in [start, end), in order, without copying them.

        `columns` are the wanted columns, in order, by default all of the schema. They may include the system columns
        `_offset`, `_time`, `_deleted`, `_headers` and `_appended`. Batches have at most 65 536 rows. They are views of
        mapped files and stay valid when the topic is closed or deleted. A private column is null where its subject was
        forgotten before the batch was yielded; `sealed` gives the stored tokens instead of the values.

        Raises:
            OffsetOutOfRange: a part of the range does not exist, yet or any more. Raised by the call itself.
            UnknownColumn: the topic has no such column.
            CorruptBatch: a batch in the range is damaged; nothing of it is yielded.

        """
        return each(self.place, reading.batches(self.opened, partition, start, end, columns=columns, sealed=sealed))

    # ---- offsets and times -----------------------------------------------------------------------------

    @disk
    def start_offsets(self) -> dict[int, int]:
        """Return the first offset of each partition."""
        return self.opened.start_offsets()

    @disk
    def end_offsets(self) -> dict[int, int]:
        """Return the offset after the last acknowledged record of each partition; takes microseconds."""
        return self.opened.end_offsets()

    @disk
    def last_sequence(self, producer: str) -> int | None:
        """Return the greatest sequence that a producer has appended with, in any partition; None if it never has."""
        return last_sequence((self.opened.partition(number) for number in range(self.partitions)), producer)

    @disk
    def first_of(self, producers: Collection[str], partition: int, start: int, end: int) -> int | None:
        """Return the first offset in [start, end) that one of these producers appended with a sequence, or None."""
        return first_of(self.opened.partition(partition), (start, end), producers)

    @disk
    def offsets_at(self, time: object) -> dict[int, int]:
        """Return for each partition the first offset whose event time is `time` or later, or the end if there is none.

        `time` is ISO text, a datetime or *milliseconds* since 1970. Records after that offset may be earlier: event
        times need not ascend.
        """
        micros = instant(time)
        decode, event_time = self.opened.decoded, self.event_time
        return {
            number: times.first_at(self.opened.partition(number), micros, decode, event_time)
            for number in range(self.partitions)
        }

    @disk
    def max_time(self, partition: int, start: int, end: int) -> int | None:
        """Return the greatest event time of the records in [start, end), in microseconds; None if none has one.

        It is exact, and comes from the index: only batches that the bounds cut are decoded.
        """
        found = self.opened.partition(partition)
        return times.extremes(found, (start, end), self.opened.decoded, self.event_time)[1]

    @disk
    def min_time(self, partition: int, start: int, end: int) -> int | None:
        """Return the least event time of the records in [start, end), in microseconds; None if none has one."""
        found = self.opened.partition(partition)
        return times.extremes(found, (start, end), self.opened.decoded, self.event_time)[0]

    def append_time(self, partition: int, start: int, end: int) -> int | None:
        """Return when the first record of [start, end) was appended, in microseconds; None if there is none.

        In a partition it never descends, and no two appends of one process share it. Compaction puts small appends
        together: what is left of them then has the time of the last one.
        """
        return times.appended(self.opened.partition(partition), (start, end))

    def mark(self, partition: int, offset: int) -> str | None:
        """Return what tells the record before an offset from any other at its place, as a short text.

        It is of the batch that was appended with the record: where it begins, when it was appended, and its checksum.
        None where that batch is no longer as it was appended (compaction, retention, damage), or not within reach.
        """
        return times.mark(self.opened.partition(partition), offset)

    def settled_offsets(self) -> dict[int, int]:
        """Return the end offsets when every append that has begun by now is finished.

        So whatever is appended after the call was appended later than anything that another topic had before it.
        """
        for number in range(self.partitions):
            wait_for(self.opened.partition(number))
        return self.end_offsets()

    @disk
    def ranges(self, partition: int, start: int, end: int, *, since: int, until: int) -> list[range]:
        """Return the ranges of [start, end) that may hold event times in [since, until], in microseconds.

        They come from the index alone, by whole batches: outside the ranges there is no such record, inside there may
        be others, too.
        """
        return times.overlapping(self.opened.partition(partition), (start, end), since, until)

    @disk
    def seal(self, rows: pa.Table) -> pa.Table:
        """Return rows with tokens in their private columns, as `append(…, sealed=True)` takes them."""
        return self.opened.privacy.seal(rows, self.opened.meta())

    @disk
    def forget(self, subject: object, *, column: str | None = None) -> int:
        """Destroy the keys of a subject's private values for ever; return how many there were, 0 the second time.

        Wherever these values were copied to as tokens (segments, archives, an app's state and views), they read as
        null from now on. Other columns and other topics do not change, nor does what was read already. A later record
        of the subject gets a new key. `column` is the subject column to look in; default: all of them.

        Raises:
            UnknownSubject: the topic never had a private value of the subject.
            ChangeFailed: the disk refused; try again.

        """
        return self.opened.privacy.forget(self.opened.meta(), subject, column)

    # ---- cleaning --------------------------------------------------------------------------------------

    @disk
    def clean(self) -> Cleaned:
        """Apply retention, compaction (if it is worth its cost) and archiving; return what was done.

        It works on closed segments only. Retention closes a segment once all its records are due, so that topics
        without appends expire, too. Appends and reads go on meanwhile, in all processes. After a crash the topic is as
        it was before the cleaning or as it is after it. An append that closes a segment also applies retention;
        everything else happens here only, so call this regularly.

        Raises:
            CorruptBatch: a segment to be compacted is damaged.
            ArchiveMissing: the folder of the archive is missing.
            CleaningFailed: the disk refused.

        """
        return self._cleaned(Cleaner.clean)

    @disk
    def compact(self) -> Cleaned:
        """Close the current segments, then keep only the last record of each key.

        Offsets and order do not change. Memory is bounded for any number of keys.

        Raises:
            InvalidTopic: the topic's cleanup is not "compact".
            CorruptBatch: a segment is damaged.

        """
        if self.cleanup != "compact":
            raise InvalidTopic(
                f'the topic "{self.name}" is not compacted: its cleanup is "{self.cleanup}"',
                hint=f'Say topic.alter(cleanup="compact"), or headrace topics alter {self.name} --cleanup compact.',
            )
        return self._cleaned(Cleaner.compact)

    @disk
    def verify(self) -> list[Finding]:
        """Read all files of the topic again and return what is wrong with them; an empty list if nothing is.

        It checks every checksum and every rule: offsets ascend and none is missing, headers agree with their batches,
        the index with its segment, the head and the list of closed segments with the files, compaction left each key
        once, keys of private columns are there and intact. It changes nothing; appends, reads and cleanings may go on
        meanwhile.

        Raises:
            CorruptBatch: the topic's description is damaged.

        """
        meta, folder = self.opened.meta(), self.opened.folder
        findings, keys = verify_description(folder), verify_keys(folder, meta)
        needed: set[bytes] = set()
        for number in range(meta.partitions):
            findings += verify(folder / str(number), number, meta, needed)
        return findings + (keys or verify_missing_keys(folder, meta, needed))

    @disk
    def repair(self) -> dict[int, range]:
        """Give up acknowledged records that the last segment of a partition lost; return their offsets, by partition.

        Trap: they are lost for ever; every reader goes on after them, as if compaction had removed them. Restore the
        file from a copy instead if there is one. Without such a loss nothing happens.

        Raises:
            ChangeFailed: the disk refused.

        """
        return changes.give_up_lost(self.opened)

    def _cleaned(self, do: Callable[[Cleaner], Cleaned]) -> Cleaned:
        return sum((do(self.opened.cleaner(number)) for number in range(self.partitions)), Cleaned())


def _reopened(log: LogFolder, name: str) -> Topic:
    log.check_topic(name)
    return Topic(OpenTopic(log, name))

"""A topic: what a user of the log reads and appends to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.base.errors import InvalidTopic
from headrace.base.time import instant
from headrace.log import changes, reading
from headrace.log.appending import bulk
from headrace.log.appending.producers import first_of
from headrace.log.cleaning.rules import Cleaned, Cleaner
from headrace.log.cleaning.verify import Finding, verify, verify_keys
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
    """A named, partitioned, append-only log of records with a schema; made by `Log.topic` and `Log.create_topic`.

    May be used by many threads, and pickled: elsewhere it opens the same path. Reading changes nothing on disk and
    never waits for writers.
    """

    def __init__(self, opened: OpenTopic) -> None:
        self.opened = opened
        """Its open files, for the rest of this package."""

    def __repr__(self) -> str:
        return f'Topic("{self.name}", path="{self.opened.folder}")'

    def __reduce__(self) -> tuple[object, ...]:
        return _reopened, (self.opened.log, self.name)

    # ---- what it is ------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """The topic's name."""
        return self.opened.first.name

    @property
    def schema(self) -> pa.Schema:
        """The columns of its records."""
        return self.opened.meta().schema

    @property
    def partitions(self) -> int:
        """How many partitions it has; another process may have added some since the last look."""
        return self.opened.meta().partitions

    @property
    def key(self) -> tuple[str, ...]:
        """The key columns; empty when records have no key."""
        return self.opened.first.key

    @property
    def event_time(self) -> str | None:
        """The column that holds the event time, if one does."""
        return self.opened.first.event_time

    @property
    def private(self) -> dict[str, str]:
        """The private columns, each with the column that says whose its values are."""
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
        """What becomes of old records: "delete" or "compact"."""
        return self.opened.meta().cleanup

    @property
    def retention(self) -> int | None:
        """How long records are kept, in microseconds; None for ever."""
        return self.opened.meta().retention

    @property
    def settings(self) -> dict[str, Any]:
        """What `alter` changes, by name; durations in microseconds, None where there is no bound."""
        meta = self.opened.meta()
        return {name: getattr(meta, name) for name in SETTINGS}

    def sizes(self) -> dict[int, int]:
        """Return the bytes that each partition's records take on disk, archived ones included."""
        return {number: self.opened.partition(number).size() for number in range(self.partitions)}

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
        return changes.evolve(self.opened, schema, defaults or {})

    def add_partitions(self, total: int) -> None:
        """Give the topic more partitions, `total` in all; running readers find them.

        Trap: in a topic with a key most keys go to another partition from now on. Old records stay where they are,
        so the order of one key's records across the change is lost, and an append or a numbered row that is retried
        across the change may be appended twice.

        Raises:
            InvalidTopic: fewer are asked for than there are, or too many.
            ChangeFailed: the disk refused; all is as before.

        """
        changes.add_partitions(self.opened, total)

    def alter(self, **settings: Any) -> None:
        """Change settings that `Log.create_topic` took, such as `retention` and `cleanup`; others stay.

        Raises:
            InvalidTopic: there is no such setting, or it makes no sense for this topic.
            ChangeFailed: the disk refused; all is as before.

        """
        changes.alter(self.opened, settings)

    @property
    def schemas(self) -> list[pa.Schema]:
        """All schemas that it has had, in order; the last one is in force."""
        meta = self.opened.meta()
        return [meta.schema_of(number + 1) for number in range(len(meta.schemas))]

    def mark_sealed(self, columns: Iterable[str], owners: Iterable[Origin]) -> None:
        """Mark columns as holding values that these topics have sealed: reading them asks these topics for keys.

        Raises:
            ChangeFailed: the disk refused; all is as before.

        """
        changes.mark_sealed(self.opened, columns, owners)

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
        return bulk.append(self.opened, rows, partition=partition, producer=producer, sequence=sequence, sealed=sealed)

    # ---- reading ---------------------------------------------------------------------------------------

    def read(self, partition: int, offset: int, max_rows: int, *, sealed: bool = False) -> pa.Table:
        """Return up to `max_rows` records from `offset` on: the columns, then `_offset`, `_time` and `_deleted`.

        At the end the table is empty; at an offset that compaction took, reading goes on with the next one.

        Raises:
            OffsetOutOfRange: the offset is before the first or behind the end.
            CorruptBatch: the records there are damaged.

        """
        return reading.read(self.opened, partition, offset, max_rows, sealed=sealed)

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
        return reading.batches(self.opened, partition, start, end, columns=columns, sealed=sealed)

    # ---- offsets and times -----------------------------------------------------------------------------

    def start_offsets(self) -> dict[int, int]:
        """Return the first offset of each partition."""
        return {number: self.opened.partition(number).state().start for number in range(self.partitions)}

    def end_offsets(self) -> dict[int, int]:
        """Return the offset behind the last acknowledged record of each partition; costs microseconds."""
        return self.opened.end_offsets()

    def first_of(self, producers: Collection[str], partition: int, start: int, end: int) -> int | None:
        """Return the first offset in [start, end) that one of those producers appended with a number, or None."""
        return first_of(self.opened.partition(partition), (start, end), producers)

    def offsets_at(self, time: object) -> dict[int, int]:
        """Return for each partition the first offset whose event time is `time` or later, else its end.

        `time` is ISO text, a datetime or *milliseconds* since 1970. Records behind that offset may well be earlier:
        event times need not ascend.
        """
        micros = instant(time)
        decode, event_time = self.opened.decoded, self.event_time
        return {
            number: times.first_at(self.opened.partition(number), micros, decode, event_time)
            for number in range(self.partitions)
        }

    def max_time(self, partition: int, start: int, end: int) -> int | None:
        """Return the greatest event time of the records in [start, end), in microseconds; None where none has one.

        It is exact, and comes from the index: only batches that the bounds cut are looked into.
        """
        found = self.opened.partition(partition)
        return times.extremes(found, (start, end), self.opened.decoded, self.event_time)[1]

    def min_time(self, partition: int, start: int, end: int) -> int | None:
        """Return the least event time of the records in [start, end), in microseconds; None where none has one."""
        found = self.opened.partition(partition)
        return times.extremes(found, (start, end), self.opened.decoded, self.event_time)[0]

    def ranges(self, partition: int, start: int, end: int, *, since: int, until: int) -> list[range]:
        """Return what of the offsets [start, end) may hold event times in [since, until], in microseconds.

        It comes from the index alone, by batches: outside of the ranges there is no such record, inside there may be
        others too.
        """
        return times.overlapping(self.opened.partition(partition), (start, end), since, until)

    def seal(self, rows: pa.Table) -> pa.Table:
        """Return rows with tokens in their private columns, as `append(…, sealed=True)` takes them from elsewhere."""
        return self.opened.privacy.seal(rows, self.opened.meta())

    def forget(self, subject: object, *, column: str | None = None) -> int:
        """Destroy the keys of a subject's private values, for good; return how many there were, 0 the second time.

        Wherever those values were copied to as tokens (segments, archives, an app's state and views), reading gives
        null from now on. Other columns and other topics are not touched, nor is what somebody has read already; a
        later record of the subject gets a new key. `column` says which column the subject stands in; by default any.

        Raises:
            UnknownSubject: the topic never had a private value of it.
            ChangeFailed: the disk refused; try again.

        """
        return self.opened.privacy.forget(self.opened.meta(), subject, column)

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
        meta, folder = self.opened.meta(), self.opened.folder
        findings = verify_keys(folder, meta)
        for number in range(meta.partitions):
            findings += verify(folder / str(number), number, meta)
        return findings

    def _cleaned(self, do: Callable[[Cleaner], Cleaned]) -> Cleaned:
        return sum((do(self.opened.cleaner(number)) for number in range(self.partitions)), Cleaned())


def _reopened(log: LogFolder, name: str) -> Topic:
    log.check_topic(name)
    return Topic(OpenTopic(log, name))

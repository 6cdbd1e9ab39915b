"""A log: a folder of topics."""

from __future__ import annotations

import os
import shutil
import uuid
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Self

from headrace.base.arguments import a_path, name_list, one_of
from headrace.base.buffer import SPILL_BYTES
from headrace.base.disk import make_folder, sync_folder
from headrace.base.errors import (
    ChangeFailed,
    CorruptBatch,
    HeadraceError,
    InvalidArgument,
    TopicDeleted,
    TopicExists,
    UnknownTopic,
)
from headrace.base.names import check_topic
from headrace.base.schema import as_schema, to_ddl
from headrace.base.time import Clock, SystemClock
from headrace.log import evolution
from headrace.log import meta as metas
from headrace.log.appending import writer
from headrace.log.appending.sending import Producer, buffer_of
from headrace.log.cleaning import archive as archives
from headrace.log.cleaning.verify import Finding
from headrace.log.disk_errors import disk, each
from headrace.log.folder import LogFolder
from headrace.log.groups.assigning import ASSIGNORS
from headrace.log.groups.consumer import Consumer, ConsumerOptions, checked_reset
from headrace.log.groups.membership import Membership
from headrace.log.groups.naming import check_group, checked_seconds, group_folder, queue_folder
from headrace.log.meta import Meta
from headrace.log.open_topic import OpenTopic
from headrace.log.privacy import keyfile
from headrace.log.privacy.subjects import as_private
from headrace.log.queues.options import checked_options
from headrace.log.queues.queue import Queue
from headrace.log.segments import layout as layouts
from headrace.log.segments.head import BOOT, FILE_SIZE, PartitionState, new_head
from headrace.log.segments.partition import HEAD_NAME, Partition
from headrace.log.segments.segment import TopicPartition
from headrace.log.settings import SETTINGS
from headrace.log.topic import Topic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from datetime import timedelta
    from types import TracebackType

    import pyarrow as pa

    from headrace.base.buffer import OnFull


class Log:
    """The embedded log: durable topics under one folder, shared by any number of threads and processes.

    Opening changes nothing on disk: the folder is created with the first topic. One process at a time appends to a
    partition, others wait for their turn; readers never wait. With `fsync=False` a power loss may lose acknowledged
    records: for tests. A pickled log opens the same path with the machine's clock.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        clock: Clock | None = None,
        fsync: bool = True,
        segment_bytes: int = writer.SEGMENT_BYTES,
    ) -> None:
        self._folder = LogFolder(
            path=a_path(path, "path"), clock=clock or SystemClock(), fsync=fsync, segment_bytes=segment_bytes
        )
        self._topics: dict[str, Topic] = {}

    def __repr__(self) -> str:
        return f'Log("{self.path}")'

    def __reduce__(self) -> tuple[object, ...]:
        return _reopened, (self._folder,)

    @property
    def path(self) -> Path:
        """The log's folder."""
        return self._folder.path

    @property
    def place(self) -> str:
        """What errors of the disk name: the log and its folder."""
        return f"log {self.path}"

    @property
    def clock(self) -> Clock:
        """The clock that dates what is appended."""
        return self._folder.clock

    @property
    def fsync(self) -> bool:
        """Whether appends survive a power loss."""
        return self._folder.fsync

    @property
    def segment_bytes(self) -> int:
        """The size from which on a segment is closed, in bytes."""
        return self._folder.segment_bytes

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._folder.closed

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close all files. Batches that were read stay valid; every other call raises `LogClosed`."""
        self._folder.closed = True
        for topic in list(self._topics.values()):  # another thread may just be opening one
            topic.opened.close()
        self._topics = {}

    @disk
    def create_topic(  # noqa: PLR0913 - what describes a topic, all but two of them keywords
        self,
        name: str,
        schema: str | pa.Schema,
        *,
        partitions: int = 1,
        key: str | Sequence[str] | None = None,
        event_time: str | None = None,
        retention: str | timedelta | None = None,
        cleanup: str = "delete",
        retention_bytes: int | None = None,
        delete_retention: str | timedelta = "24 hours",
        archive: str | os.PathLike[str] | None = None,
        archive_after: str | timedelta | None = None,
        private: Mapping[str, str] | Sequence[str] | None = None,
    ) -> Topic:
        """Create a topic and return it; the schema is DDL text or Arrow's.

        The hash of the `key` columns decides a record's partition. `event_time` is the timestamp column that says
        when a record happened (without it: when it was appended). `cleanup="compact"` keeps the last record of each
        key, and refuses records without one; a tombstone is removed `delete_retention` after the compaction that first
        kept it.

        Records that were appended longer than `retention` ago are deleted, and the oldest ones while a partition holds
        more than `retention_bytes`. Both delete whole closed segments, so at least that much is kept; both apply to
        compacted topics, too. Closed segments whose records are all older than `archive_after` (without it: all) move
        to the folder `archive`, which must exist. `Topic.clean` says when this happens.
        `private={"email": "user_id"}` seals the column email with one key for each user_id, which `Topic.forget`
        destroys; `private=["email"]` uses one for each key of the topic.

        Raises:
            TopicExists: the name is taken, perhaps by another process at this moment.
            InvalidTopic: the description is not possible.
            InvalidName: the name is not allowed.
            InvalidSchema: the schema cannot be parsed.
            ChangeFailed: the disk refused.

        """
        self._folder.check_open()
        check_topic(name)
        described = Meta(
            id=uuid.uuid4().hex,
            name=name,
            partitions=partitions,
            key=name_list(key or (), "key"),
            event_time=event_time,
            retention=SETTINGS["retention"](retention),
            cleanup=SETTINGS["cleanup"](cleanup),
            retention_bytes=SETTINGS["retention_bytes"](retention_bytes),
            delete_retention=SETTINGS["delete_retention"](delete_retention),
            archive=SETTINGS["archive"](archive),
            archive_after=SETTINGS["archive_after"](archive_after),
            schemas=(to_ddl(as_schema(schema)),),
            created=self.clock.now(),
            private=as_private(private, key, topic=name),
        ).check()
        if self.has_topic(name):
            raise self._exists(described)
        self._create_folder(described)
        return self.topic(name)

    @disk
    def topic(self, name: str) -> Topic:
        """Return a topic.

        Raises:
            UnknownTopic: there is none of this name.

        """
        self._folder.check_open()
        existing = self._topics.get(name) if isinstance(name, str) else None
        if existing is not None:
            try:
                existing.opened.meta()  # still there, and the same?
            except TopicDeleted:
                if self._topics.get(name) is existing:  # else another thread has opened the new one
                    self._topics.pop(name, None)
            else:
                return existing
        self._folder.check_topic(name)
        return self._topics.setdefault(name, Topic(OpenTopic(self._folder, name)))

    @disk
    def topics(self) -> list[str]:
        """Return the names of all topics, sorted; without those that begin with `__`, which are Headrace's own."""
        return self._folder.topics()

    @disk
    def has_topic(self, name: str) -> bool:
        """Tell whether there is a topic of this name."""
        return self._folder.has_topic(name)

    @disk
    def delete_topic(self, name: str) -> None:
        """Delete a topic and its records. Others can still read mapped files to the end.

        It waits for appends in progress. Every later use of the topic raises `TopicDeleted`.

        Raises:
            UnknownTopic: there is none of this name.

        """
        topic = self.topic(name)
        described = topic.opened.meta()
        gone = self._folder.topics_path / f".deleted-{uuid.uuid4().hex}"
        try:
            self._folder.topic_path(name).rename(gone)
        except FileNotFoundError:
            raise self._folder.unknown_topic(name) from None
        except OSError as error:
            raise ChangeFailed(name, str(self._folder.topic_path(name)), error) from error
        topic.opened.close()
        self._topics.pop(name, None)
        for number in range(described.partitions):
            writer.wait_for(Partition(gone / str(number), TopicPartition(name, number)))
        for number in range(described.partitions):
            with suppress(CorruptBatch):  # it says where archived segments are: they stay then
                archives.remove(described, layouts.read(gone / str(number)))
        keyfile.destroy(gone)
        shutil.rmtree(gone, ignore_errors=True)
        if self.fsync:
            sync_folder(self._folder.topics_path)

    def verify(self) -> Iterator[tuple[str, Finding]]:
        """Read all files of all topics again, Headrace's own included; yield (topic, what is wrong with it).

        Nothing is changed; appends, reads and cleanings may go on meanwhile. A topic that cannot be opened is a finding
        too. `Topic.verify` says what is checked.
        """
        self._folder.check_open()
        return each(self.place, self._verify())

    def _verify(self) -> Iterator[tuple[str, Finding]]:
        for name in self._folder.names():
            try:
                yield from ((name, finding) for finding in self.topic(name).verify())
            except UnknownTopic:
                continue  # an empty folder, or one that was deleted meanwhile
            except HeadraceError as error:
                folder = str(self._folder.topic_path(name))
                yield name, Finding(partition=None, file=folder, what=error.what)

    def producer(
        self,
        *,
        producer: str | None = None,
        linger: str | timedelta = "5 ms",
        batch_bytes: int = 1 << 20,
        max_unacknowledged: int = 1000,
        on_full: OnFull = "block",
        spill_bytes: int = SPILL_BYTES,
    ) -> Producer:
        """Return a producer, which takes single records from any number of threads and appends them in batches.

        A batch is written when its first record has waited for `linger`, when it has about `batch_bytes`, or when
        `max_unacknowledged` records wait for the disk. A producer with a name (`producer="…"`) numbers its records, so
        that a record sent again after a crash is not appended twice.

        `on_full` says what `send` does then. "block": it waits. "drop_oldest" and "drop_newest": of the records that
        wait, the oldest or the one that is sent is dropped, which its future says (`RecordDropped`) and
        `producer.dropped` counts. "spill": rows wait in a file, up to `spill_bytes`; then it waits. The file is gone
        with the process: a spilled record is acknowledged when it is in the log, as any other.

        Raises:
            InvalidRows: an option has an impossible value.
            InvalidArgument: `on_full` is not known.
            InvalidTime: `linger` is not a duration.

        """
        self._folder.check_open()
        return Producer(
            lambda name: self.topic(name).opened,
            clock=self.clock,
            producer=producer,
            linger=linger,
            batch_bytes=batch_bytes,
            buffer=buffer_of(max_unacknowledged, on_full, folder=self.path, spill_bytes=spill_bytes),
        )

    @disk
    def consumer(
        self,
        group: str,
        topics: str | Sequence[str],
        *,
        offset_reset: str = "earliest",
        assignor: str = "sticky",
        session: str | timedelta = "10 seconds",
        max_poll_interval: str | timedelta = "5 minutes",
        on_revoked: Callable[[list[tuple[str, int]]], None] | None = None,
    ) -> Consumer:
        """Return a member of a consumer group: the live members share the partitions, each is read by one of them.

        Args:
            group: its name; each group reads all records.
            topics: one or several names.
            offset_reset: where a partition begins of which the group has committed nothing: "earliest" or "latest".
            assignor: how partitions are shared: "sticky" (balanced, what need not move stays), "range" (neighbours of
                each topic) or "round-robin". Members give the same.
            session: a member without a sign of life for so long is gone. One whose process dies is gone at once.
            max_poll_interval: so is one that does not call `poll` for so long.
            on_revoked: called by `poll` with the (topic, partition)s that go to another member, before they go:
                commit there what is done.

        Raises:
            UnknownTopic: there is no such topic.
            InvalidArgument: an option is not possible.
            InvalidTime: a text is not a duration.

        """
        self._folder.check_open()
        names = name_list(topics, "topics")
        if not names:
            raise InvalidArgument("topics=[] names no topic", hint="Name one at least.")
        for name in names:
            self.topic(name)
        one_of(assignor, "assignor", tuple(ASSIGNORS))
        folder = group_folder(self.path, check_group(group))
        options = ConsumerOptions(
            checked_reset(offset_reset), checked_seconds(max_poll_interval, "max_poll_interval"), on_revoked
        )
        seconds = checked_seconds(session, "session")
        return Consumer(self, Membership(folder, group, topics=names, assignor=assignor, session=seconds), options)

    @disk
    def queue(
        self,
        group: str,
        topic: str,
        *,
        lease: str | timedelta = "30 seconds",
        max_deliveries: int = 5,
        priority: str | None = None,
        not_before: str | None = None,
        key_order: bool = False,
    ) -> Queue:
        """Return a work queue: the topic's records are handed out one by one to the workers of a group.

        Each group gets all records, from the topic's first one on; the workers of a group share them. All workers of a
        group give the same options.

        Args:
            group: its name.
            topic: the topic.
            lease: how long a worker may take for a record before others get it.
            max_deliveries: a record that was handed out so often, and not acknowledged, becomes a dead letter.
            priority: a column of whole numbers; records with greater ones come first, null is 0. They are compared
                within the first 10,000 unfinished records.
            not_before: a timestamp column; a record is not handed out earlier.
            key_order: records of one key are handed out one after the other, in their order.

        Raises:
            UnknownTopic: there is no such topic.
            InvalidArgument: an option is not possible.
            InvalidTime: `lease` is not a duration.

        """
        self._folder.check_open()
        options = checked_options(
            self.topic(topic), lease, max_deliveries, priority=priority, not_before=not_before, key_order=key_order
        )
        return Queue(self.topic(topic), check_group(group), queue_folder(self.path, group, topic), options, self)

    # ---- inside ----------------------------------------------------------------------------------------

    def _create_folder(self, described: Meta) -> None:
        """Create the topic's folder under another name, then rename it: it appears complete or not at all."""
        self._folder.check_described(described.name)
        topics = self._folder.topics_path
        draft = topics / f".new-{described.id}"
        try:
            make_folder(topics, sync=self.fsync)
            self._write_draft(draft, described)
        except OSError as error:
            shutil.rmtree(draft, ignore_errors=True)
            raise ChangeFailed(described.name, str(topics), error) from error
        try:
            draft.rename(self._folder.topic_path(described.name))
        except OSError:
            shutil.rmtree(draft, ignore_errors=True)
            raise self._exists(described) from None
        if self.fsync:
            for folder in (topics, self.path, self.path.parent):  # a process that died may have left these to us
                sync_folder(folder)

    def _write_draft(self, draft: Path, described: Meta) -> None:
        draft.mkdir()
        for number in range(described.partitions):
            folder = draft / str(number)
            folder.mkdir()
            (folder / HEAD_NAME).write_bytes(new_head(PartitionState(boot=BOOT))[:FILE_SIZE])
        if described.private:
            keyfile.create(draft, described.id)
        metas.write(draft, described)
        if self.fsync:
            _sync_tree(draft)

    def _exists(self, described: Meta) -> TopicExists:
        name, call = described.name, f'Log("{self.path}").topic("{described.name}")'
        hint, detail = f"Use it with {call}, or delete it first.", ""
        if self.has_topic(name):
            existing = self.topic(name)
            detail = "" if existing.schema == described.schema else f"Its schema differs: {to_ddl(existing.schema)}."
            if detail and evolution.may_become(existing.schema, described.schema, existing.key):
                hint = f'Use it with {call}; it can take your schema: {call}.evolve("{to_ddl(described.schema)}").'
        return TopicExists(f'the log "{self.path}" already has a topic "{name}"', detail=detail, hint=hint)


def _sync_tree(folder: Path) -> None:
    for inside, _, names in os.walk(folder, topdown=False):
        for name in names:
            with (Path(inside) / name).open("rb") as file:
                os.fsync(file.fileno())
        sync_folder(Path(inside))


def _reopened(folder: LogFolder) -> Log:
    log = Log(folder.path, clock=folder.clock, fsync=folder.fsync, segment_bytes=folder.segment_bytes)
    log._folder = folder  # noqa: SLF001 - shared with the topics that were pickled together with the log
    return log

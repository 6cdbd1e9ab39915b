"""What is open of a topic in this process: its description, partitions, writers and keys.

`Topic` is the front. What is behind it (appending, reading, changing the description) takes an `OpenTopic`.
"""

from __future__ import annotations

import logging
import threading
from functools import partial
from typing import TYPE_CHECKING

from headrace.base.errors import HeadraceError
from headrace.base.time import STAMPS
from headrace.log.appending.requests import check_partition
from headrace.log.appending.writer import Writer
from headrace.log.bell import bells_folder, ring_all
from headrace.log.cleaning.rules import Cleaner
from headrace.log.meta import Meta, MetaFile
from headrace.log.privacy.subjects import Privacy
from headrace.log.projection import result_schema
from headrace.log.segments import payload as payloads
from headrace.log.segments.partition import Partition
from headrace.log.segments.segment import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    import pyarrow as pa

    from headrace.log.folder import LogFolder
    from headrace.log.segments.frame import Frame
    from headrace.log.segments.segment import Segment

_LOGGER = logging.getLogger("headrace.log")


class OpenTopic:
    """The open files of a topic; may be used by many threads."""

    def __init__(self, log: LogFolder, name: str) -> None:
        folder = log.topic_path(name)
        self.log = log
        self.file = MetaFile(folder)
        self.first = self.file.current()
        """The description at the time of opening: its name, id, key and event time never change."""
        self.privacy = Privacy(folder, self.first, fsync=log.fsync)
        self._lock = threading.Lock()
        self._partitions: dict[int, Partition] = {}
        self._writers: dict[int, Writer] = {}
        self._turn = -1
        self._stored: dict[tuple[int, int], pa.Schema] = {}
        self._wanted: tuple[Meta, tuple[str, ...], pa.Schema] | None = None

    @property
    def name(self) -> str:
        """The topic's name."""
        return self.first.name

    @property
    def folder(self) -> Path:
        """The topic's folder."""
        return self.file.folder

    def meta(self) -> Meta:
        """Return the topic's description as it is now.

        Raises:
            LogClosed: the log was closed.
            TopicDeleted: the topic is gone.

        """
        self.log.check_open()
        return self.file.current()

    def partition(self, number: int) -> Partition:
        """Return a partition, opened on first use.

        Raises:
            InvalidTopic: there is no partition of this number.

        """
        meta = self.meta()
        opened = self._partitions.get(number) if isinstance(number, int) else None
        if opened is not None:
            return opened
        check_partition(meta, number)
        with self._lock:
            return self._partitions.setdefault(
                number, Partition(self.folder / str(number), TopicPartition(self.name, number), durable=self.log.fsync)
            )

    def writer(self, number: int) -> Writer:
        """Return the writer of a partition, opened on first use."""
        opened = self._writers.get(number)
        if opened is not None:
            return opened
        partition = self.partition(number)
        with self._lock:
            if number not in self._writers:
                self._writers[number] = Writer(
                    partition,
                    fsync=self.log.fsync,
                    segment_bytes=self.log.segment_bytes,
                    now=partial(STAMPS.next, self.log.clock),
                    segment_age=lambda: self.file.last_read().segment_age,
                    rolled=partial(self._retain, number),
                    published=partial(ring_all, bells_folder(self.log.path, self.name)),
                )
            return self._writers[number]

    def cleaner(self, number: int) -> Cleaner:
        """Return a cleaner of a partition, as of now."""
        return Cleaner(
            partition=self.partition(number),
            writer=self.writer(number),
            meta=self.meta(),
            fsync=self.log.fsync,
            segment_bytes=self.log.segment_bytes,
            now=self.log.clock.now(),
        )

    def end_offsets(self) -> dict[int, int]:
        """Return the offset after the last acknowledged record of each partition."""
        return {number: partition.state().end for number, partition in self._all_partitions()}

    def start_offsets(self) -> dict[int, int]:
        """Return the first offset of each partition."""
        return {number: partition.state().start for number, partition in self._all_partitions()}

    def _all_partitions(self) -> Iterator[tuple[int, Partition]]:
        """Yield all partitions; the description is looked at once."""
        for number in range(self.meta().partitions):
            yield number, self._partitions.get(number) or self.partition(number)

    def next_turn(self, partitions: int) -> int:
        """Return the partition of the next append without a key: each in turn, beginning with the emptiest."""
        with self._lock:
            fresh = self._turn < 0
            self._turn += 1
        if fresh:
            ends = self.end_offsets()
            self._turn = min(ends, key=lambda number: (ends[number], number))
        return self._turn % partitions

    def decoded(self, segment: Segment, number: int) -> pa.RecordBatch:
        """Return the batch of a segment's frame, with the columns as they are stored."""
        frame = segment.frame(number)
        return payloads.decode(segment.payload(number, frame), self.stored_schema(frame))

    def stored_schema(self, frame: Frame) -> pa.Schema:
        """Return the schema under which a frame was written, stored system columns included."""
        stored = self._stored.get((frame.schema, frame.flags))
        if stored is None:
            stored = payloads.stored_schema(self.meta().schema_of(frame.schema), frame.flags)
            self._stored[frame.schema, frame.flags] = stored
        return stored

    def schema_of(self, columns: Sequence[str], meta: Meta) -> pa.Schema:
        """Return the schema of some columns, as of a description; the last one is kept: reads ask for the same.

        Raises:
            UnknownColumn: there is no such column.

        """
        last, names = self._wanted, tuple(columns)
        if last is None or last[0] is not meta or last[1] != names:
            last = self._wanted = meta, names, result_schema(meta, names)
        return last[2]

    def close(self) -> None:
        """Close all files; batches that were read stay valid."""
        with self._lock:
            for writer in self._writers.values():
                writer.close()
            for partition in self._partitions.values():
                partition.close()
            self._writers, self._partitions = {}, {}

    def _retain(self, number: int) -> None:
        """Apply retention after an append has closed a segment. The append succeeded: a failure here is only logged."""
        meta = self.meta()
        if meta.retention is None and meta.retention_bytes is None:
            return
        try:
            self.cleaner(number).retain()
        except HeadraceError as error:
            _LOGGER.warning("%s: retention failed: %s", self.folder / str(number), error)

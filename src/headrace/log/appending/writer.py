"""Appending to one partition: complete appends, on disk before they are acknowledged, one process at a time.

Appends of several threads at the same time share one write and one fsync: the first thread does it for all.
"""

from __future__ import annotations

import fcntl
import logging
import os
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.base.disk import sync_folder, write_at
from headrace.base.errors import AppendFailed
from headrace.log.appending.producers import NEVER, LastAppend, ProducerStates, StaleSequence
from headrace.log.segments import frame as framing
from headrace.log.segments import layout as layouts
from headrace.log.segments import recovery
from headrace.log.segments.frame import END, NO_PRODUCER, PRODUCED, Frame
from headrace.log.segments.head import BOOT, FILE_SIZE, NO_SEGMENT, PartitionHead, PartitionState
from headrace.log.segments.partition import HEAD_NAME
from headrace.log.segments.segment import index_path, segment_path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from headrace.log.segments.layout import Layout
    from headrace.log.segments.partition import Partition
    from headrace.log.segments.payload import Payload

SEGMENT_BYTES = 128 << 20
SEGMENT_FRAMES = 8_192  # so that a segment's headers are read in some 20 ms
_ABOVE = 4
"""The folders above a partition's: its topic, all topics, the log, and the one that the log is in."""
_LOGGER = logging.getLogger("headrace.log")


@dataclass(slots=True, kw_only=True)
class Request:
    """One append to one partition, and its result. `after` is the last sequence that the producer expects."""

    payloads: Sequence[Payload]
    schema: int
    producer: bytes = NO_PRODUCER
    sequence: int = 0
    after: int | None = None
    offsets: range | None = None
    error: BaseException | None = None

    @property
    def rows(self) -> int:
        """Return the number of records."""
        return sum(payload.rows for payload in self.payloads)


class Writer:
    """Appends to a partition; many threads may use it."""

    def __init__(
        self,
        partition: Partition,
        *,
        fsync: bool,
        segment_bytes: int = SEGMENT_BYTES,
        now: Callable[[], int],
        segment_age: Callable[[], int],
        rolled: Callable[[], None] = lambda: None,
        published: Callable[[], None] = lambda: None,
    ) -> None:
        """Create a writer. `now` stamps an append; `segment_age` is in microseconds.

        Called are `rolled` after a segment was closed, and `published` after records became visible.
        """
        self._partition = partition
        self._folder = partition.folder
        self._fsync = fsync
        self._segment_bytes = segment_bytes
        self._now = now
        self._last_append = (-1, 0)  # (the offset after it, its time)
        self._segment_age = segment_age
        self._rolled, self._published = rolled, published
        self._has_rolled = False
        self._turn = threading.Lock()
        self._waiting: list[Request] = []
        self._waiting_lock = threading.Lock()
        self._producers = ProducerStates(partition)
        self._lock_fd = -1
        self._head_path = str(partition.folder / HEAD_NAME)
        self._head_number = -1  # inode of the locked file
        self._head: PartitionHead | None = None
        self._segment: tuple[int, int] | None = None  # (first offset, file)
        self._segment_file = -1, ""  # (first offset, path) of the segment that was looked at last
        self._segment_began: tuple[int, int] | None = None  # (first offset of the segment, time of its first append)
        self._checked = False  # the files were checked since they were opened
        self._pid = os.getpid()

    def append(self, request: Request) -> range:
        """Append, and return the offsets once the records are safe on disk.

        Raises:
            AppendFailed: the disk refused; the log is unchanged.
            TopicDeleted: the topic was deleted meanwhile.
            StaleSequence: the producer's last sequence is not `after`.

        """
        with self._waiting_lock:
            self._waiting.append(request)
        with self._turn:
            if request.offsets is None and request.error is None:
                with self._waiting_lock:
                    group, self._waiting = self._waiting, []
                self._commit(group)
                self._published()
        if self._has_rolled:
            self._has_rolled = False
            self._rolled()
        if request.error is not None:
            raise request.error
        assert request.offsets is not None  # noqa: S101 - _commit sets one of the two
        return request.offsets

    def close(self) -> None:
        """Close the files."""
        with self._turn:
            self._release()

    # ---- for cleaning ----------------------------------------------------------------------------------

    def roll(self, *, last_before: int | None = None) -> PartitionState:
        """Close the current segment, so that it can be cleaned; the next append begins another. Return the state.

        With `last_before` only if its newest record was appended before that instant.
        """
        with self._turn, self._locked() as head:
            state = self._ready(head)
            if not state.position:
                return state
            index = self._partition.segment(state.segment).frames(state.position, state.end)
            if last_before is not None and int(index["append_time"].max()) >= last_before:
                return state
            self._close_off(state)
            closed = state._replace(version=state.version + 1, segment=NO_SEGMENT, position=0, frames=0,
                                    layout=state.layout + 1, boot=BOOT)  # fmt: skip
            head.publish(closed)
            return closed

    def give_up(self, gap: Payload, *, schema: int, time: int) -> range:
        """Give up the acknowledged records that the last segment lost; return their offsets, empty if none is.

        `gap`, a payload without records, is written in their place: they read as if compaction had removed them.
        """
        with self._turn, self._locked() as head:
            slot = head.read().slot
            lost, intact = recovery.survey(self._folder, slot, durable=self._partition.durable)[1:]
            if not lost:
                return lost
            self._close_segment()
            position = intact.position
            frame = Frame(gap.flags | END, gap.checksum, gap.length, position, position, lost.start, lost.stop, 0,
                          schema, time, gap.min_time, gap.max_time, lost.start, NO_PRODUCER, 0)  # fmt: skip
            self._segment = intact.segment, os.open(segment_path(self._folder, intact.segment), os.O_RDWR | os.O_CREAT)
            os.ftruncate(self._segment[1], position)
            write_at(self._segment[1], [framing.pack(frame), gap.buffer, gap.filling], position)
            if self._fsync:
                _sync(self._segment[1])
                sync_folder(self._folder)
            self._producers.forget()
            head.rebuild(intact._replace(version=intact.version + 2, layout=intact.layout + 1, end=lost.stop,
                                         position=frame.end, frames=intact.frames + 1, boot=BOOT))  # fmt: skip
            self._checked = False
            return lost

    def settle(self) -> PartitionState:
        """Finish or undo what a process that died left; return the state."""
        with self._turn, self._locked() as head:
            return self._ready(head)

    def switch(self, layout: Layout) -> PartitionState:
        """Replace the layout while nobody appends, and publish it to all readers; return the state."""
        with self._turn, self._locked() as head:
            state = self._ready(head)
            head.set_busy(busy=True)  # should we die, the next writer checks the files
            layouts.write(self._folder, layout, fsync=self._fsync)
            switched = state._replace(version=state.version + 1, start=max(state.start, layout.start),
                                      layout=state.layout + 1, boot=BOOT)  # fmt: skip
            head.publish(switched)
            head.set_busy(busy=False)
            return switched

    # ---- inside ----------------------------------------------------------------------------------------

    def _commit(self, group: list[Request]) -> None:
        try:
            with self._locked() as head:
                self._write_group(head, group)
        except BaseException as error:
            failure = self._explained(error)
            for request in group:
                request.error = request.error or failure
            if not isinstance(error, Exception):
                raise

    def _explained(self, error: BaseException) -> BaseException:
        if not isinstance(error, OSError):
            return error
        topic, partition = self._partition.topic_partition
        failure = AppendFailed(
            f'the append to topic "{topic}", partition {partition} failed: {error.strerror or error}',
            detail=f"Folder {self._folder}; nothing of the append is in the log.",
            hint="Free disk space or repair the disk, then append again.",
        )
        failure.__cause__ = error
        return failure

    def _write_group(self, head: PartitionHead, group: list[Request]) -> None:
        state = self._ready(head)
        fresh = self._not_yet_appended(group, state)
        if not fresh:
            return
        size = sum(p.length + framing.HEADER_SIZE for request in fresh for p in request.payloads)
        head.set_busy(busy=True)
        try:
            now = self._stamp(state)
            fd, published = self._segment_for(size, state, now)
            buffers, after = _frames_of(fresh, published, now)
            write_at(fd, buffers, published.position, ahead=self._fsync)
            if self._fsync:
                _sync(fd)
        except BaseException:
            self._undo(head, state)
            raise
        head.publish(after)
        head.set_busy(busy=False)
        self._last_append = after.end, now
        offset = published.end
        for request in fresh:
            request.offsets = range(offset, offset + request.rows)
            offset += request.rows

    def _stamp(self, state: PartitionState) -> int:
        """Return the time of an append, while nobody else appends: never earlier than that of the append before it."""
        end, last = self._last_append
        if end != state.end:  # another process appended, or none has yet
            index = self._partition.segment(state.segment).frames(state.position, state.end) if state.position else None
            last = 0 if index is None or not len(index) else int(index["append_time"][-1])
        return max(self._now(), last)

    def _not_yet_appended(self, group: list[Request], state: PartitionState) -> list[Request]:
        """Set the offsets of requests that were appended before; return the others."""
        numbered = any(request.producer != NO_PRODUCER for request in group)
        last_appends = dict(self._producers.catch_up(state)) if numbered else {}
        fresh, offset, repeats = [], state.end, []
        for request in group:
            last = last_appends.get(request.producer) if request.producer != NO_PRODUCER else None
            last_sequence = NEVER if last is None else last.sequence
            if request.after is not None and request.after != last_sequence:
                request.error = StaleSequence(last_sequence)
                continue
            if last is not None and request.sequence <= last.sequence:
                repeats.append((request, last))
                continue
            if request.producer != NO_PRODUCER:
                last_appends[request.producer] = LastAppend(request.sequence, offset, offset + request.rows)
            offset += request.rows
            fresh.append(request)
        for request, last in repeats:
            same = request.sequence == last.sequence
            request.offsets = range(last.first, last.end) if same else range(state.end, state.end)
        return fresh

    # ---- the lock and the head -------------------------------------------------------------------------

    @contextmanager
    def _locked(self) -> Iterator[PartitionHead]:
        """Lock the partition against writers of all processes."""
        if self._pid != os.getpid():  # a fork shares its parent's locks: take our own
            self._release()
            self._pid = os.getpid()
        while True:
            if self._head is None:
                self._open_head()
            fcntl.flock(self._lock_fd, fcntl.LOCK_EX)
            if self._is_current():
                break
            self._release()
            if (self._folder / HEAD_NAME).exists():  # another topic of the same name: the rows are not for it
                raise self._partition.replaced()
        try:
            assert self._head is not None  # noqa: S101 - _open_head made it
            yield self._head
        finally:
            if self._lock_fd >= 0:
                fcntl.flock(self._lock_fd, fcntl.LOCK_UN)

    def _open_head(self) -> None:
        path = self._folder / HEAD_NAME
        if not self._folder.exists():
            raise self._partition.gone()
        self._lock_fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        fcntl.flock(self._lock_fd, fcntl.LOCK_EX)
        status = os.fstat(self._lock_fd)
        self._head_number = status.st_ino
        if status.st_size < FILE_SIZE:
            os.ftruncate(self._lock_fd, FILE_SIZE)
        self._head = PartitionHead(self._lock_fd, writable=True)
        self._checked = False

    def _is_current(self) -> bool:
        """Tell whether the head's path still is the locked file."""
        try:
            return os.stat(self._head_path).st_ino == self._head_number  # noqa: PTH116 - at every append
        except FileNotFoundError:
            return False

    def _release(self) -> None:
        if self._head is not None:
            self._head.close()
        if self._lock_fd >= 0:
            os.close(self._lock_fd)
        self._close_segment()
        self._head, self._lock_fd, self._checked = None, -1, False
        self._producers.forget()

    def _ready(self, head: PartitionHead) -> PartitionState:
        """Return the state to append to, after repairing what a writer that died left."""
        slot, trusted, busy = head.read()
        sound = slot if trusted and not busy else None
        if sound is not None and (
            self._still_complete(sound) if self._checked else recovery.is_complete(self._folder, sound)
        ):
            self._checked = True
            return sound
        return self._recover(head, slot)

    def _still_complete(self, state: PartitionState) -> bool:
        """Tell whether the current segment's file is as long as it should be: it was when it was checked."""
        if state.segment == NO_SEGMENT:
            return True
        try:
            return os.stat(self._path_of(state.segment)).st_size == state.position  # noqa: PTH116 - at every append
        except FileNotFoundError:
            return False

    def _path_of(self, base: int) -> str:
        if self._segment_file[0] != base:
            self._segment_file = base, str(segment_path(self._folder, base))
        return self._segment_file[1]

    def _recover(self, head: PartitionHead, slot: PartitionState | None) -> PartitionState:
        found = recovery.survey(self._folder, slot, durable=self._partition.durable)
        if found.lost:
            raise self._partition.lost(found.lost)
        state = found.state
        self._close_segment()
        self._producers.forget()
        for base in layouts.listed(self._folder)[1]:
            if base >= state.end and base != state.segment:  # left by a roll that did not finish
                segment_path(self._folder, base).unlink()
                index_path(self._folder, base).unlink(missing_ok=True)
        if state.segment != NO_SEGMENT:
            os.ftruncate(self._opened(state.segment), state.position)
            if self._fsync:
                os.fsync(self._opened(state.segment))
                sync_folder(self._folder)
        if slot is not None and state.end < slot.end:
            _LOGGER.warning("%s: the records from offset %d to %d were torn off and are lost", self._folder,
                            state.end, slot.end - 1)  # fmt: skip
        head.rebuild(state._replace(version=state.version + 2, layout=state.layout + 1))
        self._checked = True
        rebuilt = head.read().slot
        assert rebuilt is not None  # noqa: S101 - it was just written
        return rebuilt

    # ---- segments --------------------------------------------------------------------------------------

    def _segment_for(self, size: int, state: PartitionState, now: int) -> tuple[int, PartitionState]:
        """Return the file to write to and the state before the write; begins a new segment if the old one is full."""
        full = state.position + size > self._segment_bytes or state.frames >= SEGMENT_FRAMES
        if state.segment != NO_SEGMENT and not (state.position and (full or self._is_old(state, now))):
            return self._opened(state.segment), state
        if state.segment != NO_SEGMENT:
            self._close_off(state)
            self._has_rolled = True
        self._close_segment()
        path = segment_path(self._folder, state.end)
        self._segment = state.end, os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
        if self._fsync:
            sync_folder(self._folder)
            if state.segment == NO_SEGMENT:  # the process that made the topic may have died before it was synced
                for above in self._folder.parents[:_ABOVE]:
                    sync_folder(above)
        return self._segment[1], state._replace(segment=state.end, position=0, frames=0, layout=state.layout + 1)

    def _is_old(self, state: PartitionState, now: int) -> bool:
        """Tell whether the oldest record of the segment is so old that the segment should be closed."""
        if self._segment_began is None or self._segment_began[0] != state.segment:
            first = os.pread(self._opened(state.segment), framing.HEADER_SIZE, 0)
            self._segment_began = state.segment, framing.unpack(first).append_time
        return now - self._segment_began[1] > self._segment_age()

    def _close_off(self, state: PartitionState) -> None:
        """Write the index and the producers' snapshot of a segment that is closed."""
        self._producers.save(state)
        self._partition.segment(state.segment).save_index(state.position, state.end)

    def _opened(self, base: int) -> int:
        if self._segment is None or self._segment[0] != base:
            self._close_segment()
            self._segment = base, os.open(segment_path(self._folder, base), os.O_RDWR)
        return self._segment[1]

    def _close_segment(self) -> None:
        if self._segment is not None:
            os.close(self._segment[1])
        self._segment = None

    def _undo(self, head: PartitionHead, state: PartitionState) -> None:
        """Undo a write that failed. If that fails, too, `busy` stays set and the next append recovers."""
        try:
            if self._segment is not None and self._segment[0] != state.segment:
                segment_path(self._folder, self._segment[0]).unlink()
                self._close_segment()
            elif self._segment is not None:
                os.ftruncate(self._segment[1], state.position)
        except OSError:
            return
        head.set_busy(busy=False)


def _frames_of(requests: Sequence[Request], state: PartitionState, now: int) -> tuple[list[object], PartitionState]:
    """Return the buffers to write at the state's position, and the state after them."""
    buffers: list[object] = []
    position, offset, count = state.position, state.end, state.frames
    for request in requests:
        first = offset
        numbered = PRODUCED if request.producer != NO_PRODUCER else 0
        for number, payload in enumerate(request.payloads, 1):
            flags = payload.flags | numbered | (END if number == len(request.payloads) else 0)
            low, high = (now, now) if payload.stamped else (payload.min_time, payload.max_time)
            frame = Frame(flags, payload.checksum, payload.length, position, state.position, offset,
                          offset + payload.rows, payload.rows, request.schema, now, low, high,
                          first, request.producer, request.sequence)  # fmt: skip
            buffers += [framing.pack(frame), payload.buffer, payload.filling]
            position, offset, count = frame.end, frame.next, count + 1
    return buffers, state._replace(version=state.version + 1, end=offset, position=position, frames=count, boot=BOOT)


def wait_for(partition: Partition) -> None:
    """Wait until nobody appends to a partition."""
    path = partition.folder / HEAD_NAME
    if not path.exists():
        return
    fd = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(fd, fcntl.LOCK_SH)
    finally:
        os.close(fd)


def _sync(fd: int) -> None:
    """Sync a file's bytes; the function is looked up at each call, so that tests of the file system see it."""
    getattr(os, "fdatasync", os.fsync)(fd)

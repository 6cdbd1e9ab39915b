"""The head of a partition: the acknowledged end, published for readers in all processes.

A small file that everyone maps. Two slots are written in turn, each with its checksum, so a reader never sees
half of one. A writer holds the file's lock (`flock`) for as long as it appends, and `busy` says that it does: found
set by the next holder of the lock, the last one died. The head is not fsynced: after a power loss it may be
behind the segments, which the boot's identity in it gives away. It is rebuilt, never trusted blindly.
"""

from __future__ import annotations

import mmap
import os
import struct
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

from headrace.base.crc import crc32

_SLOT = struct.Struct("<qqqqqQIII4x")
SLOT_SIZE = _SLOT.size
BUSY_AT = 2 * SLOT_SIZE
FILE_SIZE = 192
NO_SEGMENT = -1
_CHECKED = 56  # the bytes of a slot that its checksum covers


class PartitionState(NamedTuple):
    """A published state of a partition."""

    version: int = 0
    end: int = 0  # the next offset
    position: int = 0  # where the next frame goes in the segment
    segment: int = NO_SEGMENT  # first offset of the current segment, which is appended to
    start: int = 0  # the first offset that was not deleted
    boot: int = 0
    layout: int = 0  # counts the changes of the set of segments
    frames: int = 0  # in the current segment


def boot_identity() -> int:
    """Return a number that changes when the machine is restarted; 1 if the system does not have one."""
    try:
        text = Path("/proc/sys/kernel/random/boot_id").read_bytes()
    except OSError:
        return 1
    return int.from_bytes(blake2b(text, digest_size=8).digest(), "little")


BOOT = boot_identity()


def pack(slot: PartitionState) -> bytes:
    """Return the bytes of a slot, checksum included."""
    raw = _SLOT.pack(*slot, 0)
    return raw[:_CHECKED] + crc32(raw[:_CHECKED]).to_bytes(4, "little") + raw[_CHECKED + 4 :]


def unpack(raw: bytes) -> PartitionState | None:
    """Return the state in a slot; None if it is damaged."""
    *fields, checksum = _SLOT.unpack(raw)
    slot = PartitionState(*fields)
    sane = 0 <= slot.start <= slot.end and slot.position >= 0
    return slot if sane and checksum == crc32(raw[:_CHECKED]) else None


def new_head(slot: PartitionState) -> bytes:
    """Return the content of a new head file in which `slot` is published."""
    pair = [pack(slot), pack(slot._replace(version=slot.version + 1))]
    return b"".join(pair if slot.version % 2 == 0 else reversed(pair)) + bytes(FILE_SIZE - BUSY_AT)


class HeadSnapshot(NamedTuple):
    """The content of a head: the newest slot, whether it can be trusted, and whether a writer is at work."""

    slot: PartitionState | None
    trusted: bool
    busy: bool


_NOTHING = HeadSnapshot(None, trusted=False, busy=False)


class PartitionHead:
    """A mapped head file; `writable` only for the holder of the lock."""

    def __init__(self, fd: int, *, writable: bool) -> None:
        access = mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ
        self._map = mmap.mmap(fd, FILE_SIZE, access=access)
        self._raw = b""
        self._snapshot = _NOTHING

    @classmethod
    def open(cls, path: Path) -> PartitionHead | None:
        """Map a head for reading; None if it is missing or cut short."""
        try:
            fd = os.open(path, os.O_RDONLY)
        except FileNotFoundError:
            return None
        try:
            return cls(fd, writable=False) if os.fstat(fd).st_size >= FILE_SIZE else None
        finally:
            os.close(fd)

    def close(self) -> None:
        """Unmap it."""
        self._map.close()

    def read(self) -> HeadSnapshot:
        """Return the newest published state: never half of one, and never one older than at the call."""
        raw = self._map[: BUSY_AT + 1]
        if raw == self._raw:
            return self._snapshot
        for _ in range(1000):
            slots = unpack(raw[:SLOT_SIZE]), unpack(raw[SLOT_SIZE:BUSY_AT])
            if all(slots):
                break
            again = self._map[: BUSY_AT + 1]
            if again == raw:  # nobody is writing it: it is damaged, or its writer died
                break
            raw = again
        self._raw, self._snapshot = raw, _snapshot_of(slots, busy=raw[BUSY_AT] != 0)
        return self._snapshot

    def flaw(self) -> str:
        """Return what is damaged; an empty text if nothing is."""
        self.read()
        slots = unpack(self._raw[:SLOT_SIZE]), unpack(self._raw[SLOT_SIZE:BUSY_AT])
        if slots[0] is None or slots[1] is None:
            return "a state in the head does not match its checksum"
        return (
            ""
            if abs(slots[0].version - slots[1].version) == 1
            else "the two states in the head do not follow each other"
        )

    def set_busy(self, *, busy: bool) -> None:
        """Mark that an append is in progress; a writer that dies leaves the mark."""
        self._map[BUSY_AT] = 1 if busy else 0

    def publish(self, slot: PartitionState) -> None:
        """Let every reader see `slot`; its version must be the last one plus one."""
        at = SLOT_SIZE * (slot.version % 2)
        self._map[at : at + SLOT_SIZE] = pack(slot)

    def rebuild(self, slot: PartitionState) -> None:
        """Publish `slot` in a head with any content."""
        self._map[:FILE_SIZE] = new_head(slot)


def _snapshot_of(slots: tuple[PartitionState | None, PartitionState | None], *, busy: bool) -> HeadSnapshot:
    valid = [slot for slot in slots if slot is not None]
    if not valid:
        return HeadSnapshot(None, trusted=False, busy=busy)
    newest = max(valid)
    paired = len(valid) == len(slots) and abs(valid[0].version - valid[1].version) == 1
    return HeadSnapshot(newest, trusted=paired and newest.boot == BOOT, busy=busy)

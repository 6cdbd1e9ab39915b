"""The key file of a topic with private columns: one key for each subject, and a mark where a key was destroyed.

Slots of one size, each under a checksum: a header, then one slot for each key, appended under a lock. A key is
destroyed in its place: the mark overwrites it. No slot crosses a disk's sector, so a slot is there whole or not at all.
A damaged slot is skipped; needing its key is then an error, never a null. The subject itself is not in the file, only
its hash under a secret of the file.
"""

from __future__ import annotations

import fcntl
import hmac
import os
import secrets
import struct
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, NamedTuple

from headrace.base.crc import crc32
from headrace.base.errors import AppendFailed, ChangeFailed, CorruptBatch, KeysMissing

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping
    from pathlib import Path

FILE_NAME = "private.keys"
LOCK_NAME = "private.lock"
SLOT = 128
KEY_BYTES = 64  # AES-256 in SIV mode takes two keys of 256 bits
_ID_BYTES = 12
_HEADER = struct.Struct("<8s32s32sQ")  # magic, topic, secret of the hashes, how often keys were destroyed
_ENTRY = struct.Struct(f"<B3x{_ID_BYTES}s32s{KEY_BYTES}s")  # kind, id, hash of the subject, key
_CHECKSUM = struct.Struct("<I")
_BODY = SLOT - _CHECKSUM.size
_SLOT = struct.Struct(f"{_ENTRY.format}{_BODY - _ENTRY.size}xI")
_MAGIC = b"HRKEYS1\n"
_KEY, _FORGOTTEN = 1, 2
_LATER = 1_000_000  # nanoseconds

Subject = tuple[str, str]
"""Whom a value is about: the subject column, and its value as text."""


class Key(NamedTuple):
    """A subject's key."""

    id: bytes
    secret: bytes


class Forgotten(NamedTuple):
    """The result of `KeyFile.forget`: keys destroyed now, and how many of the subjects were forgotten before."""

    destroyed: int
    before: int


class _Header(NamedTuple):
    topic: bytes
    salt: bytes
    generation: int


class _KeyTable:
    """The content of the file when it was last read."""

    def __init__(self) -> None:
        self.stamp: tuple[int, int, int] | None = None  # of the file: inode, modification time, size
        self.header = _Header(b"", b"", -1)
        self.upto = SLOT  # the position up to which slots were read
        self.durable = 0  # the position up to which they are known to be on disk
        self.secrets: dict[bytes, bytes | None] = {}  # by the key's id; None if it was destroyed
        self.slots: dict[bytes, tuple[bytes, int]] = {}  # by the subject's hash: (id of its key, position)
        self.older: list[
            tuple[bytes, bytes, int]
        ] = []  # (hash, id, position) of further keys of a subject, after a power loss
        self.forgotten: set[bytes] = set()  # hashes of subjects that had a key once

    def read_slots(self, raw: bytes) -> None:
        """Add the slots that begin at `upto`."""
        length, view = len(raw) // SLOT * SLOT, memoryview(raw)
        for at, (kind, key, subject, secret, checksum) in enumerate(_SLOT.iter_unpack(view[:length])):
            if crc32(view[at * SLOT : at * SLOT + _BODY]) != checksum:
                continue
            self.secrets[key] = secret if kind == _KEY else None
            if kind != _KEY:
                self.forgotten.add(subject)
                continue
            if subject in self.slots:
                self.older.append((subject, *self.slots[subject]))
            self.slots[subject] = key, self.upto + at * SLOT
        self.upto += length

    def slots_of(self, subjects: Collection[bytes]) -> list[tuple[bytes, bytes, int]]:
        """Return the slots with keys of these subjects: hash, id and position of each."""
        latest = [(subject, *self.slots[subject]) for subject in subjects if subject in self.slots]
        return [*latest, *(slot for slot in self.older if slot[0] in subjects)]


def create(folder: Path, topic: str) -> None:
    """Write the key file of a new topic, without keys; the caller makes it durable."""
    with _opened(folder / FILE_NAME, os.O_RDWR | os.O_CREAT | os.O_EXCL) as fd:
        os.pwrite(fd, _header(_Header(topic.encode(), secrets.token_bytes(32), 0)), 0)


def destroy(folder: Path) -> None:
    """Overwrite and remove the key file of a deleted topic; errors of the disk are ignored."""
    with suppress(OSError), _opened(folder / FILE_NAME, os.O_RDWR) as fd:
        os.pwrite(fd, bytes(os.fstat(fd).st_size), 0)
        os.fsync(fd)


def damage(folder: Path, topic: str) -> Iterator[tuple[int | None, str]]:
    """Read a key file again and yield what is wrong with it: (position in bytes, what).

    Zeros are not damage: a power loss may leave them for keys that no record needs.
    """
    try:
        raw = (folder / FILE_NAME).read_bytes()
    except FileNotFoundError:
        yield None, "the key file is missing: private columns cannot be read"
        return
    body = _checked(raw[:SLOT])
    if body is None or _HEADER.unpack_from(body)[:2] != (_MAGIC, topic.encode()):
        yield 0, "the header of the key file is damaged, or another topic's: private columns cannot be read"
    for at in range(SLOT, len(raw) - SLOT + 1, SLOT):
        slot = raw[at : at + SLOT]
        if _checked(slot) is None and slot.strip(b"\0"):
            yield at, "a key is damaged: the private values of its subject cannot be read"


class KeyFile:
    """The current keys of one topic; other processes add and destroy keys at any time.

    Many threads may use it. Reading takes no lock; a key that is returned is durable.
    """

    def __init__(self, folder: Path, topic: str, *, fsync: bool) -> None:
        self._folder = folder
        self._path = folder / FILE_NAME
        self._topic = topic
        self._fsync = fsync
        self._looking = threading.Lock()
        self._table = _KeyTable()

    def secrets(self) -> Mapping[bytes, bytes | None]:
        """Return all keys by id, None for destroyed ones. Do not change the mapping; later calls may add to it.

        Raises:
            CorruptBatch: the file is missing or damaged.
            KeysMissing: this user may not read it.

        """
        return self._current().secrets

    def destroyed(self) -> int:
        """Return how often keys were destroyed: a number that grows with each `forget`; it reads the header alone.

        Raises:
            CorruptBatch: the file is missing or damaged.

        """
        try:
            with _opened(self._path, os.O_RDONLY) as fd:
                return self._header_of(fd).generation
        except FileNotFoundError:
            raise self._damaged("is missing") from None

    def keys_of(self, subjects: Iterable[Subject]) -> dict[Subject, Key]:
        """Return each subject's key; a subject without one gets a new one, which is durable before it is used.

        Raises:
            AppendFailed: the disk refused a new key.
            CorruptBatch: the file is missing or damaged.

        """
        table = self._current()
        hashes = {subject: _hash(table, subject) for subject in subjects}
        while True:
            keys = {subject: _key(table, digest) for subject, digest in hashes.items()}
            missing = {hashes[subject] for subject, key in keys.items() if key is None}
            if not missing:
                self._make_durable(table, max((table.slots[digest][1] for digest in hashes.values()), default=0))
                return {subject: key for subject, key in keys.items() if key is not None}
            table = self._add(missing)

    def forget(self, subjects: Iterable[Subject]) -> Forgotten:
        """Destroy the keys of these subjects, durably; a second call does nothing.

        Raises:
            ChangeFailed: the disk refused: some keys may be destroyed, others not. Try again.
            CorruptBatch: the file is missing or damaged.

        """
        try:
            with self._writing() as fd:
                table = self._current()
                hashes = {_hash(table, subject) for subject in subjects}
                slots = table.slots_of(hashes)
                before = len((hashes & table.forgotten) - {digest for digest, _, _ in slots})
                for digest, key, position in slots:
                    os.pwrite(fd, _sealed(_ENTRY.pack(_FORGOTTEN, key, digest, bytes(KEY_BYTES))), position)
                if slots or before:  # an earlier call may have crashed between the two writes
                    header = table.header._replace(generation=table.header.generation + 1)
                    os.pwrite(fd, _header(header), 0)
                    self._settle(fd)
                self._current()
                return Forgotten(len({digest for digest, _, _ in slots}), before)
        except OSError as error:
            raise ChangeFailed(self._folder.name, str(self._folder), error) from error

    # ---- reading ---------------------------------------------------------------------------------------

    def _current(self) -> _KeyTable:
        """Return the current content; reads what was added, or all of it if keys were destroyed."""
        try:
            table = self._table
            if self._stamp() != table.stamp:
                with self._looking:
                    self._read(self._stamp())
                    table = self._table
        except FileNotFoundError:
            raise self._damaged("is missing") from None
        except PermissionError:
            raise KeysMissing(
                f"the key file {self._path} may not be read by this user",
                detail="Whoever reads it can read every private value of the topic.",
                hint="Read as its owner, or leave the values sealed: Topic.batches(…, sealed=True).",
            ) from None
        return table

    def _stamp(self) -> tuple[int, int, int]:
        status = os.stat(self._path)  # noqa: PTH116 - at every append and read
        return status.st_ino, status.st_mtime_ns, status.st_size

    def _read(self, stamp: tuple[int, int, int]) -> None:
        with _opened(self._path, os.O_RDONLY) as fd:
            header = self._header_of(fd)
            table = self._table
            same = table.stamp is not None and table.stamp[0] == stamp[0] and header == table.header
            if not same or stamp[2] < table.upto:
                table = _KeyTable()
            table.read_slots(os.pread(fd, max(stamp[2] - table.upto, 0), table.upto))
        table.header, table.stamp = header, stamp
        self._table = table

    def _header_of(self, fd: int) -> _Header:
        for _ in range(3):  # another process may be writing it
            body = _checked(os.pread(fd, SLOT, 0))
            if body is not None:
                break
            os.sched_yield()
        if body is None or not body.startswith(_MAGIC):
            raise self._damaged("is damaged")
        _, topic, salt, generation = _HEADER.unpack_from(body)
        if topic.decode() != self._topic:
            raise self._damaged("belongs to another topic")
        return _Header(topic, salt, generation)

    def _damaged(self, what: str) -> CorruptBatch:
        return CorruptBatch(
            f"the key file {self._path} {what}",
            detail="Without it the private columns of the topic cannot be read or appended to.",
            hint="Restore the file from a copy, then forget again whom that copy still knows.",
        )

    # ---- writing ---------------------------------------------------------------------------------------

    def _add(self, missing: set[bytes]) -> _KeyTable:
        """Append keys for these subjects, unless another process just did."""
        try:
            with self._writing() as fd:
                table = self._current()
                new = sorted(missing - table.slots.keys())
                slots = [
                    _ENTRY.pack(_KEY, secrets.token_bytes(_ID_BYTES), digest, secrets.token_bytes(KEY_BYTES))
                    for digest in new
                ]
                end = os.fstat(fd).st_size // SLOT * SLOT  # after it may be a part of a slot, left by a crash
                os.ftruncate(fd, end)
                _write(fd, b"".join(map(_sealed, slots)), end)
                self._settle(fd)
                table = self._current()
                table.durable = table.upto
                return table
        except OSError as error:
            raise self._refused(error) from error

    def _refused(self, error: OSError) -> AppendFailed:
        return AppendFailed(
            f'topic "{self._folder.name}": the key file cannot be written: {error.strerror or error}',
            detail="Nothing was appended.",
            hint="Free disk space or repair the disk, then append again.",
        )

    def _make_durable(self, table: _KeyTable, position: int) -> None:
        """Sync the file unless the slot at `position` is known to be on disk: another process may have written it."""
        if position < table.durable or not self._fsync:
            return
        upto = table.upto
        try:
            with _opened(self._path, os.O_RDWR) as fd:
                os.fsync(fd)
        except OSError as error:
            raise self._refused(error) from error
        table.durable = upto

    @contextmanager
    def _writing(self) -> Iterator[int]:
        """Lock the file against writers of all processes, and open it."""
        try:
            with _locked(self._folder), _opened(self._path, os.O_RDWR) as fd:
                yield fd
        except FileNotFoundError:
            raise self._damaged("is missing") from None

    def _settle(self, fd: int) -> None:
        """Sync the file, and set its modification time later than any that was read before."""
        if self._fsync:
            os.fsync(fd)
        before = self._table.stamp[1] if self._table.stamp is not None else 0
        later = max(before, os.fstat(fd).st_mtime_ns) + _LATER
        os.utime(fd, ns=(later, later))


# ---- slots ---------------------------------------------------------------------------------------------


def _sealed(body: bytes) -> bytes:
    filled = body.ljust(_BODY, b"\0")
    return filled + _CHECKSUM.pack(crc32(filled))


def _checked(raw: bytes) -> bytes | None:
    """Return the content of a slot; None if it is damaged."""
    body, checksum = raw[:_BODY], raw[_BODY:]
    return body if len(raw) == SLOT and _CHECKSUM.pack(crc32(body)) == checksum else None


def _header(header: _Header) -> bytes:
    return _sealed(_HEADER.pack(_MAGIC, *header))


def _hash(table: _KeyTable, subject: Subject) -> bytes:
    column, text = subject
    return hmac.digest(table.header.salt, f"{column}\0{text}".encode("utf-8", "surrogatepass"), "sha256")


def _key(table: _KeyTable, subject: bytes) -> Key | None:
    key, _ = table.slots.get(subject, (b"", 0))
    secret = table.secrets.get(key)
    return Key(key, secret) if secret is not None else None


# ---- files ---------------------------------------------------------------------------------------------


@contextmanager
def _opened(path: Path, flags: int) -> Iterator[int]:
    fd = os.open(path, flags, 0o600)
    try:
        yield fd
    finally:
        os.close(fd)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    with _opened(folder / LOCK_NAME, os.O_RDWR | os.O_CREAT) as fd:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield


def _write(fd: int, raw: bytes, at: int) -> None:
    written = 0
    while written < len(raw):
        written += os.pwrite(fd, raw[written:], at + written)

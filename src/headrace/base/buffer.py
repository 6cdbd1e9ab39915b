"""A bounded buffer, and what happens when it is full: block, drop the oldest or the newest, or spill to a file.

What is taken out has the order in which it was put in. Nothing disappears without being counted.
"""

from __future__ import annotations

import errno
import os
import pickle
import tempfile
import threading
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any, Generic, Literal, TypeVar

from headrace.base.arguments import a_whole_number, one_of

if TYPE_CHECKING:
    from pathlib import Path

OnFull = Literal["block", "drop_oldest", "drop_newest", "spill"]
ON_FULL: tuple[OnFull, ...] = ("block", "drop_oldest", "drop_newest", "spill")
SPILL_BYTES = 1 << 30
"""So much may be spilled; then `spill` waits as `block` does."""
_WRITE_BYTES = 1 << 18
Value = TypeVar("Value")


Entry = tuple[Any, ...]
"""What waits: a value, its weight, and what stays in memory when the value is spilled."""


@dataclass(slots=True)
class BufferCounts:
    """How many records were dropped and spilled so far, and how often somebody had to wait for room."""

    dropped: int = 0
    spilled: int = 0
    waited: int = 0

    def shown(self) -> dict[str, int]:
        """Return what has happened, as plain values: what has not is left out."""
        named = {"dropped": self.dropped, "spilled": self.spilled, "waited": self.waited}
        return {name: count for name, count in named.items() if count}


class Buffer:
    """Entries of at most `limit` by weight in memory, or one that is heavier alone. It locks nothing.

    Entries lie flat in memory, and not as tuples, which Python's garbage collector would look at again and again: a
    producer would be a third slower.

    Args:
        limit: the weight that it holds.
        width: how many items an entry has.
        on_full: what `put` does when there is no room. "block" and a full spill: whoever puts asks `is_full` first.
        folder: where a file for spilled entries is created when it is needed; it has no name and ends with the process.
        spill_bytes: how large it may become.

    Raises:
        InvalidArgument: an argument is not possible.

    """

    def __init__(
        self, limit: int, on_full: OnFull, width: int, *, folder: Path | None = None, spill_bytes: int = SPILL_BYTES
    ) -> None:
        self.width = width
        self.limit = a_whole_number(limit, "limit", least=1)
        self.on_full: OnFull = one_of(on_full, "on_full", ON_FULL)  # type: ignore[assignment]
        self.dropped = self.spilled = 0
        self.count = 0  # how many entries are in it; an attribute, since a producer asks for each record
        self.in_memory = True
        self._memory: deque[Any] = deque()
        self._extend = self._memory.extend
        self._weight = 0
        self._spill = _Spill(folder, spill_bytes) if on_full == "spill" else None

    @property
    def is_full(self) -> bool:
        """Whether the next entry finds no room and must wait, unless it is to be dropped."""
        if self._spill is not None:
            return self._spill.is_full
        return self.on_full == "block" and self._weight >= self.limit

    def put(self, entry: Entry) -> list[Entry] | None:
        """Add an entry, and return what is dropped for it, or itself. In a full one that blocks it fits."""
        self._weight = weight = self._weight + entry[1]
        if (weight <= self.limit and self.in_memory) or not self.count:
            self._extend(entry)
            self.count += 1
            return None
        self._weight -= entry[1]
        return self._put_into_full(entry)

    def _put_into_full(self, entry: Entry) -> list[Entry] | None:
        gone: list[Entry] = []
        if self.on_full == "drop_newest":
            gone = [entry]
        elif self._spill is not None:
            self._spill.write(entry)
            self.in_memory = False
            self.spilled += 1
        else:
            while self.on_full == "drop_oldest" and self._memory and self._weight + entry[1] > self.limit:
                gone.append(tuple(self._memory.popleft() for _ in range(self.width)))
                self._weight -= gone[-1][1]
            self._extend(entry)
            self._weight += entry[1]
        self.count += 1 - len(gone)
        self.dropped += len(gone)
        return gone or None

    def take(self) -> list[list[Any]]:
        """Remove the oldest entries, up to the limit by weight; return their items in order: values, weights, …."""
        if self._spill is not None:
            self._spill.refused = False  # the disk may take more by now
        if self._memory:
            flat, self._weight = list(self._memory), 0
            self._memory.clear()
        else:
            flat = self._spill.read(self.limit) if self._spill is not None else []
            self.in_memory = self._spill is None or not self._spill.entries
        columns = [flat[at :: self.width] for at in range(self.width)]
        self.count -= len(columns[0])
        return columns

    def close(self) -> None:
        """Forget what is in it."""
        self._memory.clear()
        self.count, self._weight, self.in_memory = 0, 0, True
        if self._spill is not None:
            self._spill.close()


class SharedBuffer(Generic[Value]):
    """A buffer that threads share: those that receive put into it, one takes out.

    An entry may have several records, which are counted. Arguments as those of `Buffer`.
    """

    def __init__(
        self, limit: int, on_full: OnFull, *, folder: Path | None = None, spill_bytes: int = SPILL_BYTES
    ) -> None:
        self.counts = BufferCounts()
        self._buffer = Buffer(limit, on_full, 3, folder=folder, spill_bytes=spill_bytes)
        lock = threading.Lock()
        self._lock, self._filled, self._room = lock, threading.Condition(lock), threading.Condition(lock)
        self._closed = False
        self._held = self._taken = 0  # records that are in it, and those that were taken last

    def put(self, value: Value, *, weight: int = 1, records: int = 1) -> bool:
        """Add an entry; waits for room where the buffer blocks. Return False if it was dropped, as by a closed one."""
        with self._lock:
            if self._buffer.is_full and not self._closed:
                self.counts.waited += 1
                while self._buffer.is_full and not self._closed:
                    self._room.wait()
            if self._closed:
                self.counts.dropped += records
            return self._put(value, weight, records)

    def offer(self, value: Value, *, weight: int = 1, records: int = 1) -> bool:
        """Add an entry, as `put`; but return False instead of waiting, and where it is closed, which is not counted."""
        with self._lock:
            if self._buffer.is_full:
                self.counts.waited += 1
                return False
            return self._put(value, weight, records)

    def _put(self, value: Value, weight: int, records: int) -> bool:
        if self._closed:
            return False
        spilled = self._buffer.spilled
        gone = self._buffer.put((value, weight, records))
        self.counts.spilled += records * (self._buffer.spilled - spilled)
        self._filled.notify()
        self._held += records
        if gone is None:
            return True
        lost = sum(each[2] for each in gone)
        self._held -= lost
        self.counts.dropped += lost
        return gone[-1][0] is not value

    def take(self, seconds: float) -> list[Value]:
        """Remove the oldest entries, up to the limit by weight; waits so long for the first one, and returns none.

        Whoever takes again has dealt with what was taken before: `drop` counts it no more.
        """
        with self._lock:
            self._taken = 0
            if not self._buffer.count and not self._closed:
                self._filled.wait(seconds)
            taken: list[Value]
            taken, _, records = self._buffer.take()
            self._taken = sum(records)
            self._held -= self._taken
            self._room.notify_all()
            if self._closed and not taken:
                self._buffer.close()
            return taken

    def drop(self) -> None:
        """Close it, and drop what is in it and what was taken last: whoever took it could not store it."""
        with self._lock:
            self.counts.dropped += self._held + self._taken
            self._held = self._taken = 0
            self._closed = True
            self._buffer.close()
            self._room.notify_all()
            self._filled.notify_all()

    def close(self) -> None:
        """Let nobody wait any longer; `put` drops, and `take` still returns what is in it, until it is empty."""
        with self._lock:
            self._closed = True
            self._room.notify_all()
            self._filled.notify_all()


class _Spill:
    """Entries whose values are in a file, in order. While the disk refuses to write they stay in memory."""

    def __init__(self, folder: Path | None, limit: int) -> None:
        self.folder = folder
        self.limit = limit
        self.refused = False
        self.entries: deque[tuple[int, Entry]] = deque()  # the bytes of the value, and the rest of the entry
        self.bytes = 0  # that were not read yet
        self._file: IO[bytes] | None = None
        self._start = self._end = 0  # of what is in the file
        self._unwritten = bytearray()  # follows it

    @property
    def is_full(self) -> bool:
        return self.refused or self.bytes >= self.limit

    def write(self, entry: Entry) -> None:
        packed = pickle.dumps(entry[0], pickle.HIGHEST_PROTOCOL)
        self._unwritten += packed
        self.bytes += len(packed)
        self.entries.append((len(packed), entry[1:]))
        if len(self._unwritten) >= _WRITE_BYTES:
            try:
                self._write_out()
            except OSError:
                self.refused = True

    def _write_out(self) -> None:
        if self._file is None:
            self._file = tempfile.TemporaryFile(dir=self.folder, buffering=0)  # noqa: SIM115 -- `close` closes it
        while self._unwritten:
            written = os.pwrite(self._file.fileno(), self._unwritten, self._end)
            self._end += written
            del self._unwritten[:written]

    def read(self, limit: int) -> list[Any]:
        """Return entries, one after the other as in memory; where the file cannot be read they stay in it.

        Raises:
            OSError: the file cannot be read.

        """
        size = weight = count = 0
        for length, rest in self.entries:
            weight += rest[0]
            if count and weight > limit:
                break
            size, count = size + length, count + 1
        packed, at = memoryview(self._bytes(size)), 0
        found: list[Any] = []
        for _ in range(count):
            length, rest = self.entries.popleft()
            found += (pickle.loads(packed[at : at + length]), *rest)  # noqa: S301 -- our own file
            at += length
        return found

    def _bytes(self, size: int) -> bytes:
        stored = b""
        of_file = min(size, self._end - self._start)
        while self._file is not None and len(stored) < of_file:
            more = os.pread(self._file.fileno(), of_file - len(stored), self._start + len(stored))
            if not more:
                raise OSError(errno.EIO, "the file of spilled records has become shorter")
            stored += more
        rest = bytes(self._unwritten[: size - len(stored)])
        del self._unwritten[: len(rest)]
        self._start += len(stored)
        self.bytes -= size
        if self._file is not None and self._start == self._end:
            self._start = self._end = 0
            with suppress(OSError):  # what is written next is written over it
                self._file.truncate(0)
        return stored + rest

    def close(self) -> None:
        self.entries.clear()
        self._unwritten.clear()
        if self._file is not None:
            self._file.close()
            self._file = None
        self._start = self._end = self.bytes = 0

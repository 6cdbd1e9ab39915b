"""Columns that follow from a frame's header alone: computed once, then shared by all reads while there is room.

So reading the same records again and again (a window over the newest ones, a join with a small topic) does not write
16 bytes a record each time. Like all Arrow arrays they are immutable.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from headrace.base.schema import TIMESTAMP

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

LIMIT = 64 << 20  # bytes in this process; the least recently used goes first
LEAST = 1_024
"""Arrays of fewer rows are made in a microsecond, and their objects take more memory than what is counted."""
_NUMBER = pa.int64()
_FALSE = pa.py_buffer(bytes(8_192))


class ArrayCache:
    """A cache of arrays, bounded in bytes; many threads may use it."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._size = 0
        self._arrays: OrderedDict[tuple[str, int, int], pa.Array] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: tuple[str, int, int], make: Callable[[int, int], pa.Array]) -> pa.Array:
        """Return the array of a key; if it is not cached, `make` computes it from the key's two numbers."""
        with self._lock:
            if key in self._arrays:
                self._arrays.move_to_end(key)
                return self._arrays[key]
        array = make(key[1], key[2])
        with self._lock:
            if key not in self._arrays:
                self._arrays[key] = array
                self._size += array.nbytes
            while self._size > self._limit:
                self._size -= self._arrays.popitem(last=False)[1].nbytes
        return array


_CACHE = ArrayCache(LIMIT)


def ascending(base: int, following: int) -> pa.Array:
    """Return the numbers [base, following)."""
    if following - base < LEAST:
        return _ascending(base, following)
    return _CACHE.get(("ascending", base, following), _ascending)


def instants(micros: int, rows: int) -> pa.Array:
    """Return an instant, repeated for each row."""
    if rows < LEAST:
        return _instants(micros, rows)
    return _CACHE.get(("instants", micros, rows), _instants)


def falses(rows: int) -> pa.Array:
    """Return false for each row."""
    enough = rows <= _FALSE.size * 8
    return pa.Array.from_buffers(pa.bool_(), rows, [None, _FALSE if enough else pa.py_buffer(bytes(-(-rows // 8)))])


def numbers(values: npt.NDArray[np.int64], kind: pa.DataType = _NUMBER) -> pa.Array:
    """Return whole numbers as an array of a type of 64 bits, without a copy.

    `pa.array` would import pandas where that is installed: a third of a second, at the first read of a process.
    """
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)])


def values_of(numbers: pa.Array) -> npt.NDArray[np.int64]:
    """Return the values of an array of 64-bit whole numbers or times without nulls, as a view; imports no pandas."""
    start = numbers.offset
    return np.frombuffer(numbers.buffers()[1], np.int64, start + len(numbers))[start:]


def _ascending(base: int, following: int) -> pa.Array:
    return numbers(np.arange(base, following, dtype=np.int64))


def _instants(micros: int, rows: int) -> pa.Array:
    return numbers(np.full(rows, micros, dtype=np.int64), TIMESTAMP)

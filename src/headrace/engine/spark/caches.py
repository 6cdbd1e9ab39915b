"""The databases that a worker of Spark keeps between tasks: caches of the state of an app's levels and shards."""

from __future__ import annotations

import os
from collections import OrderedDict
from contextlib import closing, contextmanager, suppress
from threading import Lock
from typing import TYPE_CHECKING

import duckdb

from headrace.base.temporary import cache_root
from headrace.engine.spark.planning import MOST_BYTES, SMALL_BYTES
from headrace.kernels.duck import IN_MEMORY, Duck

if TYPE_CHECKING:
    from collections.abc import Iterator

THREADS = os.cpu_count() or 1
"""How many shards of a small epoch run at the same time."""
MOST_CACHES = 2048
"""A small epoch uses one for each level of each shard; an empty one takes 50 kB."""
MOST_HOSTS = 8

Key = tuple[str, int, int]
"""App, level, shard."""


class Idle:
    """Caches that no task uses, with their bytes: the shards of a small epoch run in parallel."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Key, tuple[Duck, int]] = OrderedDict()
        self._bytes = 0
        self._lock = Lock()

    def take(self, key: Key) -> Duck | None:
        """Take a cache out; None if there is none, or another thread was faster."""
        with self._lock:
            return self._out(key) if key in self._kept else None

    def take_all(self, app_id: str) -> list[Duck]:
        """Take all caches of an app out."""
        with self._lock:
            return [self._out(key) for key in [*self._kept] if key[0] == app_id]

    def put(self, key: Key, duck: Duck, size: int) -> None:
        """Keep a cache, and close those that were not used for longest if they are too many or too large."""
        with self._lock:
            gone = [self._out(key)] if key in self._kept else []
            self._kept[key] = duck, size
            self._bytes += size
            while len(self._kept) > MOST_CACHES or self._bytes > MOST_BYTES:
                gone.append(self._out(next(iter(self._kept))))
        for old in gone:
            old.close()

    def __len__(self) -> int:
        return len(self._kept)

    def _out(self, key: Key) -> Duck:
        duck, size = self._kept.pop(key)
        self._bytes -= size
        return duck


IDLE = Idle()
_HOSTS: OrderedDict[str, Duck] = OrderedDict()
"""A database in this worker's memory, by app: others are opened beside it, which takes 1 ms, not 15."""
_hosting = Lock()


@contextmanager
def cache(app_id: str, level: int, shard: int, *, size: int = 0) -> Iterator[Duck]:
    """Yield a shard's cache: a small one stays in this worker's memory, a large one is a file on the local disk.

    Any worker may run any shard next. A cache knows the state file that it is equal to, and is updated from there to
    the epoch's state. So an old cache costs time, but is never wrong. `size`: the bytes of the tables in DuckDB and of
    the rows that arrived.
    """
    key = (app_id, level, shard if level else shard % THREADS)  # level 0 has no state
    kept = IDLE.take(key)
    if size > SMALL_BYTES:
        if kept is not None:
            kept.close()
        with closing(_open_file(app_id, level, shard)) as duck:
            yield duck
        return
    duck = kept or _beside(app_id)
    try:
        yield duck
    except BaseException:
        with suppress(duckdb.Error):  # a database that is broken cannot be closed, and the first error counts
            duck.close()
        _forget_broken(app_id)
        raise
    IDLE.put(key, duck, size)


def open_host(app_id: str) -> None:
    """Open the database beside which those of an app are, if it is not open: 16 ms and more."""
    with _hosting:
        _host(app_id)


def _beside(app_id: str) -> Duck:
    """Return a new database in memory, beside the others of its app."""
    with _hosting:  # shards of a small epoch run in parallel
        return Duck(IN_MEMORY, host=_host(app_id))


def _host(app_id: str) -> Duck:
    if app_id not in _HOSTS:
        _HOSTS[app_id] = Duck()
        if len(_HOSTS) > MOST_HOSTS:
            _forget(next(iter(_HOSTS)))
    _HOSTS.move_to_end(app_id)
    return _HOSTS[app_id]


def _forget_broken(app_id: str) -> None:
    """Forget the database of an app if a fatal error has ended it, with all that are beside it."""
    with _hosting:
        try:
            if app_id in _HOSTS:
                _HOSTS[app_id].run("SELECT 1")
        except duckdb.Error:
            _forget(app_id)


def _forget(app_id: str) -> None:
    for duck in [*IDLE.take_all(app_id), _HOSTS.pop(app_id)]:  # a cache in use finds out by itself that it is broken
        with suppress(duckdb.Error):
            duck.close()


def _open_file(app_id: str, level: int, shard: int) -> Duck:
    """Open a cache on the local disk, or a new one in memory while another attempt has the file open."""
    folder = cache_root() / app_id
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{level}-{shard}.duckdb"
    with _hosting:
        host = _host(app_id)
    try:
        return Duck(path, host=host)
    except duckdb.IOException:
        return Duck()
    except duckdb.Error:
        path.unlink(missing_ok=True)  # a damaged cache is replaced: it may be lost at any time
        return Duck(path, host=host)

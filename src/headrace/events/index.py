"""Where the events of each stream are in a partition, and how many a stream has: in memory, rebuilt from the topic.

Runs are sorted by the hash of the stream's name: 16 bytes an event. What was appended since is in dicts. A version is
read from the stream's last event when it is first needed, so two names with the same hash do no harm.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.base.hashing import hash_column
from headrace.events.event import STREAM, VERSION

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from headrace.log import Topic

MANY = 10_000
"""So many events at once become a run."""
MOST_RECENT = 10 * MANY
"""So many events in dicts become a run, and so many versions are remembered."""


class Run(NamedTuple):
    """Hashes of streams, sorted, and the offset of each event; those of a stream ascend."""

    hashes: npt.NDArray[np.uint64]
    offsets: npt.NDArray[np.int64]


class StreamIndex:
    """The index of one partition. Not for several threads at once."""

    def __init__(self, topic: Topic, partition: int) -> None:
        self.topic = topic
        self.partition = partition
        self.upto = topic.start_offsets()[partition]
        """Everything before this offset is in the index."""
        self.whole = self.upto == 0
        """Whether retention has removed nothing."""
        self.latest = 0
        """The latest time of an event, in microseconds: no event is recorded before it, whatever the clock says."""
        self._runs: list[Run] = []
        self._recent: dict[str, list[int]] = {}
        self._recent_count = 0
        self._versions: dict[str, int] = {}

    def catch_up(self) -> None:
        """Take in what was appended since, by other processes too."""
        end = self.topic.end_offsets()[self.partition]
        if end > self.upto:
            wanted = [STREAM, VERSION, "_offset", "at"]
            found = pa.Table.from_batches(self.topic.batches(self.partition, self.upto, end, columns=wanted))
            if found.num_rows:
                self._take_in(found)
                self.latest = max(self.latest, pc.max(found.column("at").cast(pa.int64())).as_py())
            self.upto = end

    def version(self, stream: str) -> int:
        """Return how many events a stream has."""
        known = self._versions.get(stream)
        if known is None:
            if len(self._versions) >= MOST_RECENT:
                self._versions = {}
            known = self._versions[stream] = next((row[1] for row in self._newest_first(stream)), 0)
        return known

    def offsets(self, stream: str) -> npt.NDArray[np.int64]:
        """Return where the events of a stream are, ascending; among them may be some of a stream of the same hash."""
        found = [run.offsets[slice(*_place(run, stream))] for run in self._runs]
        return np.concatenate([*found, np.array(self._recent.get(stream, []), np.int64)])

    def offset(self, stream: str, version: int) -> int | None:
        """Return where the event of a version is, None if it is not there; fast for the stream's newest events."""
        return next((offset for offset, found in self._newest_first(stream) if found == version), None)

    def note(self, stream: str, version: int, offset: int) -> None:
        """Take in an event that was appended at the end of the index."""
        self._recent.setdefault(stream, []).append(offset)
        self._recent_count += 1
        self._versions[stream] = version

    def settle(self) -> None:
        """Keep many events that were taken in one by one in less memory; call it now and then."""
        if self._recent_count >= MOST_RECENT:
            self._fold()

    def _take_in(self, events: pa.Table) -> None:
        if events.num_rows < MANY:
            rows = zip(*(events.column(name).to_pylist() for name in (STREAM, VERSION, "_offset")), strict=True)
            for stream, version, offset in rows:
                self.note(stream, version, offset)
            self.settle()
            return
        self._fold()
        self._add(_run(events.column(STREAM), events.column("_offset").to_numpy()))
        self._versions = {}

    def _fold(self) -> None:
        """Turn what is in dicts into a run; versions stay, as they are of the last events."""
        if self._recent:
            names = [name for name, places in self._recent.items() for _ in places]
            offsets = np.array([place for places in self._recent.values() for place in places], np.int64)
            order = np.argsort(offsets, kind="stable")
            self._add(_run(pa.array(names, pa.string()).take(pa.array(order)), offsets[order]))
            self._recent, self._recent_count = {}, 0

    def _add(self, run: Run) -> None:
        """Add the newest run. Each is more than twice as long as the next one: few runs, and few are merged."""
        self._runs.append(run)
        while len(self._runs) > 1 and len(self._runs[-2].offsets) <= 2 * len(self._runs[-1].offsets):
            self._runs[-2:] = [_merged(self._runs[-2:])]

    def _newest_first(self, stream: str) -> Iterator[tuple[int, int]]:
        """Yield offset and version of a stream's events, the newest first."""
        for offset in self.offsets(stream)[::-1]:
            found = self.topic.batches(self.partition, int(offset), int(offset) + 1, columns=[STREAM, VERSION])
            for row in pa.Table.from_batches(found).to_pylist():
                if row[STREAM] == stream:
                    yield int(offset), row[VERSION]


def _run(streams: pa.Array | pa.ChunkedArray, offsets: npt.NDArray[np.int64]) -> Run:
    hashes = hash_column(streams)
    order = np.argsort(hashes, kind="stable")
    return Run(hashes[order], offsets[order])


def _merged(runs: list[Run]) -> Run:
    hashes, offsets = (np.concatenate(parts) for parts in zip(*runs, strict=True))
    order = np.argsort(hashes, kind="stable")
    return Run(hashes[order], offsets[order])


def _place(run: Run, stream: str) -> tuple[int, int]:
    wanted = hash_column(pa.array([stream], pa.string()))[0]
    return int(np.searchsorted(run.hashes, wanted, "left")), int(np.searchsorted(run.hashes, wanted, "right"))

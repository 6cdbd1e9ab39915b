"""A batch of single records for one topic → one append to each partition, and a result for each record."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace.base.errors import HeadraceError, InvalidRows
from headrace.log import records
from headrace.log.appending.producers import NEVER, StaleSequence, identity
from headrace.log.appending.requests import check_partition, request_for
from headrace.log.appending.sent import Sent, fail, finish
from headrace.log.appending.together import run_all
from headrace.log.segments.frame import NO_PRODUCER

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from numpy.typing import NDArray

    from headrace.log.meta import Meta
    from headrace.log.open_topic import OpenTopic

    Indices = NDArray[np.int64]


@dataclass(slots=True)
class PendingRows:
    """Records to append to one topic, in the order in which they were sent, each with its future."""

    topic: OpenTopic
    rows: list[dict[str, Any]] = field(default_factory=list)
    futures: list[Sent] = field(default_factory=list)
    partitions: dict[int, int] = field(default_factory=dict)  # by index, where `send` was given one
    sequences: list[int] = field(default_factory=list)  # of all records, or none


class Numbering:
    """The identity of a producer that numbers its rows, and its last known sequence in each partition."""

    def __init__(self, producer: str) -> None:
        self.producer = identity(producer)
        self.reached: dict[tuple[str, int], int] = {}


@dataclass(slots=True)
class Delivery:
    """The result of a delivery: the futures that failed, the bytes written, and the first error of an append."""

    failed: list[Sent] = field(default_factory=list)
    bytes: int = 0
    refused: BaseException | None = None


def deliver(pending: PendingRows, numbering: Numbering | None, *, now: int) -> Delivery:
    """Append pending rows and finish their futures; only errors about the whole topic are raised."""
    meta = pending.topic.meta()
    delivery = Delivery()
    indices, table = _fitting(pending, meta, now, delivery)
    if not len(indices):
        return delivery
    table = pending.topic.privacy.seal(table, meta)
    groups = records.grouped(_partitions(pending, indices, table, meta))
    parts = [
        _PartitionRows(pending, indices[at], records.part_of(table, at), number=number, meta=meta, now=now)
        for number, at in groups.items()
    ]
    run_all(lambda part: part.append(numbering), parts, parallel=True)
    for part in parts:
        part.settle()
        delivery.bytes += part.bytes
        if part.error is not None:
            delivery.refused = delivery.refused or part.error
            delivery.failed += part.futures
    return delivery


# ---- which records, and where to -----------------------------------------------------------------------


def _fitting(pending: PendingRows, meta: Meta, now: int, delivery: Delivery) -> tuple[Indices, pa.Table]:
    """Return the indices of the rows that fit, and these rows as records; the futures of the others fail."""
    everything = np.arange(len(pending.rows), dtype=np.int64)
    wrong: dict[int, Exception] = {}
    for at, number in pending.partitions.items():
        try:
            check_partition(meta, number)
        except HeadraceError as error:
            wrong[at] = error
    if not wrong:
        try:
            return everything, records.as_records(pending.rows, meta, now=now)
        except Exception:  # noqa: BLE001, S110 - the rows to blame are found below
            pass
    wrong |= dict(_misfits(pending.rows, 0, meta, now))
    for at, why in wrong.items():
        fail([pending.futures[at]], why)
        delivery.failed.append(pending.futures[at])
    indices = np.array([at for at in range(len(pending.rows)) if at not in wrong], dtype=np.int64)
    return indices, records.as_records([pending.rows[at] for at in indices], meta, now=now)


def _misfits(rows: list[dict[str, Any]], first: int, meta: Meta, now: int) -> Iterator[tuple[int, Exception]]:
    """Yield each row that does not fit, with its error; searches by halving, since nearly all rows fit."""
    try:
        records.as_records(rows, meta, now=now)
    except Exception as error:  # noqa: BLE001 - a row may be any mapping and raise anything
        if len(rows) == 1:
            yield first, _of_one(error, meta)
            return
        half = len(rows) // 2
        yield from _misfits(rows[:half], first, meta, now)
        yield from _misfits(rows[half:], first + half, meta, now)


def _of_one(error: Exception, meta: Meta) -> Exception:
    """Return the error of a row that was converted alone, without its row number."""
    if not isinstance(error, InvalidRows):
        return error
    what = error.what.replace("rows[0]: ", "").replace("rows[0] ", "the row ")
    return InvalidRows(f'topic "{meta.name}": {what}', detail=error.detail, hint=error.hint)


def _partitions(pending: PendingRows, indices: Indices, table: pa.Table, meta: Meta) -> Indices:
    """Return each fitting record's partition."""
    if meta.key:
        chosen = records.partitions_of(table, meta.key, meta.partitions)
    elif pending.sequences:  # a retry must go to the partition of the first attempt
        chosen = np.array([pending.sequences[at] for at in indices], dtype=np.int64) % meta.partitions
    else:
        turn = pending.topic.next_turn(meta.partitions)
        chosen = np.full(len(indices), turn, dtype=np.int64)
    if pending.partitions:
        for index, at in enumerate(indices):
            chosen[index] = pending.partitions.get(int(at), chosen[index])
    return chosen


# ---- appending -----------------------------------------------------------------------------------------


class _PartitionRows:
    """The pending rows of one partition."""

    def __init__(
        self, pending: PendingRows, at: Indices, table: pa.Table, *, number: int, meta: Meta, now: int
    ) -> None:
        complete = len(at) == len(pending.rows)
        self.topic, self.number, self.table, self.meta, self.now = pending.topic, number, table, meta, now
        self.futures = pending.futures if complete else [pending.futures[i] for i in at]
        self.sequences = np.array([pending.sequences[i] for i in at] if pending.sequences else [], dtype=np.int64)
        self.bytes = 0
        self.repeated: list[Sent] = []  # those that an earlier attempt appended
        self.offsets = range(0)
        self.error: BaseException | None = None

    def append(self, numbering: Numbering | None) -> None:
        """Append them; the offsets or the error are stored for `settle`."""
        try:
            self.offsets = self._write() if numbering is None else self._write_fresh(numbering)
        except BaseException as error:  # noqa: BLE001 - the futures get it
            self.error = error

    def settle(self) -> None:
        """Finish the futures, in the producer's own thread: callbacks may use the producer."""
        finish(self.repeated, [None] * len(self.repeated))
        if self.error is None:
            finish(self.futures, self.offsets)
        else:
            fail(self.futures, self.error)

    def _write_fresh(self, numbering: Numbering) -> range:
        """Skip rows that the partition already has and append the others; repeat if it got more meanwhile."""
        topic_partition = self.topic.name, self.number
        while True:
            last = numbering.reached.get(topic_partition, NEVER)
            appended = int(np.searchsorted(self.sequences, last, side="right"))
            self.repeated += self.futures[:appended]
            self.futures, self.sequences, self.table = (
                self.futures[appended:],
                self.sequences[appended:],
                self.table.slice(appended),
            )
            if not self.futures:
                return range(0)
            try:
                offsets = self._write(numbering.producer, after=last)
            except StaleSequence as stale:
                numbering.reached[topic_partition] = stale.last
            else:
                numbering.reached[topic_partition] = int(self.sequences[-1])
                return offsets

    def _write(self, producer: bytes = NO_PRODUCER, *, after: int | None = None) -> range:
        request = request_for(self.table, self.meta, self.now)
        if after is not None:
            request.producer, request.sequence, request.after = producer, int(self.sequences[-1]), after
        self.bytes = sum(payload.length for payload in request.payloads)
        return self.topic.writer(self.number).append(request)

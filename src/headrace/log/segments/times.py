"""The time index: exact event times of offset ranges. It decodes only the batches at the bounds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from headrace.base.arguments import a_whole_number
from headrace.base.errors import ArchiveMissing, CorruptBatch, OffsetOutOfRange
from headrace.log.segments import payload as payloads
from headrace.log.segments.frame import HOLE, NO_MAX, NO_MIN, OFFSETS

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from headrace.log.segments.partition import Partition
    from headrace.log.segments.segment import Segment

    Decode = Callable[[Segment, int], pa.RecordBatch]


def extremes(
    partition: Partition, bounds: tuple[int, int], decode: Decode, event_time: str | None
) -> tuple[int | None, int | None]:
    """Return the least and greatest event time in the offsets [start, end), None if no record has one."""
    start, end = bounds
    state = partition.check(start, end)
    lows, highs = [NO_MIN], [NO_MAX]
    for segment, index, _ in partition.indexed(start, end, state):
        first = int(np.searchsorted(index["next"], start, side="right"))
        last = int(np.searchsorted(index["base"], end, side="left"))
        if first >= last:
            continue
        _refuse_holes(segment, index, first, last)
        cut = {number for number in (first, last - 1) if index["base"][number] < start or index["next"][number] > end}
        for number in cut:
            low, high = payloads.extremes(_inside(segment, number, bounds, decode=decode, event_time=event_time)[2])
            lows.append(low)
            highs.append(high)
        contained = index[first + (first in cut) : last - (last - 1 in cut)]
        if contained.size:
            lows.append(int(contained["min_time"].min()))
            highs.append(int(contained["max_time"].max()))
    low, high = min(lows), max(highs)
    return (None, None) if (low, high) == (NO_MIN, NO_MAX) else (low, high)


def overlapping(partition: Partition, bounds: tuple[int, int], since: int, until: int) -> list[range]:
    """Return the ranges of [start, end) that are in batches with event times in [since, until].

    Damaged batches are included, so that reading them raises.
    """
    start, end = bounds
    found: list[range] = []
    for _, index, reached in partition.indexed(start, end, partition.check(start, end)):
        behind = max(start, reached)
        inside = (index["next"] > behind) & (index["base"] < end)
        timely = (index["max_time"] >= since) & (index["min_time"] <= until)
        for number in np.flatnonzero(inside & (timely | (index["flags"] & HOLE != 0))):
            first, last = max(int(index["base"][number]), behind), min(int(index["next"][number]), end)
            if found and found[-1].stop == first:
                first = found.pop().start
            found.append(range(first, last))
    return found


def first_at(partition: Partition, time: int, decode: Decode, event_time: str | None) -> int:
    """Return the first offset whose event time is `time` or later; the end if there is none."""
    state = partition.state()
    bounds = state.start, state.end
    for segment, index, _ in partition.indexed(*bounds, state):
        inside = (index["next"] > state.start) & (index["base"] < state.end)
        for number in np.flatnonzero(inside & ((index["max_time"] >= time) | (index["flags"] & HOLE != 0))):
            at = int(number)
            _refuse_holes(segment, index, at, at + 1)
            found = _first_in(segment, at, time, bounds, decode=decode, event_time=event_time)
            if found is not None:
                return found
    return state.end


def appended(partition: Partition, bounds: tuple[int, int]) -> int | None:
    """Return when the first record of the offsets [start, end) was appended; None if none is there."""
    for _, index, reached in partition.indexed(*bounds, partition.check(*bounds)):
        found = np.flatnonzero((index["next"] > max(bounds[0], reached)) & (index["base"] < bounds[1]))
        if found.size:
            return int(index["append_time"][found[0]])
    return None


def mark(partition: Partition, offset: int) -> str | None:
    """Return what tells the batch with the record before an offset from any other; None if it is not as appended."""
    a_whole_number(offset, "offset")
    state = partition.state()
    if not state.start < offset <= state.end:
        return None
    try:
        for segment, index, _ in partition.indexed(offset - 1, offset, state):
            at = int(np.searchsorted(index["next"], offset, side="left"))
            if at < len(index) and not index["flags"][at] & (HOLE | OFFSETS):
                frame = segment.frame(at)
                return f"{frame.base}-{frame.append_time}-{frame.payload_crc:08x}"
    except (OffsetOutOfRange, ArchiveMissing, CorruptBatch, OSError):  # whoever reads the record says so
        return None
    return None


def _first_in(
    segment: Segment, number: int, time: int, bounds: tuple[int, int], *, decode: Decode, event_time: str | None
) -> int | None:
    offsets, first, found = _inside(segment, number, bounds, decode=decode, event_time=event_time)
    late = found.view(pa.int64()).fill_null(NO_MAX).to_numpy() >= time
    if not late.any():
        return None
    return int(offsets[first + int(late.argmax())].as_py())


def _inside(
    segment: Segment, number: int, bounds: tuple[int, int], *, decode: Decode, event_time: str | None
) -> tuple[pa.Array, int, pa.Array]:
    """Return a frame's offsets, the index of the first one in the bounds, and the event times in the bounds."""
    frame, batch = segment.frame(number), decode(segment, number)
    first, count = payloads.cut(batch, frame, *bounds)
    return payloads.offsets(batch, frame), first, payloads.times(batch, frame, event_time).slice(first, count)


def _refuse_holes(segment: Segment, index: NDArray[np.void], first: int, last: int) -> None:
    holes = np.flatnonzero(index["flags"][first:last] & HOLE)
    if holes.size:
        raise segment.corrupt(segment.frame(first + int(holes[0])), "no valid batch starts here")

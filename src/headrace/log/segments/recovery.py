"""Recovery: which records of a partition's files count. It reads the files and changes nothing.

It starts at the newest valid slot of the head. Complete appends after it are accepted: they were written, perhaps not
acknowledged. At the first bytes that are not a frame, one question decides: does a later frame say that the disk had
already confirmed this position? If so, these are damaged records; they stay, marked as damaged, and nothing after
them is lost. If not, this is the torn tail of an append that was never acknowledged, and the log ends here.

Where the files end before the head, acknowledged records are lost: their offsets are not used again, reading them is
an error, and nothing is appended before somebody gives them up. Only a log without fsync may lose them by a power loss;
the boot's identity in the head tells that there was one.
"""

from __future__ import annotations

import mmap
from typing import TYPE_CHECKING, NamedTuple

from headrace.log.segments import frame as framing
from headrace.log.segments import layout as layouts
from headrace.log.segments.frame import END
from headrace.log.segments.head import BOOT, NO_SEGMENT, PartitionState
from headrace.log.segments.segment import segment_path

if TYPE_CHECKING:
    from pathlib import Path

    from headrace.log.segments.layout import Layout


class Survey(NamedTuple):
    """The state that the segments hold, the acknowledged offsets that they lost at their end, and what is before."""

    state: PartitionState
    lost: range
    intact: PartitionState


def survey(folder: Path, slot: PartitionState | None, *, durable: bool = True) -> Survey:
    """Survey a partition, `slot` being the newest state that the head has; reads only.

    `durable`: whether the log survives power losses.
    """
    intact = _intact(folder, slot)
    if slot is None or (slot.boot != BOOT and not durable):
        return Survey(intact, range(0), intact)
    before = intact
    if slot.segment != NO_SEGMENT and intact.segment == NO_SEGMENT and intact.end == slot.end:
        first = max(slot.segment, layouts.read(folder).upto)  # its file is missing, unless a cleaning replaced it
        before = intact._replace(segment=first, end=first)
    lost = range(before.end, slot.end)
    if not lost:
        return Survey(intact, lost, intact)
    ended = slot._replace(segment=NO_SEGMENT, position=0, frames=0, layout=slot.layout + 1, boot=BOOT)
    return Survey(ended._replace(start=intact.start), lost, before)


def _intact(folder: Path, slot: PartitionState | None) -> PartitionState:
    """Return the state that the segments hold."""
    layout, bases = layouts.listed(folder)
    state = _starting_point(folder, slot, layout, bases)
    for base in bases:
        if base < (state.segment if state.segment != NO_SEGMENT else state.end):
            continue
        if base != state.segment:
            if base != state.end:
                break
            state = state._replace(segment=base, position=0, frames=0, layout=state.layout + 1)
        state, complete = _read_on(folder, state)
        if not complete:
            break
    if slot is not None and state.end < slot.end:
        state = state._replace(layout=state.layout + 1)
    return state._replace(boot=BOOT, start=max(state.start, layout.start))


def is_complete(folder: Path, slot: PartitionState) -> bool:
    """Tell whether the files end where the slot says that they end."""
    layout, bases = layouts.listed(folder)
    if slot.segment == NO_SEGMENT:
        return not bases and slot.end == layout.upto
    if not bases or bases[-1] != slot.segment:
        return False
    return segment_path(folder, slot.segment).stat().st_size == slot.position


def _starting_point(folder: Path, slot: PartitionState | None, layout: Layout, bases: list[int]) -> PartitionState:
    """Return the last state that is certain."""
    if slot is None:
        start = layout.start if layout.version else bases[0] if bases else 0
        if not bases:
            return PartitionState(end=layout.upto, start=start)
        return PartitionState(end=bases[-1], segment=bases[-1], start=start)
    if max(slot.segment, slot.end if slot.segment == NO_SEGMENT else 0) < layout.upto:  # older than the last cleaning
        return slot._replace(end=layout.upto, segment=NO_SEGMENT, position=0, frames=0, layout=slot.layout + 1)
    if slot.segment == NO_SEGMENT:
        return slot
    if slot.segment not in bases:  # lost with its acknowledged records: their offsets are not used again
        return slot._replace(segment=NO_SEGMENT, position=0, frames=0, layout=slot.layout + 1)
    if segment_path(folder, slot.segment).stat().st_size < slot.position:
        return slot._replace(end=slot.segment, position=0, frames=0)
    return slot


def _read_on(folder: Path, state: PartitionState) -> tuple[PartitionState, bool]:
    """Return the state after the last complete append of its segment, and whether the segment ends there."""
    path = segment_path(folder, state.segment)
    size = path.stat().st_size
    if size <= state.position:
        return state, True
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        return _accept(data, state, len(data))


def _accept(data: mmap.mmap, state: PartitionState, size: int) -> tuple[PartitionState, bool]:
    position, offset, count = state.position, state.end, state.frames
    while position < size:
        frame = framing.parse(data, position)
        if frame is not None and frame.base == offset and _is_whole(data, frame):
            position, offset, count = frame.end, frame.next, count + 1
            if frame.flags & END:
                state = state._replace(position=position, end=offset, frames=count)
            continue
        later = list(framing.following(data, position, size))
        if not any(frame.synced > position for frame in later):
            break
        position, offset, count = later[0].position, later[0].base, count + 1
    return state, state.position == size


def _is_whole(data: mmap.mmap, frame: framing.Frame) -> bool:
    with memoryview(data) as view:
        return framing.payload_is_whole(view, frame)

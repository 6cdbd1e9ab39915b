"""Offsets are valid for one source only: what an app reads must be what it has read so far."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.base.outside import OffsetsBeyondEnd, SourceChanged, SourceDiverged, SourceReplaced

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from headrace.connect.source import OffsetRange
    from headrace.engine.input import Input
    from headrace.engine.inputs import Inputs
    from headrace.engine.storage import Commit, SourceProgress, Storage
    from headrace.kernels.task import Report

SOURCES = "sources.json"
"""The file with the identity of each source."""


def agree_on_sources(storage: Storage, inputs: Mapping[str, Input], last: Commit | None) -> None:
    """Refuse to go on with the offsets of another source; called before anything is created.

    Raises:
        SourceChanged: a step reads something else.
        SourceReplaced: what it has read was deleted, perhaps created again.

    """
    identities = {step: bound.source.identity for step, bound in inputs.items() if bound.source is not None}
    stored = storage.read_json(SOURCES) or {}
    for step, now in identities.items():
        was = stored.get(step, now)
        if was != now and _progress(step, last) is not None:
            raise SourceChanged(step, was=was, now=now)
    check_instances(inputs, last)
    if stored != stored | identities:
        storage.write_json(SOURCES, stored | identities)


def check_instances(inputs: Mapping[str, Input], last: Commit | None) -> dict[str, str | None]:
    """Return which source of its identity each step reads now (`Source.instance`).

    Raises:
        SourceReplaced: it is not the one whose offsets the commit has.

    """
    now = {step: bound.source.instance() for step, bound in inputs.items() if bound.source is not None}
    for step, instance in now.items():
        progress = _progress(step, last)
        if progress is not None and None not in (progress.instance, instance) and progress.instance != instance:
            read = sum(progress.offsets.values())
            raise SourceReplaced(f'the topic "{inputs[step].shape.topic}"', gone=instance == "", read=read)
    return now


def check_offsets(inputs: Inputs, last: Commit | None) -> None:
    """Refuse to go on where a source ends before what was read of it, or has other records; called at the start.

    Raises:
        OffsetsBeyondEnd: the source was restored from an older copy, or has lost records.
        SourceDiverged: the same, and it has grown since.

    """
    for step, bound in inputs.inputs.items():
        progress = _progress(step, last)
        if progress is None or bound.source is None:
            continue
        ends = inputs.bounds_of(step).end
        for partition, read in progress.offsets.items():
            if ends.get(partition, read) < read:
                raise OffsetsBeyondEnd(bound.shape.topic, partition, read=read, end=ends[partition])
            if differs(inputs, step, partition, progress):
                raise SourceDiverged(bound.shape.topic, partition, read=read)


def keep_marks(sources: Mapping[str, SourceProgress], ranges: Iterable[OffsetRange], reports: Iterable[Report]) -> None:
    """Replace the marks of what was read: by what the task that read up to the new offset says, if it knows."""
    for offsets in ranges:
        sources[offsets.source].marks.pop(offsets.partition, None)
    for report in reports:
        for step, marks in report.marks.items():
            ends = sources[step].offsets
            sources[step].marks |= {p: mark for p, (end, mark) in marks.items() if ends.get(p) == end}


def differs(inputs: Inputs, step: str, partition: str, progress: SourceProgress) -> bool:
    """Whether the record before an offset is known not to be the one that was read."""
    was = progress.marks.get(partition)
    now = None if was is None else inputs.reader(step).mark(partition, progress.offsets[partition])
    return now is not None and now != was


def _progress(step: str, last: Commit | None) -> SourceProgress | None:
    """Return how far a step has read; None if it has read nothing."""
    progress = last.sources.get(step) if last is not None else None
    return progress if progress is not None and progress.offsets else None

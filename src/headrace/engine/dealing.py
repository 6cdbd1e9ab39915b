"""How an epoch's records are dealt out: to the tasks of a stage, or to the threads of one process."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.connect.source import total_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.connect.source import OffsetRange

FEW_ROWS = 20_000
"""One task reads an epoch of fewer rows: a second one costs more than it saves."""


def dealt(ranges: Sequence[OffsetRange], most: int) -> list[list[OffsetRange]]:
    """Return the ranges of each task: of one where the rows are few, else of at most so many."""
    return packed(ranges, most) if most > 1 and total_rows(ranges) > FEW_ROWS else [list(ranges)]


def packed(ranges: Sequence[OffsetRange], most: int) -> list[list[OffsetRange]]:
    """Return the ranges of at most so many tasks, of about equal rows, in order.

    Few large tasks rather than one for each partition: each task sends a partial group of every key that it has.
    """
    room = size = -(-total_rows(ranges) // most)
    parts: list[list[OffsetRange]] = [[]]
    for each in ranges:
        rest: OffsetRange | None = each
        while rest is not None:
            if room <= 0 and len(parts) < most:
                parts.append([])
                room = size
            fits = rest.rows <= room or len(parts) == most
            chosen = rest if fits else replace(rest, end=rest.start + room)
            parts[-1].append(chosen)
            room -= chosen.rows
            rest = replace(rest, start=chosen.end) if chosen.end < rest.end else None
    return parts

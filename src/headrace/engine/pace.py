"""How many rows an epoch may read: as many as fit the target time, measured from epoch to epoch."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from headrace.base.dead_letters import CAUSES, MOST_CAUSES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import pyarrow as pa

TARGET_SECONDS = 3.0
LEAST_ROWS = 1_000
FIRST_ROWS = 8_000_000
"""The first epoch reads at most so many rows: nobody knows yet how long they take."""
MOST_ROWS = 16_000_000
MOST_BYTES = 384 * 1024 * 1024
"""An epoch reads at most about so many bytes, by the width of its columns; text counts as 64 bytes a value."""
STEP = 2.0
"""The limit at most doubles or halves from one epoch to the next, so one slow epoch does not slow the next ten."""
SMALL_ROWS = 1 << 17
"""One task runs an epoch of so few rows faster than several stages on a cluster; other machines are idle meanwhile."""
SMALL_ROWS_OF_ONE_MACHINE = MOST_ROWS
"""The same where Spark has this machine alone: the threads of one task use as many cores as the tasks of a stage."""
SMALL_ROWS_OF_ONE_THREAD = 1 << 20
"""The same where one thread of a task does what the tasks of a stage do on all cores: it decodes records, and calls
functions of the user's."""
_WIDE = 64
_UNLIKE = 1.5
"""Epochs of unlike size, and unlike costs of a row, differ by this factor."""


class Took(NamedTuple):
    """What an epoch read, and how long it took."""

    rows: int
    seconds: float


def first_rows(schemas: Iterable[pa.Schema]) -> int:
    """Return how many rows of the widest of the schemas the first epoch may have."""
    return min(FIRST_ROWS, most_rows(schemas))


def most_rows(schemas: Iterable[pa.Schema]) -> int:
    """Return how many rows of the widest of the schemas any epoch may have."""
    widest = max((sum(_width(field.type) for field in schema) for schema in schemas), default=1)
    return max(LEAST_ROWS, min(MOST_ROWS, MOST_BYTES // max(widest, 1)))


def _width(kind: pa.DataType) -> int:
    try:
        return max(1, int(kind.bit_width) // 8)
    except ValueError:
        return _WIDE


def next_limit(limit: int, last: Took, *, before: Took, most: int) -> int:
    """Return the limit of the epoch after `last`, which ran under `limit`; `before` is the one before it.

    An epoch with less than half of its limit cannot raise it, since more rows were not tried; it can lower it. One that
    takes too long however few rows it has doubles it: what it costs is not its rows (a step that looks through its
    state, say), so fewer of them would only mean more such epochs.
    """
    if last.rows == 0 or last.seconds <= 0:
        return limit
    if last.seconds > TARGET_SECONDS and mostly_fixed(before, last):
        return int(min(limit * STEP, most))
    fits = last.rows / last.seconds * TARGET_SECONDS
    if last.rows < limit / 2 and fits > last.rows:
        return limit
    bounded = min(max(fits, limit / STEP), limit * STEP)
    return int(min(max(bounded, LEAST_ROWS), most))


def mostly_fixed(one: Took, other: Took) -> bool:
    """Whether a row cost so much more in the smaller of two epochs that rows are the smaller part of their cost."""
    less, more = sorted((one, other))
    if not less.rows or more.rows < _UNLIKE * less.rows:
        return False
    return less.seconds / less.rows >= _UNLIKE * more.seconds / more.rows


def share(unread: Sequence[int], limit: int) -> list[int]:
    """Return how many unread rows of each partition an epoch reads: equal shares; what one lacks goes to the others."""
    taken = [0] * len(unread)
    left = limit
    while left > 0:
        open_ = [i for i, rows in enumerate(unread) if taken[i] < rows]
        if not open_:
            break
        part = max(1, left // len(open_))
        for i in open_:
            more = min(part, unread[i] - taken[i], left)
            taken[i] += more
            left -= more
    return taken


def with_publishing(seconds: float, rows: int, last: tuple[int, float]) -> float:
    """Return the seconds of an epoch including publishing, which is estimated by the time a row took in the last one.

    Args:
        seconds: how long the epoch took so far.
        rows: the number of its rows.
        last: the rows of the last published epoch, and the seconds that publishing took.

    """
    last_rows, last_seconds = last
    return seconds + (last_seconds * rows / last_rows if last_rows else 0.0)


def add_counts(
    totals: Mapping[str, Mapping[str, int]], new: Mapping[str, Mapping[str, int]]
) -> dict[str, dict[str, int]]:
    """Return running totals with an epoch's counts added; `state_rows` is a level, not a sum."""
    added = {step: dict(counts) for step, counts in totals.items()}
    for step, counts in new.items():
        total = added.setdefault(step, {})
        for name, value in counts.items():
            total[name] = value if name == "state_rows" else total.get(name, 0) + value
        if step.startswith(CAUSES) and len(total) > MOST_CAUSES:
            added[step] = dict(sorted(total.items(), key=lambda cause: -cause[1])[:MOST_CAUSES])
    return added

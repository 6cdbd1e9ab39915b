"""How many rows an epoch may take: as many as fit the target time, found by trying."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import pyarrow as pa

TARGET_SECONDS = 3.0
LEAST_ROWS = 1_000
MOST_ROWS = 4_000_000
MOST_BYTES = 256 * 1024 * 1024
"""An epoch holds at most about so much input, by the width of its columns: text is taken for 64 bytes a value."""
STEP = 2.0
"""An epoch's bound at most doubles or halves, so that one slow epoch does not choke the next ten."""
SMALL_ROWS = 32_768
"""An epoch of so few rows is done sooner by one task than by the stages that would spread it."""
_WIDE = 64


def most_rows(schemas: Iterable[pa.Schema]) -> int:
    """Return how many rows of the widest of some schemas an epoch may have; the first epoch begins with it."""
    widest = max((sum(_width(field.type) for field in schema) for schema in schemas), default=1)
    return max(LEAST_ROWS, min(MOST_ROWS, MOST_BYTES // max(widest, 1)))


def _width(kind: pa.DataType) -> int:
    try:
        return max(1, int(kind.bit_width) // 8)
    except ValueError:
        return _WIDE


def next_limit(limit: int, rows: int, seconds: float, *, most: int) -> int:
    """Return the next epoch's bound after one that took `rows` in `seconds` under `limit`.

    An epoch that did not fill its bound says nothing about more rows; only its slowness counts.
    """
    if rows == 0 or seconds <= 0:
        return limit
    fits = rows / seconds * TARGET_SECONDS
    if rows < limit / 2 and fits > rows:
        return limit
    bounded = min(max(fits, limit / STEP), limit * STEP)
    return int(min(max(bounded, LEAST_ROWS), most))


def share(unread: Sequence[int], limit: int) -> list[int]:
    """Return how many of each partition's unread rows an epoch takes: equal parts, what one leaves to the others."""
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
    """Return how long an epoch takes with its publishing, which is still to come: as long a row as the last time.

    Args:
        seconds: how long it took so far.
        rows: how many it has.
        last: the rows of the last epoch that was published, and the seconds that this took.

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
    return added

"""SQL for the rows of two sides that agree in columns and are near in time, also where a key has very many rows.

DuckDB finds partners by the equal columns and then looks at each one's time. Where rows span much more time than they
may be apart, that would be far too many for a key with many rows: so a bucket of time is one more equal column. Each
row that came is put into the buckets in which its partners may be, one or two; each partner is in one.
"""

from __future__ import annotations

from dataclasses import dataclass

_INTERVALS = 4
"""How many intervals long a bucket is: so many times too much is looked at, one row in so many is in two buckets."""
_SPAN = 2
"""Rows that span no more buckets than this need none."""


@dataclass(frozen=True, slots=True)
class Came:
    """Rows of a side that came: SQL to select from, the column of their time, the least and the greatest of it."""

    rows: str
    time: str
    first: int
    last: int


def band_lookup(came: Came, others: str, time: str, within: tuple[int, int], agree: str) -> str:
    """Return what follows FROM: each row that came with those of `others` whose `time` - its time is in `within`."""
    low, high = within
    width = _INTERVALS * (high - low) + 1
    apart = f"{time} - {came.time} BETWEEN {low} AND {high}"
    if came.last - came.first <= _SPAN * width:
        return f"{came.rows} JOIN {others} ON {agree} AND {apart}"
    base = came.first + low
    begins, ends = (f"({came.time} - {base - end}) // {width}" for end in (low, high))
    placed = f"(SELECT *, {begins} AS _at FROM {came.rows} UNION ALL "
    placed += f"SELECT *, {ends} FROM {came.rows} WHERE {ends} <> {begins})"
    partners = f"(SELECT *, ({time} - {base}) // {width} AS _in FROM {others})"
    return f"{placed} JOIN {partners} ON {agree} AND _at = _in AND {apart}"


def reachable(came: Came, within: tuple[int, int]) -> tuple[int, int]:
    """Return the least and the greatest time of a partner that some row that came may be near to."""
    return came.first + within[0], came.last + within[1]

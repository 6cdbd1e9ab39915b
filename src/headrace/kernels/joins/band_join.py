"""SQL for the rows of two sides that have equal columns and times within an interval, also for keys with many rows.

DuckDB finds partners by the equal columns and then compares times. Where rows span much more time than the interval,
that would be far too many for a key with many rows: so a bucket of time is one more equal column. Each probe row is put
into the buckets in which its partners may be, one or two; each partner is in one.
"""

from __future__ import annotations

from dataclasses import dataclass

_INTERVALS = 4
"""How many intervals long a bucket is: so many times too much is looked at, one row in so many is in two buckets."""
_SPAN = 2
"""Rows that span no more buckets than this need none."""


@dataclass(frozen=True, slots=True)
class Probe:
    """Rows to find partners for: SQL to select from, the column of their time, the least and the greatest of it."""

    rows: str
    time: str
    first: int
    last: int


def band_join(probe: Probe, others: str, time: str, within: tuple[int, int], condition: str) -> str:
    """Return what follows FROM: each probe row with those of `others` whose `time` less its own is in `within`."""
    low, high = within
    width = _INTERVALS * (high - low) + 1
    in_band = f"{time} - {probe.time} BETWEEN {low} AND {high}"
    if probe.last - probe.first <= _SPAN * width:
        return f"{probe.rows} JOIN {others} ON {condition} AND {in_band}"
    base = probe.first + low
    begins, ends = (f"({probe.time} - {base - end}) // {width}" for end in (low, high))
    bucketed = f"(SELECT *, {begins} AS _at FROM {probe.rows} UNION ALL "
    bucketed += f"SELECT *, {ends} FROM {probe.rows} WHERE {ends} <> {begins})"
    partners = f"(SELECT *, ({time} - {base}) // {width} AS _in FROM {others})"
    return f"{bucketed} JOIN {partners} ON {condition} AND _at = _in AND {in_band}"


def reachable(probe: Probe, within: tuple[int, int]) -> tuple[int, int]:
    """Return the least and the greatest time that a partner of a probe row may have."""
    return probe.first + within[0], probe.last + within[1]

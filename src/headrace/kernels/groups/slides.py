"""The arithmetic of sliding windows, as SQL over microseconds.

A window is identified by its end: `[end - size, end]`. Each time at which a group has rows ends one; another ends
`size` and a microsecond later, the first without these rows. Any other end has the same rows as one of these.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.kernels.state.tables import COUNT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.kernels.aggregates.aggregate_spec import Accumulator
    from headrace.kernels.groups.windows import Sliding


@dataclass(frozen=True, slots=True)
class SlideSql:
    """SQL about the windows of one step."""

    sliding: Sliding

    @property
    def reach(self) -> int:
        """How far after a row the last window that depends on it ends: the first one without it."""
        return self.sliding.size + 1

    def start(self, end: str) -> str:
        """Return the start of the window that ends at `end`."""
        return f"({end} - {self.sliding.size})"

    def open_end(self, watermark: int) -> int:
        """Return the least end that a window open at a watermark may have."""
        return watermark - self.sliding.grace

    def begun(self, time: str, watermark: int) -> str:
        """Return whether a row's own window, that ends with it, is closed at a watermark."""
        return f"({time} < {self.open_end(watermark)})"

    def gone(self, time: str, watermark: int) -> str:
        """Return whether every window that a row may be in is closed at a watermark."""
        return f"({time} < {self.open_end(watermark) - self.sliding.size})"

    def forgotten(self, time: str, watermark: int) -> str:
        """Return whether no open window has a row, or exists because of it."""
        return f"({time} < {self.open_end(watermark) - self.reach})"

    def of_rows(self, rows: str, keys: Sequence[str], accumulators: Sequence[Accumulator]) -> str:
        """Return the windows of kept rows, one row a time: keys, `_window`, `_time`, `_n` and accumulators.

        A row says by `_from` and `_to` which ends to compute around it; all rows of these windows must be there.
        """
        by = f"PARTITION BY {', '.join(keys)} " if keys else ""
        frames = (
            f"own_ AS ({by}ORDER BY _pane RANGE BETWEEN {self.sliding.size} PRECEDING AND CURRENT ROW), "
            f"next_ AS ({by}ORDER BY _pane RANGE BETWEEN 1 FOLLOWING AND {self.reach} FOLLOWING)"
        )
        columns = [*keys, "_pane", "_from", "_to", "last_value(_pane) OVER next_ AS next_last"]
        for frame in ("own_", "next_"):
            columns.append(f"(sum({COUNT}) OVER {frame})::BIGINT AS {frame}n")
            columns += [
                f"{accumulator.finish.format(f=f'{accumulator.fold}(p{i}) OVER {frame}')} AS {frame}{i}"
                for i, accumulator in enumerate(accumulators)
            ]
        following = f"(_pane + {self.reach})"
        own, next_ = (_picked(*pair, keys, accumulators) for pair in (("own_", "_pane"), ("next_", following)))
        return (
            f"WITH framed AS MATERIALIZED (SELECT {', '.join(columns)} FROM {rows} WINDOW {frames}) "
            f"SELECT {own} FROM framed WHERE _pane BETWEEN _from AND _to UNION ALL "
            f"SELECT {next_} FROM framed WHERE next_last < {following} AND {following} BETWEEN _from AND _to"
        )

    def runs(self, changes: str, keys: Sequence[str]) -> str:
        """Return changes with `_first`, where their run begins: the change that shares no row with those before."""
        by = (f"PARTITION BY {', '.join(keys)} " if keys else "") + "ORDER BY _pane"
        begins = f"CASE WHEN _pane - lag(_pane) OVER ({by}) <= {2 * self.reach} THEN NULL ELSE _pane END"
        marked = f"SELECT *, {begins} AS _begins FROM {changes}"
        return f"SELECT * EXCLUDE (_begins), max(_begins) OVER ({by}) AS _first FROM ({marked})"

    def bucket(self, time: str) -> str:
        """Return the stretch of time that an instant is in: a window touches one or two of them."""
        return f"(({time}) // {self.reach})"

    def buckets(self, first: str, last: str) -> str:
        """Return a list of the stretches from one instant to another."""
        return f"range({self.bucket(first)}, {self.bucket(last)} + 1)"


def _picked(frame: str, end: str, keys: Sequence[str], accumulators: Sequence[Accumulator]) -> str:
    columns = [f"{frame}n AS {COUNT}", *(f"{frame}{i} AS p{i}" for i in range(len(accumulators)))]
    return ", ".join([*keys, f"{end} AS _window", f"{end} AS _time", *columns])

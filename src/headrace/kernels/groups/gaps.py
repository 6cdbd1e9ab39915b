"""The arithmetic of sessions, as SQL over microseconds.

A *chunk* is a session of some rows alone: rows of a group of which each is within the gap of the next. It is identified
by the time of its first row. Whatever rows follow, those of a chunk stay in one session.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.kernels.groups.windows import Session

CHUNK = "_headrace_chunk"
"""The column that a row's chunk is in, in addition to the user's own."""
FIRST = "_first"
"""The column that says where the session of a span begins."""
_BEGINS = "_headrace_begins"


@dataclass(frozen=True, slots=True)
class SessionSql:
    """SQL about the sessions of one step."""

    session: Session

    def closed(self, last: str, watermark: int) -> str:
        """Return whether a session whose last row is at `last` is closed: its last moment is in it."""
        return f"({last} < {self.open_from(watermark)})"

    def open_from(self, watermark: int) -> int:
        """Return the least time of a last row whose session is open at a watermark."""
        return watermark - self.session.grace - self.session.gap

    def end(self, last: str) -> str:
        """Return the end of a session whose last row is at `last`."""
        return f"({last} + {self.session.gap})"

    def chunked(self, rows: str, keys: Sequence[str]) -> str:
        """Return a relation of rows with their chunks: `_time` no more than the gap behind the row before."""
        return f"({self._runs(rows, keys, at='_time', reached='lag(_time)', frame='', name=CHUNK)})"

    def islands(self, spans: str, keys: Sequence[str]) -> str:
        """Return spans from `_pane` to `_last` with `_first`, the start of the session that they make together."""
        frame = " ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING"
        return self._runs(f"({spans})", keys, at="_pane", reached="max(_last)", frame=frame, name=FIRST)

    def _runs(self, rows: str, keys: Sequence[str], *, at: str, reached: str, frame: str, name: str) -> str:
        """Return rows with the `at` where their run begins: one that is more than the gap behind all before it.

        `reached`, over the frame of the rows before, says how far those reach. Rows of one `at` are peers: all see the
        one that begins.
        """
        by = (f"PARTITION BY {', '.join(keys)} " if keys else "") + f"ORDER BY {at}"
        begins = f"CASE WHEN {at} - {reached} OVER ({by}{frame}) <= {self.session.gap} THEN NULL ELSE {at} END"
        marked = f"SELECT *, {begins} AS {_BEGINS} FROM {rows}"
        return f"SELECT * EXCLUDE ({_BEGINS}), max({_BEGINS}) OVER ({by}) AS {name} FROM ({marked})"

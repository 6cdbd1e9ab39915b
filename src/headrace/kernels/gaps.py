"""The arithmetic of sessions, as SQL over microseconds.

A *chunk* is a session of some rows alone: rows of a group of which each is within the gap of the next. It is known by
the time of its first row. Whatever else comes, the rows of a chunk stay in one session.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.kernels.spec import Session

CHUNK = "_headrace_chunk"
"""The column that a row's chunk is in, beside the user's own."""
_BEGINS = "_headrace_begins"


@dataclass(frozen=True, slots=True)
class SessionSql:
    """SQL about the sessions of one step."""

    session: Session

    def closed(self, last: str, watermark: int) -> str:
        """Return whether a session whose last row is at `last` is closed: its last moment is in it."""
        return f"({last} < {watermark - self.session.grace - self.session.gap})"

    def end(self, last: str) -> str:
        """Return the end of a session whose last row is at `last`."""
        return f"({last} + {self.session.gap})"

    def chunked(self, rows: str, keys: Sequence[str]) -> str:
        """Return a relation of rows with their chunks: `_time` no more than the gap behind the row before."""
        by = _partition(keys)
        before = f"lag(_time) OVER ({by}ORDER BY _time)"
        begins = f"CASE WHEN _time - {before} <= {self.session.gap} THEN NULL ELSE _time END"
        marked = f"SELECT *, {begins} AS {_BEGINS} FROM {rows}"
        first = f"max({_BEGINS}) OVER ({by}ORDER BY _time)"
        return f"(SELECT * EXCLUDE ({_BEGINS}), {first} AS {CHUNK} FROM ({marked}))"

    def islands(self, spans: str, keys: Sequence[str]) -> str:
        """Return spans from `_pane` to `_last` with `_first`, the start of the session that they make together."""
        by = _partition(keys)
        reached = f"max(_last) OVER ({by}ORDER BY _pane ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)"
        begins = f"CASE WHEN _pane - {reached} <= {self.session.gap} THEN NULL ELSE _pane END"
        marked = f"SELECT *, {begins} AS {_BEGINS} FROM ({spans})"
        first = f"max({_BEGINS}) OVER ({by}ORDER BY _pane)"  # spans of one start are peers: all see the one that begins
        return f"SELECT * EXCLUDE ({_BEGINS}), {first} AS _first FROM ({marked})"


def _partition(keys: Sequence[str]) -> str:
    return f"PARTITION BY {', '.join(keys)} " if keys else ""

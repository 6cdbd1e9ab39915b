"""How far the snapshot of a table is: a part of the position of a capture."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True, slots=True)
class Progress:
    """The snapshot of a table: the key of the last row that was landed (as texts), and how many rows there were.

    `compares`: all rows are landed, and the topic's other keys are deleted next. `columns`: those that every row of
    the topic has. `request`: the request that the snapshot answers.
    """

    after: tuple[str, ...] | None = None
    rows: int = 0
    done: bool = False
    compares: bool = False
    columns: tuple[str, ...] = ()
    request: str | None = None

    def from_start(self, **changes: Any) -> Progress:
        """Return a snapshot that begins."""
        return replace(self, after=None, rows=0, done=False, compares=False, **changes)

    @staticmethod
    def of(read: dict[str, Any]) -> Progress:
        """Return what was stored as its fields."""
        after, columns = read["after"], read.get("columns", ())
        return Progress(**{**read, "after": None if after is None else tuple(after), "columns": tuple(columns)})

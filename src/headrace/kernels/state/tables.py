"""Tables of state, as a step describes them."""

from __future__ import annotations

from dataclasses import dataclass

Column = tuple[str, str]
"""A column's name and its type in DuckDB."""
COUNT = "_n"
"""The column that says how often a row of a table is there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSpec:
    """A table of state: rows by key, each with a count `_n`; a row whose count is 0 is gone.

    `by`: the sets of columns by whose values rows are looked up; without any, rows are found by scanning all. A table
    that `ages` by a column of times, in microseconds, is a buffer: its rows are appended, never replaced, and expire
    by their time. They have no count.
    """

    name: str
    keys: tuple[Column, ...]
    values: tuple[Column, ...]
    by: tuple[tuple[str, ...], ...] = ()
    ages: str | None = None

    @property
    def kinds(self) -> tuple[Column, ...]:
        """All columns, in order, with their types."""
        return (*self.keys, *(((COUNT, "BIGINT"),) if self.ages is None else ()), *self.values)

    @property
    def columns(self) -> list[str]:
        """All columns, in order."""
        return [name for name, _ in self.kinds]

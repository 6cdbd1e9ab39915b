"""A stream, or the records of a topic, read as a table."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.plan.nodes.stateful import Keyed


@dataclass(frozen=True, eq=False, kw_only=True)
class Latest(Keyed):
    """The last row of each key: a stream, or the upserts and deletes of a topic, read as a table.

    `by_time`: the last is the one of the greatest event time, of equal ones the later arrival; else the later arrival.
    `history`: how long joins with `as_of` keep its old versions beyond what their grace needs, in microseconds.
    """

    verb = "latest"

    by_time: bool
    history: int = 0

    @property
    def key(self) -> tuple[str, ...] | None:
        """What there is one row of."""
        return self.keys

    @property
    def is_table(self) -> bool:
        """Rows replace each other."""
        return True

    @property
    def append_only(self) -> bool:
        """A row that is replaced is withdrawn."""
        return False

    @property
    def not_null(self) -> frozenset[str]:
        """As the step above."""
        return self.up.not_null

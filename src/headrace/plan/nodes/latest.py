"""A stream, or the records of a topic, read as a table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.base.schema import type_name
from headrace.plan.nodes.node import Description
from headrace.plan.nodes.sources import Source
from headrace.plan.nodes.stateful import Keeps, Keyed

if TYPE_CHECKING:
    from headrace.plan.nodes.node import Node


@dataclass(frozen=True, eq=False, kw_only=True)
class Latest(Keyed):
    """The last row of each key: a stream, or the upserts and deletes of a topic, read as a table.

    `by_time`: the last is the one of the greatest event time, of equal ones the later arrival; else the later arrival.
    `history`: how long joins with `as_of` keep its old versions beyond what their grace needs, in microseconds.
    """

    verb = "latest"
    kernel = "latest.Upsert"

    by_time: bool
    history: int = 0

    @property
    def key(self) -> tuple[str, ...] | None:
        """The keys: there is one row for each."""
        return self.keys

    @property
    def arrival_inputs(self) -> tuple[Node, ...] | None:
        """As the step above: each change is that of one record."""
        return (self.up,)

    @property
    def is_table(self) -> bool:
        """Yes: rows replace each other."""
        return True

    @property
    def append_only(self) -> bool:
        """No: a row that is replaced is withdrawn."""
        return False

    @property
    def keeps_output(self) -> Keeps:
        """All of it: its state is the table."""
        return "all"

    @property
    def not_null(self) -> frozenset[str]:
        """As the step above."""
        return self.up.not_null

    @property
    def event_time_column(self) -> str | None:
        """As the step above."""
        return self.up.event_time_column

    @property
    def name_suffix(self) -> str:
        """As of every step; the records of a topic become its table."""
        return "table" if isinstance(self.up, Source) and self.up.upserts else super().name_suffix

    def parameters(self) -> dict[str, Any]:
        """Return which row of a key is the last."""
        return {"by_time": self.by_time}

    def identity(self) -> dict[str, Any]:
        """Return the columns of the rows, and which row of a key is the last."""
        columns = {field.name: type_name(field.type) for field in self.schema}
        return {"columns": columns, "last by": "event time" if self.by_time else "offset"}

    def describe(self) -> Description:
        """Return the key, and which row of a key is the last."""
        keys = ", ".join(self.keys)
        return Description(
            detail=f"last row per ({keys}) by {'event time' if self.by_time else 'offset'}",
            state=f"a row per ({keys}), kept until it is deleted",
        )

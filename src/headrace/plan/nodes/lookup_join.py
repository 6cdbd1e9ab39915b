"""A stream with a table as it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.plan.nodes.join import Join
from headrace.plan.nodes.node import Description

if TYPE_CHECKING:
    from headrace.plan.nodes.node import Node


@dataclass(frozen=True, eq=False, kw_only=True)
class LookupJoin(Join):
    """Rows of a stream, each with the row of a table as it is when it arrives; changes of the table trigger nothing."""

    kind = "LookupJoin"
    kernel = "joins.lookup_join.LookupJoin"

    @property
    def watermark_inputs(self) -> tuple[Node, ...]:
        """Its stream alone: changes of the table trigger no output."""
        return (self.left,)

    @property
    def arrival_inputs(self) -> tuple[Node, ...] | None:
        """Its stream: a row that was looked up arrived when it did."""
        return (self.left,)

    @property
    def kept_order(self) -> tuple[tuple[str, ...], ...]:
        """Those of its table: rows of its stream do not wait."""
        return ((), tuple(self.right.schema.names))

    @property
    def append_only(self) -> bool:
        """As its stream: the result of a lookup stays."""
        return self.left.append_only

    def describe(self) -> Description:
        """Return what rows match by."""
        return Description(
            detail=self.shown_match(", as it arrives"),
            state=f"the rows of the right side, kept until they are deleted{self.shown_growth(1)}",
        )

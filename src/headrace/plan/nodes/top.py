"""The first rows of each group."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from headrace.base.schema import type_name
from headrace.expressions.identity import typed_identity
from headrace.plan.nodes.node import Description
from headrace.plan.nodes.windowed import Emit, Windowed

if TYPE_CHECKING:
    from headrace.expressions import Term
    from headrace.plan.windows import AlignedWindow


Ties = Literal["row_number", "rank", "dense_rank"]


@dataclass(frozen=True, eq=False, kw_only=True)
class Top(Windowed):
    """The `n` first rows of each group, or of each window of each group; `rank` names the column of their positions.

    `n` may be the name of a key. `ties`: rows that `order` leaves equal have a position each, or share one.

    A `part` ranks the rows of each shard by itself; a step below ranks their first rows together.
    """

    verb = "top"
    kernel = "top.Top"

    n: int | str
    order: tuple[Term, ...]
    rank: str | None
    ties: Ties = "row_number"
    part: bool = False
    window: AlignedWindow | None = None
    emit: Emit = "changes"

    @property
    def key(self) -> tuple[str, ...] | None:
        """Group, window and position; else the key of the step above, which a stream does not have.

        A position that rows share, or none, identifies no row.
        """
        if self.rank is not None and self.ties == "row_number":
            return (*self.keys, *self.bounds, self.rank)
        return None if self.up.key is None else (*self.up.key, *self.bounds)

    @property
    def not_null(self) -> frozenset[str]:
        """Those of the step above, and the position."""
        ranked = frozenset(() if self.rank is None else (self.rank,))
        return (self.up.not_null | ranked) & frozenset(self.schema.names)

    @property
    def event_time_column(self) -> str | None:
        """As the step above."""
        return self.up.event_time_column

    @property
    def works_in_place(self) -> bool:
        """A part does."""
        return self.part

    @property
    def name_suffix(self) -> str:
        """As of every step; a part says so."""
        return super().name_suffix + ("_parts" if self.part else "")

    @property
    def delta_is_net(self) -> bool:
        """Only rows that enter, leave or move are in it."""
        return True

    def identity(self) -> dict[str, Any]:
        """Return the window, the order, and the columns of the rows that are kept."""
        windows = {} if self.window is None else {"window": str(self.window), "emit": self.emit}
        ties = {} if self.ties == "row_number" else {"ties": self.ties}
        return {
            **windows,
            **ties,
            "n": self.n,
            "order": [f"{typed_identity(term.value)} {term.direction}" for term in self.order],
            "rank": self.rank,
            "withdrawals": not self.up.append_only,
            "columns": [f"{field.name} {type_name(field.type)}" for field in self.up.schema],
        }

    def describe(self) -> Description:
        """Return the order, the window, and the rows of the state."""
        by = ", ".join(f"{term.value.text} {term.direction.lower()}" for term in self.order)
        ties = "" if self.ties == "row_number" else f", with ties ({self.ties})"
        rows = f"first {self.n} rows" if self.up.append_only else f"rows, and the first {self.n} of them"
        group = ", ".join(self.keys) or "one group"
        return Description(
            detail=f"first {self.n}{' of each shard' if self.part else ''} by {by}{ties}",
            window=str(self.window) if self.window else None,
            emit=self.emit if self.window else None,
            state=f"the {rows} per ({group}, window), dropped when it closes"
            if self.window
            else f"the {rows} per ({group}), kept for ever",
        )

"""The first rows of each group."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.plan.nodes.windowed import Emit, Windowed

if TYPE_CHECKING:
    from headrace.expressions import Term
    from headrace.plan.windows import AlignedWindow


@dataclass(frozen=True, eq=False, kw_only=True)
class Top(Windowed):
    """The `n` first rows of each group, or of each window of each group; `rank` names the column of their positions.

    A `part` gives the first rows of each shard, of which a step below makes those of the whole.
    """

    verb = "top"

    n: int
    order: tuple[Term, ...]
    rank: str | None
    part: bool = False
    window: AlignedWindow | None = None
    emit: Emit = "changes"

    @property
    def key(self) -> tuple[str, ...] | None:
        """Group, window and position; without positions the key of the step above, which a stream does not have."""
        above = self.keys if self.rank is not None else self.up.key
        if above is None:
            return None
        return (*above, *self.bounds, *(() if self.rank is None else (self.rank,)))

    @property
    def not_null(self) -> frozenset[str]:
        """Those of the step above, and the position."""
        ranked = frozenset(() if self.rank is None else (self.rank,))
        return (self.up.not_null | ranked) & frozenset(self.schema.names)

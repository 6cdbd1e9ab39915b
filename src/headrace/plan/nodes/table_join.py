"""Two tables, kept up to date."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.plan.nodes.join import Join
from headrace.plan.nodes.node import Description

if TYPE_CHECKING:
    from headrace.plan.nodes.stateful import Keeps


@dataclass(frozen=True, eq=False, kw_only=True)
class TableJoin(Join):
    """Rows of two tables, kept up to date under every change of either side."""

    kind = "TableJoin"
    kernel = "joins.table_join.TableJoin"

    def identity(self) -> dict[str, Any]:
        """Return what a join is, and where its sides are kept as rows that are only added."""
        growing = [self.grows(0), self.grows(1)]
        return super().identity() | ({"growing": growing} if any(growing) else {})

    def counts(self, side: int) -> bool:
        """Whether a side is kept as a bag: a row is identified by all of its columns, and equal ones are counted."""
        numbered = self.how in (("left", "full", "semi", "anti"), ("right", "full"))[side]
        return self.ups[side].key is None and not (self.grows(side) and (self.where is None or not numbered))

    @property
    def delta_is_net(self) -> bool:
        """A pair that is there as often as before is not in it."""
        return True

    @property
    def is_table(self) -> bool:
        """Yes: a pair that no longer matches is withdrawn."""
        return True

    @property
    def keeps_output(self) -> Keeps:
        """All of it: the pairs of the rows that it keeps."""
        return "all"

    @property
    def append_only(self) -> bool:
        """Only of pairs of rows that are never withdrawn."""
        return self.how in ("inner", "semi") and all(up.append_only for up in self.ups)

    @property
    def key(self) -> tuple[str, ...] | None:
        """The columns that identify a row, or None where none do.

        The shared key where both sides are joined on their whole keys; the left one where the right side is joined on
        its whole key and every row has a left side; both otherwise. A full join needs more: see
        `_distinguishable`.
        """
        left, right = self.left.key, self.right.key
        if left is None or (right is None and self.how not in ("semi", "anti")):
            return None
        ours = tuple(self.named(left=name) for name in left)
        if right is None or self.how in ("semi", "anti"):
            return ours
        theirs = tuple(self.named(right=name) for name in right)
        by_left, by_right = self.partition_keys
        same = ours and set(left) == set(by_left) and set(right) == set(by_right) and set(ours) == set(theirs)
        if self.how == "full" and not self._distinguishable(left, right, same=bool(same)):
            return None
        if same or (set(right) <= set(by_right) and self.how in ("inner", "left")):
            return ours
        return tuple(dict.fromkeys([*ours, *theirs]))

    def _distinguishable(self, left: tuple[str, ...], right: tuple[str, ...], *, same: bool) -> bool:
        """Whether a left row alone and a right row alone never look alike in the keys of both.

        With one shared key they would, if both had null in it, or if only `where` told them apart.
        """
        if same:
            return self.where is None and (set(left) <= self.left.not_null or set(right) <= self.right.not_null)
        shared = {name for name, other in self.on if name == other}
        return bool((set(left) - shared) & self.left.not_null or (set(right) - shared) & self.right.not_null)

    def describe(self) -> Description:
        """Return what rows match by."""
        return Description(
            detail=self.shown_match(),
            state=f"the rows of both sides, kept until they are withdrawn{self.shown_growth(0, 1)}",
        )

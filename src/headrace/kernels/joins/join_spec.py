"""The two sides of a join as the kernels know them: their columns inside, where rows agree, the output."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.kernels.state.tables import Column


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinSpec:
    """Which rows of two sides match. Inside, left columns are `l0…`, right ones `r0…`; null equals nothing.

    `left` and `right` are the columns inside with their types, `on` pairs of them that are equal where rows match,
    `where` a further condition over them. `keys` are for each side the columns of its primary key, None where it
    has none. `growing`: which sides have no key and only get rows, none of which is ever withdrawn. `ordered`: the
    right side is a table with a key, and the changes of a key arrive in the order in which the table changed.
    `output` are the columns of the result: names, each with SQL over the columns inside (of a side that is missing
    they are null) and its type. `how` is as in the plan.
    """

    left: tuple[Column, ...]
    right: tuple[Column, ...]
    on: tuple[tuple[str, str], ...]
    where: str | None
    keys: tuple[tuple[str, ...] | None, tuple[str, ...] | None]
    ordered: bool
    output: tuple[tuple[str, str, str], ...]
    how: str
    growing: tuple[bool, bool] = (False, False)

    @property
    def condition(self) -> str:
        """The condition that a left and a right row match, over their columns inside."""
        equal = [f"{left} = {right}" for left, right in self.on]
        return " AND ".join(equal if self.where is None else [*equal, f"({self.where})"])

"""What the two sides of a join are to the kernels: their columns inside, where rows agree, what comes out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.kernels.spec import Column


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinSpec:
    """Rows of two sides that meet. Inside, left columns are `l0…`, right ones `r0…`; null agrees with nothing.

    `left` and `right` are the columns inside with their types, `on` pairs of them that are equal where rows meet,
    `where` a condition over them beside. `keys` are for each side the columns of its primary key, None where it has
    none; `append_only` whether its rows are never withdrawn. `gives` is what comes out: names, each with SQL over the
    columns inside (of a side that is missing they are null) and its type. `how` is as in the plan.
    """

    left: tuple[Column, ...]
    right: tuple[Column, ...]
    on: tuple[tuple[str, str], ...]
    where: str | None
    keys: tuple[tuple[str, ...] | None, tuple[str, ...] | None]
    appends: tuple[bool, bool]
    gives: tuple[tuple[str, str, str], ...]
    how: str

    def agree(self) -> str:
        """Return the condition that a left and a right row meet, over their columns inside."""
        made = [f"{left} = {right}" for left, right in self.on]
        return " AND ".join(made if self.where is None else [*made, f"({self.where})"])

"""What the two halves of a grouped aggregate share: the tables that are kept, and what is counted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.kernels.state.state import COUNT, TableSpec

if TYPE_CHECKING:
    from headrace.kernels.spec import Grouping

GROUPS = "groups"


@dataclass
class Counts:
    """What a step did in an epoch, for the status."""

    rows_in: int = 0
    rows_out: int = 0
    late: int = 0
    partly_late: int = 0
    dead: int = 0
    too_old: int = 0

    def __iadd__(self, other: Counts) -> Counts:  # noqa: PYI034 -- no one subclasses it
        for name in vars(self):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        return self


def tables(grouping: Grouping) -> tuple[TableSpec, ...]:
    """Return the tables that a grouping keeps."""
    keys = tuple((f"k{i}", kind) for i, (_, _, kind) in enumerate(grouping.keys))
    if grouping.windowed:
        keys = (*keys, ("_pane", "BIGINT"))
    pieces = tuple((f"p{i}", piece.type) for i, piece in enumerate(grouping.pieces))
    if grouping.session:
        pieces = (("_last", "BIGINT"), *pieces)
    group = tuple(name for name, _ in keys)
    by = () if grouping.windowed else (group,)  # windows that close are found by scanning
    made = [TableSpec(name=GROUPS, keys=keys, values=pieces, by=by)]
    for number, values in enumerate(grouping.values):
        told = (*group, *(name for name, _ in values.columns))
        made.append(
            TableSpec(name=f"values{number}", keys=(*keys, *values.columns), values=(), by=by and (told, group))
        )
    return tuple(made)


def by_position(columns: list[str]) -> str:
    """Return GROUP BY over the first columns of a SELECT, by their positions: names may be any text."""
    return f"GROUP BY {', '.join(str(i + 1) for i in range(len(columns)))}" if columns else ""


__all__ = ["COUNT", "GROUPS", "Counts", "by_position", "tables"]

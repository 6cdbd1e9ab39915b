"""A stream with a table as it was at the time of each row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headrace.base.time import show_duration
from headrace.plan.nodes.join import Join
from headrace.plan.nodes.node import Description, Node


@dataclass(frozen=True, eq=False, kw_only=True)
class AsOfJoin(Join):
    """Rows of a stream, each with the row of a table that was valid at the row's time `at`, decided `grace` later.

    Its right side has the records of the table, upserts and deletes of rows by `table_key`. The table itself does not
    show a version that was written late and had been valid before. Old versions are kept for `history` longer.
    """

    kind = "VersionJoin"
    kernel = "joins.as_of_join.AsOfJoin"

    at: str
    table_key: tuple[str, ...]
    grace: int
    history: int

    @property
    def append_only(self) -> bool:
        """As its stream: a row waits until its version is final."""
        return self.left.append_only

    @property
    def detects_late(self) -> bool:
        """Yes: a row is late more than `grace` behind the watermark, where no versions of its time are kept."""
        return True

    @property
    def emits_on_watermark(self) -> bool:
        """Yes: rows wait until their version is final."""
        return True

    @property
    def emits_ahead(self) -> bool:
        """Yes: the versions of an epoch are stored before its rows are matched."""
        return True

    @property
    def hold(self) -> int:
        """`grace`: rows wait as long as the table may still change before their time."""
        return self.grace

    @property
    def versions(self) -> Node | None:
        """The records of the table."""
        return self.right

    def parameters(self) -> dict[str, Any]:
        """Return the column of the time, the table's key, and how long versions are kept."""
        left, right = self.inside_names(0), self.inside_names(1)
        identity = tuple(right[name] for name in self.table_key)
        return {"at": left[self.at], "identity": identity, "grace": self.grace, "history": self.history}

    def identity(self) -> dict[str, Any]:
        """Return that of every join, the column of the time, and the grace."""
        return {**super().identity(), "as of": self.at, "grace": show_duration(self.grace)}

    def describe(self) -> Description:
        """Return what rows match by, and as of when."""
        return Description(
            detail=self.shown_match(f", as of {self.at}"),
            state="the rows that wait, and the versions of the table that they may still ask for",
        )

"""One row a group."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.plan.nodes.windowed import Windowed

if TYPE_CHECKING:
    from headrace.expressions import Aggregates


@dataclass(frozen=True, eq=False, kw_only=True)
class Aggregate(Windowed):
    """One row for each group, or each group and window."""

    verb = "agg"

    aggregates: Aggregates

    @property
    def key(self) -> tuple[str, ...] | None:
        """Group and window."""
        return (*self.keys, *self.bounds)

    @property
    def sealed(self) -> frozenset[str]:
        """Results that pass a private value on; a key is never sealed."""
        return self.aggregates.sealed

    @property
    def not_null(self) -> frozenset[str]:
        """The keys that are not null above, and the bounds of its windows."""
        return (self.up.not_null & frozenset(self.keys)) | frozenset(self.bounds)

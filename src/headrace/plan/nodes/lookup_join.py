"""A stream with a table as it is."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.plan.nodes.join import Join


@dataclass(frozen=True, eq=False, kw_only=True)
class LookupJoin(Join):
    """Rows of a stream, each with the row of a table as it is when it arrives; changes of the table trigger nothing."""

    @property
    def append_only(self) -> bool:
        """What was looked up stays."""
        return self.left.append_only

"""Two streams, matched within an interval of time."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.plan.nodes.join import Join


@dataclass(frozen=True, eq=False, kw_only=True)
class StreamJoin(Join):
    """Rows of two streams whose times are near: right time - left time is in `[low, high]`, in microseconds."""

    low: int
    high: int
    grace: int

    @property
    def detects_late(self) -> bool:
        """A row more than `grace` behind the watermark is late."""
        return True

    @property
    def emits_on_watermark(self) -> bool:
        """Rows come out alone once nothing can meet them any more."""
        return self.how != "inner"

    @property
    def hold(self) -> int:
        """`grace`, and for rows that meet none as long as a partner may still come."""
        if self.how == "inner":
            return self.grace
        return self.grace + max(self.high if self.how != "right" else 0, -self.low if self.how != "left" else 0, 0)

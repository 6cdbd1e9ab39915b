"""Two streams, matched within an interval of time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headrace.base.time import show_duration
from headrace.plan.nodes.join import Join
from headrace.plan.nodes.node import Description


@dataclass(frozen=True, eq=False, kw_only=True)
class StreamJoin(Join):
    """Rows of two streams within an interval: right time - left time is in `[low, high]`, in microseconds."""

    kind = "StreamJoin"
    kernel = "joins.stream_join.StreamJoin"

    low: int
    high: int
    grace: int

    @property
    def detects_late(self) -> bool:
        """Yes: a row more than `grace` behind the watermark is late."""
        return True

    @property
    def emits_on_watermark(self) -> bool:
        """Whether rows are emitted without a match, once no match can arrive any more."""
        return self.how not in ("inner", "semi")

    @property
    def hold(self) -> int:
        """`grace`, and for rows that come out alone, with their own time, as long as a match may arrive."""
        left = self.high if self.how in ("left", "full", "semi", "anti") else 0
        right = -self.low if self.how in ("right", "full") else 0
        return self.grace + max(left, right, 0)

    def parameters(self) -> dict[str, Any]:
        """Return the interval and the grace."""
        return {"low": self.low, "high": self.high, "grace": self.grace}

    def identity(self) -> dict[str, Any]:
        """Return that of every join, the interval and the grace."""
        interval = [show_duration(self.low), show_duration(self.high)]
        return {**super().identity(), "within": interval, "grace": show_duration(self.grace)}

    def describe(self) -> Description:
        """Return what rows match by, with the interval."""
        interval = f", right - left in [{show_duration(self.low)}, {show_duration(self.high)}]"
        return Description(
            detail=self.shown_match(interval),
            state="the rows of both sides, dropped when no partner can come any more",
        )

"""What steps over groups share: keys, windows, and whether results are corrected or final."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from headrace.plan.nodes.stateful import Keyed

if TYPE_CHECKING:
    from headrace.plan.windows import Window

Emit = Literal["changes", "final"]


@dataclass(frozen=True, eq=False, kw_only=True)
class Windowed(Keyed):
    """A table of what there is in each group, or in each window of each group: kept up to date, or given when final."""

    window: Window | None
    emit: Emit

    @property
    def bounds(self) -> tuple[str, ...]:
        """The columns that tell its windows apart."""
        return () if self.window is None else ("window_start", "window_end")

    @property
    def is_table(self) -> bool:
        """What it gives is corrected."""
        return True

    @property
    def append_only(self) -> bool:
        """Only what is given once, at the end, is never withdrawn."""
        return self.emit == "final"

    @property
    def detects_late(self) -> bool:
        """With windows: they close."""
        return self.window is not None

    @property
    def emits_on_watermark(self) -> bool:
        """What is given once, when a window closes."""
        return self.detects_late and self.emit == "final"

    @property
    def late_before_exchange(self) -> bool:
        """All but sessions: which session a row would be in is known beside the state alone."""
        return self.window is None or self.window.late_before_exchange

    @property
    def hold(self) -> int:
        """As long as its windows are corrected."""
        return 0 if self.window is None else self.window.hold

    @property
    def keeps_time(self) -> bool:
        """With windows: the time of a row is that of its window."""
        return self.append_only or self.window is not None

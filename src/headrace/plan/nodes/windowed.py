"""What steps over groups share: keys, windows, and whether results are corrected or final."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from headrace.plan.nodes.stateful import Keeps, Keyed
from headrace.plan.windows import SlidingWindow

if TYPE_CHECKING:
    from headrace.plan.windows import Window

Emit = Literal["changes", "final"]


@dataclass(frozen=True, eq=False, kw_only=True)
class Windowed(Keyed):
    """A table of results for each group, or each window of each group: kept up to date, or emitted once when final."""

    window: Window | None
    emit: Emit

    @property
    def bounds(self) -> tuple[str, ...]:
        """The columns that identify a window."""
        return () if self.window is None else ("window_start", "window_end")

    @property
    def reads_time(self) -> bool:
        """With windows over a table: the time says which windows a row was put into."""
        return self.window is not None and not self.up.append_only

    @property
    def is_table(self) -> bool:
        """Yes: results are corrected."""
        return True

    @property
    def append_only(self) -> bool:
        """Whether results are emitted once, when they are final."""
        return self.emit == "final"

    @property
    def keeps_output(self) -> Keeps:
        """All of it without windows; with windows the results that may still be corrected. Final ones are gone."""
        if self.window is None:
            return "all"
        return "nothing" if self.emit == "final" else "open windows"

    @property
    def detects_late(self) -> bool:
        """Whether it has windows: they close."""
        return self.window is not None

    @property
    def emits_on_watermark(self) -> bool:
        """Whether results are emitted when their window closes, or rows that no sliding window took are late then."""
        return self.detects_late and (self.emit == "final" or (self._slides and self.up.append_only))

    @property
    def _slides(self) -> bool:
        return isinstance(self.window, SlidingWindow)

    @property
    def late_before_exchange(self) -> bool:
        """Yes but for sessions, and sliding windows of streams: which rows these have is known where the state is."""
        if self._slides:
            return not self.up.append_only
        return self.window is None or self.window.late_before_exchange

    @property
    def hold(self) -> int:
        """How long its windows are corrected."""
        return 0 if self.window is None else self.window.hold

    @property
    def keeps_time(self) -> bool:
        """With windows: the time of a row is that of its window."""
        return self.append_only or self.window is not None

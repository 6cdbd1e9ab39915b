"""The arithmetic of windows and panes, as SQL over microseconds.

A pane is the longest piece that windows share: every window is a whole number of panes. `pane` below is SQL that
gives a pane's start. All divisions round towards minus infinity, so times before 1970 are right too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.kernels.spec import Panes


@dataclass(frozen=True, slots=True)
class PaneSql:
    """SQL about the panes and windows of one step."""

    panes: Panes

    def of(self, time: str) -> str:
        """Return the start of the pane that an instant is in."""
        return self._down(time, self.panes.pane)

    def first_start(self, pane: str) -> str:
        """Return the start of the first window that has the pane."""
        p = self.panes
        if p.pane == p.size == p.every and pane == "_pane":
            return pane
        return f"({self._down(f'({pane} + {p.pane - p.size + p.every - 1})', p.every)})"

    def last_start(self, pane: str) -> str:
        """Return the start of the last window that has the pane; `_pane` is known to be a start where all are."""
        if self.panes.pane == self.panes.every and pane == "_pane":
            return pane
        return self._down(pane, self.panes.every)

    def inside(self, pane: str) -> str:
        """Return whether any window has the pane: not so between windows that do not touch."""
        if self.panes.every <= self.panes.size:
            return "true"
        return f"({pane} - {self.last_start(pane)} < {self.panes.size})"

    def closed(self, start: str, watermark: int) -> str:
        """Return whether the window that starts at `start` is closed at a watermark."""
        return f"({start} <= {self.closed_start(watermark)})"

    def closed_start(self, watermark: int) -> int:
        """Return the greatest start that a window closed at a watermark may have."""
        return watermark - self.panes.grace - self.panes.size

    def gone(self, pane: str, watermark: int) -> str:
        """Return whether all windows of the pane are closed at a watermark."""
        return self.closed(self.last_start(pane), watermark)

    def starts(self, pane: str, *, after: int | None = None, until: str | None = None) -> str:
        """Return a list of the starts of the pane's windows, those in (after, until]; `until` is SQL."""
        first, last = self.first_start(pane), self.last_start(pane)
        if after is not None:
            first = f"greatest({first}, {self._down(str(after), self.panes.every)} + {self.panes.every})"
        if until is not None:
            last = f"least({last}, {until})"
        return f"range({first}, {last} + 1, {self.panes.every})"

    def _down(self, value: str, step: int) -> str:
        """Round down to a multiple of `step`, counted from the offset."""
        offset = self.panes.offset % step
        moved = f"({value} - {offset})" if offset else f"({value})"
        return f"({value} - ((({moved} % {step}) + {step}) % {step}))"

"""The arithmetic of windows and panes, as SQL over microseconds.

A pane is the longest part that windows share: every window is a whole number of panes. `pane` below is SQL that
gives a pane's start. A window is identified by its end: windows that cumulate share their starts. All divisions round
towards minus infinity, so times before 1970 are right too. Windows of a calendar are the same over the numbers of its
periods: a row's is in a column of its own, and the watermark's is computed here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.kernels.groups.periods import PERIOD

if TYPE_CHECKING:
    from headrace.kernels.groups.windows import Panes


@dataclass(frozen=True, slots=True)
class PaneSql:
    """SQL about the panes and windows of one step."""

    panes: Panes

    @property
    def time(self) -> str:
        """The column of a row that says where it is among the panes."""
        return "_time" if self.panes.calendar is None else PERIOD

    def of(self, time: str) -> str:
        """Return the start of the pane that an instant is in."""
        return self._down(time, self.panes.pane)

    def first_end(self, pane: str) -> str:
        """Return the end of the first window that has the pane; `_pane` is known to be a pane's start."""
        p = self.panes
        if p.cumulating:
            return f"({pane if pane == '_pane' else self.of(pane)} + {p.pane})"
        if p.pane == p.size == p.every and pane == "_pane":
            return f"({pane} + {p.size})"
        return f"({self._down(f'({pane} + {p.pane - p.size + p.every - 1})', p.every)} + {p.size})"

    def last_end(self, pane: str) -> str:
        """Return the end of the last window that has the pane."""
        return f"({self._last_start(pane)} + {self.panes.size})"

    def inside(self, pane: str) -> str:
        """Return whether any window has the pane: false between windows that do not touch."""
        if self.panes.every <= self.panes.size:
            return "true"
        return f"({pane} - {self._last_start(pane)} < {self.panes.size})"

    def start(self, end: str) -> str:
        """Return the start of the window that ends at `end`."""
        if self.panes.cumulating:
            return self._down(f"({end} - 1)", self.panes.size)
        return f"({end} - {self.panes.size})"

    def closed(self, end: str, watermark: int) -> str:
        """Return whether the window that ends at `end` is closed at a watermark."""
        return f"({end} <= {self.closed_end(watermark)})"

    def closed_end(self, watermark: int) -> int:
        """Return the greatest end that a window closed at a watermark may have."""
        closed = watermark - self.panes.grace
        return closed if self.panes.calendar is None else self.panes.calendar.number(closed)

    def gone(self, pane: str, watermark: int) -> str:
        """Return whether all windows of the pane are closed at a watermark."""
        return self.closed(self.last_end(pane), watermark)

    def begun(self, pane: str, watermark: int) -> str:
        """Return whether the first window of the pane is closed at a watermark."""
        return self.closed(self.first_end(pane), watermark)

    def ends(self, pane: str, *, after: int | None = None, until: str | None = None) -> str:
        """Return a list of the ends of the pane's windows, those in (after, until]; `until` is SQL."""
        first, last = self.outer_ends(pane, after=after, until=until)
        return f"range({first}, {last} + 1, {self.panes.every})"

    def outer_ends(self, pane: str, *, after: int | None, until: str | None) -> tuple[str, str]:
        """Return the first and the last of these ends; the first is greater than the last where there are none."""
        first, last, every = self.first_end(pane), self.last_end(pane), self.panes.every
        if after is not None:
            first = f"greatest({first}, {after + every - (after - self.panes.size - self.panes.offset) % every})"
        return first, last if until is None else f"least({last}, {until})"

    def _last_start(self, pane: str) -> str:
        """Return the start of the last window that has the pane; `_pane` is known to be a start where all are."""
        p = self.panes
        if p.pane == p.every and pane == "_pane" and not p.cumulating:
            return pane
        return self._down(pane, p.size if p.cumulating else p.every)

    def _down(self, value: str, step: int) -> str:
        """Round down to a multiple of `step`, counted from the offset."""
        offset = self.panes.offset % step
        moved = f"({value} - {offset})" if offset else f"({value})"
        return f"({value} - ((({moved} % {step}) + {step}) % {step}))"

"""The windows of a grouped step, as plain values; times are microseconds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.base.calendar import Calendar


@dataclass(frozen=True, slots=True, kw_only=True)
class Panes:
    """Windows `[start, start + size)` every `every`, made of panes; all in microseconds.

    Where they are `cumulating`, a window ends at every `every` and begins where the last `size` began. With a
    `calendar` all but `grace` are counted in its periods.
    """

    size: int
    every: int
    pane: int
    grace: int
    offset: int
    cumulating: bool = False
    calendar: Calendar | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """Windows of rows that follow each other within `gap`, bounds included; in microseconds."""

    gap: int
    grace: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Sliding:
    """Windows of rows that lie within `size`, bounds included; in microseconds."""

    size: int
    grace: int

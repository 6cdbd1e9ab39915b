"""Windows as values: how wide, how often, and how long they may still be corrected."""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd
from typing import Literal

from headrace.base.errors import PlanError
from headrace.base.time import duration, show_duration


class InvalidWindow(PlanError):
    """A window's lengths make no window."""

    condition = "INVALID_WINDOW"


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """What cuts a group by event time, and how long its results are corrected; all lengths are in microseconds."""

    grace: int

    @property
    def hold(self) -> int:
        """How far behind the watermark a result may still carry its event time."""
        return self.grace


@dataclass(frozen=True, slots=True, kw_only=True)
class AlignedWindow(Window):
    """Windows `[start, start + size)` that start every `every`, aligned to 1970-01-01 UTC plus `offset`.

    Cumulating ones start every `size`, and one ends at every `every`. A window is open until the watermark reaches
    `end + grace`.
    """

    kind: Literal["tumbling", "hopping", "cumulating"]
    size: int
    every: int
    offset: int

    @property
    def pane(self) -> int:
        """The length of the pieces that the windows share: state is kept once a pane, not once a window."""
        return gcd(self.size, self.every)

    def __str__(self) -> str:
        between = {"tumbling": "", "hopping": " every ", "cumulating": " by "}[self.kind]
        every = between and between + show_duration(self.every)
        offset = f", offset {show_duration(self.offset)}" if self.offset else ""
        return f"{self.kind} {show_duration(self.size)}{every}, grace {show_duration(self.grace)}{offset}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionWindow(Window):
    """Rows of a group that follow each other within `gap`, bounds included: `[first row, last row + gap]`.

    A session is open until the watermark has passed `last row + gap + grace`.
    """

    gap: int

    @property
    def hold(self) -> int:
        """One microsecond more: the last moment of a session is in it, and its result stands just before."""
        return self.grace + 1

    def __str__(self) -> str:
        return f"session, gap {show_duration(self.gap)}, grace {show_duration(self.grace)}"


def tumbling(size: str, *, grace: str, offset: str = "0 seconds") -> Window:
    """Windows that touch and never overlap: `[0, size)`, `[size, 2 size)`, …, aligned to 1970-01-01 UTC.

    `grace` is how long a window is still corrected after the watermark has passed its end; it has no default,
    since it decides which rows come too late.

    Raises:
        InvalidTime: a text is no duration.
        InvalidWindow: the size is not above zero, or the grace is below it.

    """
    width = duration(size, what="window size")
    return _window("tumbling", width, width, grace, offset)


def hopping(size: str, every: str, *, grace: str, offset: str = "0 seconds") -> Window:
    """Windows of length `size` that start `every` so often: they overlap where `every` is shorter than `size`.

    Where `every` is longer than `size`, rows between two windows belong to none and are counted as such.

    Raises:
        InvalidTime: a text is no duration.
        InvalidWindow: a length is not above zero, or the grace is below it.

    """
    return _window("hopping", duration(size, what="window size"), duration(every, what="hop"), grace, offset)


def cumulating(size: str, step: str, *, grace: str, offset: str = "0 seconds") -> Window:
    """Windows that grow: `[start, start + step)`, `[start, start + 2 step)`, … up to the whole of a period of `size`.

    A row is in every window of its period that ends after it, so the whole day by the hour is
    `hr.cumulating("1 day", "1 hour", grace=…)`: at most 24 rows a day and group, each with all that was there by then.

    Raises:
        InvalidTime: a text is no duration.
        InvalidWindow: a length is not above zero, the size is no multiple of the step, or the grace is below zero.

    """
    width, every = duration(size, what="window size"), duration(step, what="step")
    made = _window("cumulating", width, every, grace, offset)
    if width % every:
        raise InvalidWindow(
            f"a window of {show_duration(width)} cannot grow by {show_duration(every)}",
            detail="The last step would end after the window.",
            hint='The size is a whole number of steps: hr.cumulating("1 hour", "10 minutes", grace=…).',
        )
    return made


def session(gap: str, *, grace: str) -> Window:
    """Windows of activity: a row no more than `gap` after another one of its group is in one session with it.

    A row that comes out of order may make two sessions one: both are withdrawn and the whole is inserted.
    `window_start` is the first row's time, `window_end` the last row's and the gap. A row is late when the session that
    it would be in, with what is kept and what came with it, is closed. Nothing revives a closed session: a row that is
    not late itself begins another one, however near.

    Raises:
        InvalidTime: a text is no duration.
        InvalidWindow: the gap is not above zero, or the grace is below it.

    """
    width = duration(gap, what="gap")
    if width <= 0:
        raise InvalidWindow("a session needs a gap above zero", hint='For example hr.session("30 minutes", grace=…).')
    return SessionWindow(gap=width, grace=_grace(grace))


def _window(
    kind: Literal["tumbling", "hopping", "cumulating"], size: int, every: int, grace: str, offset: str
) -> AlignedWindow:
    allowed = _grace(grace)
    if size <= 0 or every <= 0:
        between = "step" if kind == "cumulating" else "hop"
        raise InvalidWindow(f"a window needs a size and a {between} above zero", hint='For example "10 minutes".')
    shift = duration(offset, what="offset") % (size if kind == "cumulating" else every)
    return AlignedWindow(kind=kind, size=size, every=every, grace=allowed, offset=shift)


def _grace(text: str) -> int:
    allowed = duration(text, what="grace")
    if allowed < 0:
        raise InvalidWindow("grace is below zero", hint='Say "0 seconds" for windows that are never corrected.')
    return allowed

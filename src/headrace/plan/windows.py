"""Windows as values: how wide, how often, and how long they may still be corrected."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from math import gcd
from typing import Literal

from headrace.base.calendar import DAY, HOUR, MONDAY, Calendar, Length, check_zone, common, length, show_length
from headrace.base.errors import PlanError
from headrace.base.time import duration, show_duration

Kind = Literal["tumbling", "hopping", "cumulating"]
MOST_OVERLAPS = 100_000
"""How many windows a row may be in: a window of a day for each second has 86,400."""


class InvalidWindow(PlanError):
    """A window's lengths make no window."""

    condition = "INVALID_WINDOW"


@dataclass(frozen=True, slots=True, kw_only=True)
class Window(ABC):
    """What cuts a group by event time, and how long its results are corrected; all lengths are in microseconds."""

    grace: int

    @property
    def hold(self) -> int:
        """How far behind the watermark a result may still carry its event time."""
        return self.grace

    @property
    def late_before_exchange(self) -> bool:
        """Whether a row's time alone says that it is late, so that it is found late before rows are spread."""
        return True

    @property
    @abstractmethod
    def reach(self) -> int:
        """How far its bounds may be from the time of a row."""

    @abstractmethod
    def state_row(self, group: str) -> str:
        """Return what a row of the state is, for people; `group` are the keys."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlignedWindow(Window):
    """Windows `[start, start + size)` that start every `every`, aligned to 1970-01-01 UTC plus `offset`.

    Cumulating ones start every `size`, and one ends at every `every`. A window is open until the watermark reaches
    `end + grace`. With a `calendar`, `size`, `every` and `offset` count its periods; `shown_lengths` are their texts.
    """

    kind: Kind
    size: int
    every: int
    offset: int
    calendar: Calendar | None = None
    shown_lengths: tuple[str, str, str] = ("", "", "")

    @property
    def pane(self) -> int:
        """The length of the pieces that the windows share: state is kept once a pane, not once a window."""
        return gcd(self.size, self.every)

    @property
    def shown_pane(self) -> str:
        """The length of a pane, as people write it."""
        if self.calendar is None:
            return show_duration(self.pane)
        return show_length(Length(self.calendar.months * self.pane, self.calendar.micros * self.pane))

    @property
    def reach(self) -> int:
        """Its size; of a calendar at most, in any zone."""
        if self.calendar is None:
            return self.size
        return self.size * (31 * DAY * self.calendar.months + self.calendar.micros) + 2 * DAY

    def state_row(self, group: str) -> str:
        """Return that a row is one of a pane."""
        return f"a row per ({group}, pane of {self.shown_pane}), dropped when its last window closes"

    def __str__(self) -> str:
        between = {"tumbling": "", "hopping": " every ", "cumulating": " by "}[self.kind]
        size, every, offset = show_duration(self.size), show_duration(self.every), show_duration(self.offset)
        if self.calendar is not None:
            size, every, offset = self.shown_lengths
        every = between and between + every
        zone = f" in {self.calendar.zone}" if self.calendar is not None else ""
        moved = f", offset {offset}" if offset != show_duration(0) else ""
        return f"{self.kind} {size}{every}{zone}, grace {show_duration(self.grace)}{moved}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionWindow(Window):
    """Rows of a group that follow each other within `gap`, bounds included: `[first row, last row + gap]`.

    A session is open until the watermark has passed `last row + gap + grace`.
    """

    gap: int

    @property
    def hold(self) -> int:
        """One microsecond more: the end of a session is inside it, so its result is a microsecond earlier."""
        return self.grace + 1

    @property
    def late_before_exchange(self) -> bool:
        """No: the session that a row would be in is known where the state is."""
        return False

    @property
    def reach(self) -> int:
        """The gap."""
        return self.gap

    def state_row(self, group: str) -> str:
        """Return that a row is one of a session."""
        return f"a row per ({group}, session), dropped when it closes"

    def __str__(self) -> str:
        return f"session, gap {show_duration(self.gap)}, grace {show_duration(self.grace)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SlidingWindow(Window):
    """All sets of rows of a group that lie within `size`, bounds included: `[end - size, end]`.

    A window is open until the watermark has passed `end + grace`.
    """

    size: int

    @property
    def reach(self) -> int:
        """Its size."""
        return self.size

    def state_row(self, group: str) -> str:
        """Return that a row is one of a moment."""
        return f"a row per ({group}, event time), dropped when no open window reaches it"

    def __str__(self) -> str:
        return f"sliding {show_duration(self.size)}, grace {show_duration(self.grace)}"


def tumbling(size: str, *, grace: str, offset: str = "0 seconds", timezone: str | None = None) -> Window:
    """Windows that touch and never overlap: `[0, size)`, `[size, 2 size)`, …, aligned to 1970-01-01 UTC.

    With a `timezone`, and always for months, quarters and years, windows are those of the calendar. A window begins
    when the clock of the zone first shows its start, so a day has 23 hours in March and 25 in October. Trap: an hour
    that the clock shows twice is in one window, of two hours. `window_start` and `window_end` are instants.

    Args:
        size: how long a window is: `"10 minutes"`. Of the calendar: whole months, weeks (from Monday), days, or hours
            that divide a day.
        grace: how long a window is still corrected after the watermark has passed its end: `"30 seconds"`. It has no
            default, since it decides which rows are late.
        offset: moves the starts; in a calendar on the clock of the zone: `"6 hours"`, `"-1 day"`, of years
            `"3 months"`.
        timezone: the zone of the calendar: `"Europe/Paris"`. Without one, months are those of UTC.

    Raises:
        InvalidTime: a text is no duration, or no time zone.
        InvalidWindow: the size is not above zero, or no period of a calendar; or the grace is below zero.

    """
    return _window("tumbling", (size, size, offset), grace, timezone)


def hopping(size: str, every: str, *, grace: str, offset: str = "0 seconds", timezone: str | None = None) -> Window:
    """Windows of length `size` that start every `every`: a row is in several of them.

    Args:
        size: how long a window is: `"10 minutes"`.
        every: from one start to the next: `"1 minute"`.
        grace: as of `tumbling`.
        offset: as of `tumbling`.
        timezone: as of `tumbling`; windows of the calendar are for example a year every month, or a week every day.

    Raises:
        InvalidTime: a text is no duration, or no time zone.
        InvalidWindow: a length is not above zero, or no period of a calendar; the hop is longer than the size; or the
            grace is below zero; or a row would be in more than 100,000 windows.

    """
    window = _window("hopping", (size, every, offset), grace, timezone)
    if window.every > window.size:
        raise InvalidWindow(
            f"a window of {show_length(length(size))} cannot start every {show_length(length(every))}",
            detail="Rows between two windows would be in none.",
            hint=f'If that is meant, leave them out before: .where(…).window(hr.tumbling("{every}", grace=…)).',
        )
    return _of_few(window)


def cumulating(size: str, step: str, *, grace: str, offset: str = "0 seconds", timezone: str | None = None) -> Window:
    """Windows that grow: `[start, start + step)`, `[start, start + 2 step)`, … up to a whole period of `size`.

    A row is in every window of its period that ends after it. So the whole day by the hour is
    `hr.cumulating("1 day", "1 hour", grace=…)`: at most 24 results a day and group, each over all rows of the day up to
    then.

    Args:
        size: how long a period is: `"1 day"`.
        step: by how much windows grow: `"1 hour"`; `size` is a multiple of it.
        grace: as of `tumbling`.
        offset: as of `tumbling`; it moves the periods.
        timezone: as of `tumbling`.

    Raises:
        InvalidTime: a text is no duration, or no time zone.
        InvalidWindow: a length is not above zero, or no period of a calendar; the size is no multiple of the step, or
            the grace is below zero; or a row would be in more than 100,000 windows.

    """
    window = _window("cumulating", (size, step, offset), grace, timezone)
    if window.size % window.every:
        raise InvalidWindow(
            f"a window of {show_length(length(size))} cannot grow by {show_length(length(step))}",
            detail="The last step would end after the window.",
            hint='The size is a whole number of steps: hr.cumulating("1 hour", "10 minutes", grace=…).',
        )
    return _of_few(window)


def _of_few(window: AlignedWindow) -> AlignedWindow:
    """Return windows that overlap, if a row is in a number of them that can be kept."""
    if window.size // window.every > MOST_OVERLAPS:
        raise InvalidWindow(
            f"each row would be in {window.size // window.every:,} windows",
            detail=f"A row is in {MOST_OVERLAPS:,} at most.",
            hint="Let windows begin less often; or hr.sliding(size, grace=…): only those that differ in their rows.",
        )
    return window


def sliding(size: str, *, grace: str) -> Window:
    """Windows around the rows: two rows of a group share a window if they are no more than `size` apart.

    Both bounds are inside. For each time `t` at which a group has a row there is the window `[t - size, t]`, and, if
    there is a row in it, `[t + 1 µs, t + 1 µs + size]`: the rows after those at `t`. Equal windows are one window: each
    set of rows that fits into an interval of `size` is in exactly one window, the earliest that holds it. Windows are
    as in Kafka Streams, but may begin before 1970.

    A window closes when the watermark is past `window_end + grace`, that bound included. A row is late once no open
    window could hold it: the watermark is past its time, `size` and `grace`. A row that arrives after its own window
    has closed still counts in the windows of later rows, and is counted as partly late; if none takes it while it
    could, it is late after all. (Over a table it is not: its rows come and go.)

    Args:
        size: how long a window is: `"10 minutes"`.
        grace: how long a window is still corrected after the watermark has passed its end: `"30 seconds"`.

    Raises:
        InvalidTime: a text is no duration.
        InvalidWindow: the size is not above zero, or the grace is below it.

    """
    width = duration(size, what="window size")
    if width <= 0:
        raise InvalidWindow(
            "a sliding window needs a size above zero", hint='For example hr.sliding("10 minutes", grace=…).'
        )
    return SlidingWindow(size=width, grace=_grace(grace))


def session(gap: str, *, grace: str) -> Window:
    """Windows of activity: a row no more than `gap` after another row of its group is in one session with it.

    A row out of order may join two sessions: both are withdrawn, and the joined one is inserted. `window_start` is the
    time of the first row, `window_end` that of the last row plus the gap. A row is late when its session, together with
    the kept rows and those of its epoch, is closed. Nothing reopens a closed session: a row that is not late begins
    another one, however close.

    Args:
        gap: the longest time between two rows of a session: `"30 minutes"`.
        grace: how long a session is still corrected after the watermark has passed its end: `"30 seconds"`.

    Raises:
        InvalidTime: a text is no duration.
        InvalidWindow: the gap is not above zero, or the grace is below it.

    """
    width = duration(gap, what="gap")
    if width <= 0:
        raise InvalidWindow("a session needs a gap above zero", hint='For example hr.session("30 minutes", grace=…).')
    return SessionWindow(gap=width, grace=_grace(grace))


def _window(kind: Kind, texts: tuple[str, str, str], grace: str, timezone: str | None) -> AlignedWindow:
    """Return windows from the texts of a size, a hop or step, and an offset."""
    allowed = _grace(grace)
    size, every = length(texts[0], what="window size"), length(texts[1], what="step" if kind == "cumulating" else "hop")
    offset = length(texts[2], what="offset")
    if min(size.months, size.micros, every.months, every.micros) < 0 or Length(0, 0) in (size, every):
        between = "step" if kind == "cumulating" else "hop"
        raise InvalidWindow(f"a window needs a size and a {between} above zero", hint='For example "10 minutes".')
    if timezone is not None or size.months or every.months or offset.months:
        return _of_calendar(kind, (size, every, offset), allowed, timezone)
    shift = offset.micros % (size.micros if kind == "cumulating" else every.micros)
    return AlignedWindow(kind=kind, size=size.micros, every=every.micros, grace=allowed, offset=shift)


def _of_calendar(kind: Kind, lengths: tuple[Length, Length, Length], grace: int, timezone: str | None) -> AlignedWindow:
    """Return windows that count periods of a zone's calendar: the longest that divide size, hop and offset."""
    size, every, offset = lengths
    shown_lengths = show_length(size), show_length(every), show_length(offset)
    months = Length(offset.months, 0)
    unit = common((size, every, months))
    if unit is None:
        raise InvalidWindow(
            f"{shown_lengths[0]}, {shown_lengths[1]} and an offset of {shown_lengths[2]} do not go together",
            detail="Months have no fixed number of days.",
            hint="Give size, hop and offset in months, or all in weeks, days or hours.",
        )
    if not unit.months and unit.micros % DAY and (unit.micros % HOUR or DAY % unit.micros):
        raise InvalidWindow(
            f"{shown_lengths[0]} is no period of a calendar"
            if size == every
            else f"{shown_lengths[0]} and {shown_lengths[1]} are no periods of a calendar",
            detail="These are whole months, weeks, days, and hours that divide a day.",
            hint="Leave timezone out: windows of a fixed length need none.",
        )
    unit_length = unit.months or unit.micros
    periods, hop, offset_periods = (
        part.months // unit_length if unit.months else part.micros // unit_length for part in (size, every, months)
    )
    cycle, weekly = (periods, size.weekly) if kind == "cumulating" else (hop, every.weekly)
    anchor = offset.micros + (MONDAY if weekly else 0)
    calendar = Calendar(check_zone(timezone or "UTC"), unit.months, unit.micros, anchor)
    return AlignedWindow(
        kind=kind,
        size=periods,
        every=hop,
        grace=grace,
        offset=offset_periods % cycle,
        calendar=calendar,
        shown_lengths=shown_lengths,
    )


def _grace(text: str) -> int:
    allowed = duration(text, what="grace")
    if allowed < 0:
        raise InvalidWindow("grace is below zero", hint='Say "0 seconds" for windows that are never corrected.')
    return allowed

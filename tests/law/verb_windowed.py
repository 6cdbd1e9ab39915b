"""Random windows over streams and tables with event time, early results, and windows of the results of windows."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING

from verb_aggregates import aggregate
from verb_grammar import Programs
from verb_meets import bare
from verb_overs import Suppressed
from verb_slides import Calendar, Sliding
from verb_steps import Step, Top, met, roots
from verb_values import DAY, INT, LONG, ORDERED, TEXT, TIME, TRUTH
from verb_windows import Windows, aggregated

if TYPE_CHECKING:
    from collections.abc import Callable

    from verb_overs import Keep, Over

CALENDARS = (
    ("tumbling", '"1 hour"', "hour", (1,), 1), ("tumbling", '"1 day"', "day", (1,), 1),
    ("tumbling", '"1 month"', "month", (1,), 1), ("hopping", '"2 hours", "1 hour"', "hour", (2,), 1),
    ("hopping", '"2 days", "1 day"', "day", (2,), 1), ("hopping", '"2 months", "1 month"', "month", (2,), 1),
    ("cumulating", '"3 hours", "1 hour"', "hour", (1, 2, 3), 3), ("cumulating", '"2 days", "1 day"', "day", (1, 2), 2),
    ("cumulating", '"1 year", "6 months"', "month", (6, 12), 12),
)  # fmt: skip
"""Windows of a calendar: the verb, its lengths, and these in periods."""
ZONES = ("Pacific/Fiji", "Asia/Kathmandu", "America/St_Johns", "UTC")


@dataclass
class WindowedPrograms(Programs):
    """Draws windows."""

    timed: list[Step] = field(default_factory=list)
    streaming: bool = False
    aside: bool = False
    """Whether what is made is for one reader: its rows carry their time along, and are no rows of a stream."""

    def _made(self, code: str, columns: dict[str, str], of: Callable, *ups: Step) -> Step:
        name = f"s{next(self.names)}"
        for end in (").late.as_table()", ").as_table()"):  # the step with state needs a name of its own
            if code.endswith(end) and ".named(" not in code:
                code = f'{code.removesuffix(end)}).named("{name}_"){end[1:]}'
        step = Step(name, code.replace("{name}", name), columns, of, ups)
        if not self.aside:
            (self.timed if self.streaming else self.steps).append(step)
        return step

    def _maybe_late(self, step: Step, code: str, columns: dict[str, str], made: Windows | Over | Keep,
                    of: Callable) -> Step:  # fmt: skip
        if self.dice.random() > 0.2 or step not in self.timed:
            return self._made(code, columns, of, step)
        return self._made(
            f"{code}.late.as_table()", made.step.columns, lambda world: [bare(row) for row in made.late(world)], step
        )

    def _trimmed(self, step: Step) -> Step:
        before, self.streaming = self.streaming, step in self.timed
        step = self._narrow(step)
        self.streaming = before
        return step

    def _windowed(self, step: Step) -> Step | None:
        """Return windows, some of them of the results of others."""
        if self.dice.random() < 0.25:
            return self._of_windows(step)
        return self._window(step, inner=False, of_table=step not in self.timed)

    def _of_windows(self, step: Step) -> Step | None:
        """Return windows of windows: results that are corrected take back what they were, and none is late."""
        self.aside = True
        final = self.dice.random() < 0.5
        above = self._window(step, inner=True, of_table=step not in self.timed, final=final)
        if above is not None:
            names = [name for name in above.columns if name not in ("window_start", "window_end", "place")]
            names = self.dice.sample(names, min(len(names), 5))
            own = [name for name in names if name != "b"]
            above = self._made(
                f'{above.name}.select({"".join(f"{name!r}, " for name in own)}b="window_start")',
                {name: above.columns[name] for name in own} | {"b": TIME},
                lambda world, above=above: [
                    {name: row[name] for name in own} | {"b": row["window_start"], "_at": row["_at"], "_epoch": 0}
                    for row in above.rows(world)
                ],
                above,
            )
            if self.dice.random() < 0.3:
                above = self._where(above)
        self.aside = False
        return above and self._window(above, inner=False, of_table=False, sessions=final)

    def _shape(self, step: Step, keys: list[str], *, of_table: bool, final: bool, sessions: bool) -> tuple:
        """Return the text of a window and what it makes of rows."""
        grace, size = self.dice.choice((0, 30, 60, 100)), self.dice.choice((60, 90, 120))
        every, offset = self.dice.choice((30, 60)), self.dice.choice((0, 0, 7))
        shape = self.dice.choice(("tumbling", "hopping", "cumulating", "sliding", "calendar",
                                  *["session"] * sessions))  # fmt: skip
        given = step, roots(step), tuple(keys)
        if shape == "sliding":
            size = self.dice.choice((30, 60, 90, 95))
            return f'hr.sliding("{size} s", grace="{grace} s"', Sliding(
                *given, (size,), 0, 0, grace, final, None, of_table
            )
        if shape == "calendar":
            return self._of_calendar(given, grace, of_table=of_table, final=final)
        gap = None
        shift = f', offset="{offset} seconds"' if offset else ""
        if shape == "tumbling":
            text, sizes, every = f'"{size} s"', (size,), size
        elif shape == "hopping":
            text, sizes = f'"{size} s", "{every} s"', (size,)
        elif shape == "cumulating":
            text, sizes, every = f'"{size} s", "30 s"', tuple(range(30, size + 1, 30)), size
        else:
            gap = self.dice.choice((20, 30, 60))
            text, sizes, shift = f'"{gap} s"', (0,), ""
        windows = Windows(*given, sizes, every, offset, grace, final, gap, of_table)
        return f'hr.{shape}({text}, grace="{grace} s"{shift}', windows

    def _of_calendar(self, given: tuple, grace: int, *, of_table: bool, final: bool) -> tuple[str, Windows]:
        """Return windows that begin some minutes after noon in Greenwich, where the rows are, or long before."""
        verb, lengths, period, sizes, every = self.dice.choice(CALENDARS)
        zone, minutes = self.dice.choice(ZONES), self.dice.choice((0, 3, 5, 8))
        offset = timedelta(minutes=minutes)
        if period != "hour" and zone == "UTC":
            offset += timedelta(hours=12)
        if period == "month":
            offset += timedelta(days=1 if zone == "Pacific/Fiji" else 0)
        seconds = int(offset.total_seconds())
        text = f'hr.{verb}({lengths}, grace="{grace} s", offset="{seconds} seconds", timezone="{zone}"'
        return text, Calendar(*given, sizes, every, seconds, grace, final, None, of_table, period, zone)

    def _keyed(self, step: Step) -> tuple[Step, str, list[str]]:
        """Return rows with the keys of a group, one of them maybe computed, and the text of the keys."""
        keys = self._keys(step)
        text = ", ".join(map(repr, keys))
        if self.dice.random() > 0.15 or "g" in step.columns:
            return step, text, keys
        kind = self.dice.choice((INT, LONG, TEXT, DAY, TRUTH))
        value = self._value(step.columns, kind)
        text = f'{text}{", " * bool(text)}g="CAST({value.sql} AS {kind})"'
        wide = Step(
            f"{step.name}_with_{next(self.names)}",
            step.code,
            step.columns | {"g": kind},
            lambda world: [row | {"g": value.of(row)} for row in step.rows(world)],
            step.ups,
            step.hold,
        )
        return wide, text, [*keys, "g"]

    def _window(self, step: Step, *, inner: bool, of_table: bool, final: bool | None = None,
                sessions: bool | None = None) -> Step | None:  # fmt: skip
        if len(step.columns) > 7:
            step = self._trimmed(step)
        final = self.dice.random() < 0.5 if final is None else final
        rows, text, keys = self._keyed(step)
        sessions = not of_table if sessions is None else sessions
        window, windows = self._shape(rows, keys, of_table=of_table, final=final, sessions=sessions)
        early = self.dice.choice((60, 90)) if not (final or inner or met(step)) and self.dice.random() < 0.15 else None
        emit = ', emit="final"' if final else "" if early is None else f', emit="every {early} s"'
        code = f"{step.name}.group_by({text}).window({window}){emit})"
        ranked = windows.gap is None and not isinstance(windows, Sliding) and early is None
        if ranked and self.dice.random() < 0.3:
            code, columns, of = self._window_top(code, windows) or (None, None, None)
            if code is None:
                return None
        else:
            drawn = {f"w{at}": aggregate(self, rows.columns, loose=False) for at in range(self.dice.choice((1, 2)))}
            given = ", ".join(f'{name}="{each.sql}"' for name, each in drawn.items())
            columns = {key: rows.columns[key] for key in keys} | {"window_start": TIME, "window_end": TIME}
            columns |= {name: each.kind for name, each in drawn.items()}
            code, of = f"{code}.agg({given})", aggregated(windows, drawn)
        if inner:
            made = self._made(code, columns, of, step)
            made.hold = windows.hold
            return made
        if early is not None:
            return self._early(step, code, columns, windows, of, early)
        return self._maybe_late(step, code, columns, windows, lambda world: [bare(row) for row in of(world)])

    def _early(self, step: Step, code: str, columns: dict[str, str], windows: Windows, of: Callable,
               every: int) -> Step:  # fmt: skip
        whole = Step(f"early_{next(self.names)}", "", columns, lambda world: [bare(row) for row in of(world)])
        behind = {name: hold + windows.hold for name, hold in windows.roots.items()}
        return self._made(code, columns, Suppressed(whole, behind, every).of, step)

    def _window_top(self, code: str, windows: Windows) -> tuple | None:
        step = windows.step
        fitting = [name for name, kind in step.columns.items() if kind in ORDERED and name not in windows.keys]
        if not fitting:
            return None
        name, down = self.dice.choice(fitting), self.dice.random() < 0.5
        count, ties = self.dice.choice((1, 1, 2, 3)), self.dice.choice(("row_number", "rank", "dense_rank"))
        rank = "place" if self.dice.random() < 0.4 and "place" not in step.columns else None
        top = Top(step, (), [(name, down, None)], count, ties, rank)
        more = (f', rank="{rank}"' if rank else "") + (f', ties="{ties}"' if ties != "row_number" else "")

        def of(world: dict) -> list:
            found = []
            for rows, start, end in windows.groups(world):
                for row in top.rows({step.name: [bare(row) for row in rows]}):
                    place = {rank: row.pop(rank)} if rank else {}
                    found.append(row | {"window_start": start, "window_end": end} | place
                                 | {"_at": windows.time(end), "_epoch": 0})  # fmt: skip
            return found

        columns = step.columns | {"window_start": TIME, "window_end": TIME} | ({"place": INT} if rank else {})
        by = f"{name} {'desc' if down else 'asc'}"
        return f'{code}.top({count}, "{by}"{more})', columns, of

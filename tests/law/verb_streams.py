"""Random programs of verbs over streams with event time, whose tables the verbs of `verb_grammar` go on with."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from verb_meets import AsOf, Lookup, Near, bare
from verb_overs import Dedupe, Keep, Over, Suppressed
from verb_steps import Join, Step, direct, held, least, met, roots, timed
from verb_values import EVENTS, INT, LONG, LOOSE, MAP, ORDERED, TABLES, TIME, Row, hashed, ordered
from verb_windowed import WindowedPrograms

if TYPE_CHECKING:
    from collections.abc import Callable, Container

    from verb_overs import Walk


@dataclass
class TimedPrograms(WindowedPrograms):
    """Draws steps of tables, and of streams with event time."""

    def keep(self, names: Container[str]) -> None:
        """Forget the steps that could not be made."""
        self.steps = [step for step in self.steps if step.name in names]
        self.timed = [step for step in self.timed if step.name in names]

    def _source(self) -> Step:
        return self._from_stream() if self.dice.random() < 0.4 else super()._source()

    # ---- streams ----

    def _stream(self) -> Step:
        self.streaming = True
        if self.timed and self.dice.random() < 0.3:
            step = self.dice.choice(self.timed)
        else:
            name = self.dice.choice([name for name in EVENTS if not TABLES[name][1]])
            step = self._made(f"streams[{name!r}]", dict(TABLES[name][0]), lambda world: world[name])
            if self.dice.random() < 0.15:
                step = self._branch(name, step.columns, "")
        for _ in range(self.dice.choice((0, 0, 1, 1, 2))):
            if len(step.columns) > 9:
                step = self._narrow(step)
            verb = self.dice.choice((self._where, self._where, self._with, self._narrow, self._renamed, self._explode,
                                     self._unions, self._dedupe, self._dedupe, self._looked_up,
                                     self._over, self._met, self._met))  # fmt: skip
            step = verb(step) or step
            self.streaming = True
        self.streaming = False
        return step

    def _unions(self, step: Step) -> Step | None:
        other = self._stream()
        self.streaming = True
        return self._union(step, other)

    def _dedupe(self, step: Step) -> Step | None:
        keys = self._keys(step, 1)
        if not keys or held(step):
            return None
        within = self.dice.choice((0, 60, 120))
        dedupe = Dedupe(step, roots(step), tuple(keys), within)
        listed = ", ".join(map(repr, keys))
        return self._made(f'{step.name}.dedupe({listed}, within="{within} seconds")', step.columns, dedupe.of, step)

    def _from_stream(self) -> Step:
        draw = self.dice.random()
        if draw < 0.15:
            return self._from_table()
        step = self._stream()
        if draw < 0.25:
            return self._suppressed(step) or self._plain(step)
        verb = self.dice.choices(
            (self._windowed, self._over, self._kept, self._looked_up, self._near, self._plain, self._grown,
             self._latest, self._as_of),
            (6, 4, 2, 4, 4, 1, 4, 2, 3),
        )[0]  # fmt: skip
        return verb(step) or self._plain(step)

    def _from_table(self) -> Step:
        """Return windows, or rows with those before them, of a table with event time."""
        step = self._made("tables['h']", dict(TABLES["h"][0]), lambda world: world["h"])
        if self.dice.random() < 0.5:
            step = self._where(step)
        return (self._windowed if self.dice.random() < 0.6 else self._over)(step) or step

    def _suppressed(self, step: Step) -> Step | None:
        table = None if met(step) else self._grown(step, self._aggregated)
        every = self.dice.choice((60, 90))
        if table is None:
            return None
        suppressed = Suppressed(table, roots(step), every)
        return self._made(f'{table.name}.suppress("{every} seconds")', table.columns, suppressed.of, table)

    def _plain(self, step: Step) -> Step:
        return self._made(
            f"{step.name}.as_table()", step.columns, lambda world: [bare(row) for row in step.rows(world)], step
        )

    def _with(self, step: Step) -> Step:
        before, self.streaming = self.streaming, step in self.timed
        made = super()._with(step)
        self.streaming = before
        return made

    def _grown(self, step: Step, verb: Callable | None = None) -> Step | None:
        """Return an aggregate or a top over all rows of a stream."""
        made = (verb or self.dice.choice((self._aggregated, self._top)))(step)
        if made is not None:
            of = made.of
            made.of = lambda world: [bare(row) for row in of(world)]
        return made

    def _latest(self, step: Step) -> Step | None:
        keys = self._keys(step, 1)
        lines = "".join(step.lines())
        if not keys or held(step) or any(f".{verb}(" in lines for verb in ("join", "union", "explode", "dedupe")):
            return None  # which of several rows of one time arrived later, is not known there

        def of(world: dict) -> list:
            found: dict[tuple, tuple[list, Row]] = {}
            for row in step.rows(world):
                key = hashed(row, keys)
                place = [row[name] for name in ("_at", "_epoch", "_place", "_nr")]
                if all(row[name] is not None for name in keys) and (key not in found or place >= found[key][0]):
                    found[key] = place, row
            return [bare(row) for _, row in found.values()]

        there = " and ".join(f"{name} is not null" for name in keys)  # others are dead letters, taken out everywhere
        listed = ", ".join(map(repr, keys))
        return self._made(f'{step.name}.where("{there}").latest({listed})', step.columns, of, step)

    def _next(self, step: Step) -> Step:
        draw = self.dice.random()
        if draw < 0.04 and MAP not in step.columns.values() and LOOSE not in step.columns.values():
            return self._changes(step)
        if draw < 0.06:
            return self._made(f"{step.name}.suppress(size=0)", step.columns, step.rows, step)
        return super()._next(step)

    def _changes(self, step: Step) -> Step:
        """Return how often each row is there, by the changes of the rows."""
        names = [name for name in step.columns if name != "n"]

        def of(world: dict) -> list:
            found: dict[tuple, list] = {}
            for row in step.rows(world):
                found.setdefault(hashed(row, names), []).append(row)
            return [{name: rows[0][name] for name in names} | {"n": len(rows)} for rows in found.values()]

        test = "_change_type in ('insert', 'update_postimage')"
        return self._made(
            f'{step.name}.changes().with_columns(n_="case when {test} then 1 else -1 end")'
            f'.group_by({", ".join(map(repr, names))}).agg(n="sum(n_)").named("{{name}}_n").where("n <> 0")',
            {name: step.columns[name] for name in names} | {"n": LONG},
            of,
            step,
        )

    def _kept(self, step: Step) -> Step | None:
        if held(step) and len(roots(step)) > 1:
            return None  # sources that have ended hold back no more, so time passes where others end an epoch later
        keep = self.dice.choice((0, 60, 150))
        kept = Keep(step, roots(step), keep)
        return self._maybe_late(
            step,
            f'{step.name}.as_table(keep="{keep} seconds")',
            step.columns,
            kept,
            lambda world: [bare(row) for row in kept.of(world)],
        )

    # ---- rows with the rows before them ----

    def _over(self, step: Step) -> Step | None:
        streaming, final = self.streaming, self.streaming or (step in self.timed and self.dice.random() < 0.5)
        keys = self._keys(step)
        rows, back = None, None
        columns = [name for name in ("o0", "o1", "o2", "o3", "o4", "o5") if name not in step.columns]
        draw = self.dice.random()
        if draw < 0.4:
            rows = self.dice.choice(((0, 0), (1, 0), (2, 0), (2, 1), (3, 3)))
            text = f"rows=({rows[0]}, {rows[1]})"
        elif draw < 0.6:
            back = self.dice.choice((0, 30, 60))
            text = f'range="{back} seconds"'
        else:
            text = ""
        drawn: dict[str, tuple[str, str, Walk]] = {}
        for name in columns[: self.dice.choice((1, 2, 3))]:
            drawn[name] = self._walk(step, lead=not final and back is None)
        walks = {name: walk for name, (_, _, walk) in drawn.items()}
        over = Over(step, roots(step), tuple(keys), rows, back, final, walks)
        text = ", ".join(filter(None, (text, "" if final else 'emit="changes"')))
        given = ", ".join(f'{name}="{sql}"' for name, (sql, _, _) in drawn.items())
        code = f"{step.name}.group_by({', '.join(map(repr, keys))}).over({text}).agg({given})"
        columns = step.columns | {name: kind for name, (_, kind, _) in drawn.items()}
        if streaming:
            return self._made(code, columns, over.of, step)
        made = self._maybe_late(step, code, columns, over, lambda world: [bare(row) for row in over.of(world)])
        if final and not made.code.endswith("as_table()"):
            made.code += f'.named("{made.name}_").as_table()'
        return made

    def _walk(self, step: Step, *, lead: bool) -> tuple[str, str, Walk]:
        fitting = [name for name, kind in step.columns.items() if kind in ORDERED]
        if not fitting or self.dice.random() < 0.15:
            return "row_number()", LONG, lambda _own, place, _rows: place + 1
        name = self.dice.choice(fitting)
        kind = step.columns[name]

        def there(rows: list) -> list:
            return sorted((row[name] for row in rows if row[name] is not None), key=ordered)

        def moved(own: list, at: int) -> object:
            return own[at][name] if 0 <= at < len(own) else None

        walks: list[tuple[str, str, Walk]] = [
            (f"lag({name})", kind, lambda own, place, _rows: moved(own, place - 1)),
            (f"lag({name}, 2)", kind, lambda own, place, _rows: moved(own, place - 2)),
            (f"first_value({name})", kind, lambda _own, _place, rows: rows[0][name] if rows else None),
            (f"last_value({name}, true)", kind,
             lambda _own, _place, rows: next((row[name] for row in rows[::-1] if row[name] is not None), None)),
            (f"count({name})", LONG, lambda _own, _place, rows: len(there(rows))),
            ("count(*)", LONG, lambda _own, _place, rows: len(rows)),
            (f"min({name})", kind, lambda _own, _place, rows: (there(rows) or [None])[0]),
            (f"max({name})", kind, lambda _own, _place, rows: (there(rows) or [None])[-1]),
        ]  # fmt: skip
        if lead:
            walks += [(f"lead({name})", kind, lambda own, place, _rows: moved(own, place + 1))] * 2
        if kind == INT:
            walks += [(f"sum({name})", LONG, lambda _own, _place, rows: sum(there(rows)) if there(rows) else None)] * 3
        return self.dice.choice(walks)

    # ---- joins ----

    def _pairs(self, step: Step, other: Step) -> list[tuple[str, str]]:
        return [
            (one, two)
            for one, kind in step.columns.items()
            for two, its in other.columns.items()
            if (kind == its and kind not in (LOOSE, MAP)) or {kind, its} == {INT, LONG}
        ]

    def _joining(self, step: Step, other: Step, hows: tuple[str, ...]) -> tuple[Join, str, object] | None:
        pairs = self._pairs(step, other)
        if not pairs:
            return None
        same = [pair for pair in pairs if pair[0] == pair[1]]
        on = [self.dice.choice(same if same and self.dice.random() < 0.5 else pairs)]
        join = Join(step, other, tuple(on), self.dice.choice(hows), f"_r{next(self.names)}")
        test = self.test(join.both) if self.dice.random() < 0.3 else None
        where = f', where="{test.sql}"' if test else ""
        text = repr(dict(on)) if on[0][0] != on[0][1] else repr([on[0][0]])
        code = f'{step.name}.join({other.name}, on={text}, how="{join.how}", suffix="{join.suffix}"{where}'
        return join, code, test.of if test else None

    def _looked_up(self, step: Step) -> Step | None:
        streaming, self.streaming = self.streaming, False
        if held(step):
            return None
        other = super()._source()
        if self.dice.random() < 0.5:
            other = self.dice.choice((self._where, self._with, self._aggregated, self._top))(other) or other
        if timed(other):
            return None
        if len(other.columns) > 7:
            other = self._narrow(other)
        drawn = self._joining(step, other, ("inner", "left"))
        if drawn is None:
            return None
        join, code, test = drawn
        lookup = Lookup(join, test, whole=not direct(other))
        if streaming:
            self.streaming = True
            return self._made(f"{code})", join.both, lookup.of, step, other)
        return self._made(
            f"{code}).as_table()", join.both, lambda world: [bare(row) for row in lookup.of(world)], step, other
        )

    def _as_of(self, step: Step) -> Step | None:
        times = self._named(step, (TIME,))
        keys = self._named(step, (INT, LONG))
        if not times or not keys or held(step):
            return None
        time, key, grace = self.dice.choice(times), self.dice.choice(keys), self.dice.choice((0, 30, 90))
        other = self._made("tables['h']", dict(TABLES["h"][0]), lambda world: world["h"])
        join = Join(step, other, ((key, "id"),), self.dice.choice(("inner", "left")), f"_r{next(self.names)}")
        test = self.test(join.both) if self.dice.random() < 0.3 else None
        where = f', where="{test.sql}"' if test else ""
        on = repr({key: "id"}) if key != "id" else "'id'"
        as_of = AsOf(join, test.of if test else None, least(roots(step), {"h": timedelta()}), "h", time, grace)
        return self._made(
            f'{step.name}.join({other.name}, on={on}, as_of="{time}", grace="{grace} seconds", how="{join.how}", '
            f'suffix="{join.suffix}"{where}).as_table()',
            join.both,
            as_of.of,
            step,
            other,
        )

    _HOWS = ("inner", "left", "right", "full", "semi", "anti")

    def _met(self, step: Step) -> Step | None:
        return self._within(step, ("inner", *self._HOWS), streaming=True)

    def _near(self, step: Step) -> Step | None:
        return self._within(step, self._HOWS, streaming=False)

    def _within(self, step: Step, hows: tuple[str, ...], *, streaming: bool) -> Step | None:
        other = self._stream()
        self.streaming = streaming
        if other is step or len(step.columns) + len(other.columns) > 16:
            return None
        drawn = self._joining(step, other, hows)
        if drawn is None:
            return None
        join, code, test = drawn
        low, high = sorted(self.dice.choice((-90, -30, 0, 30, 60)) for _ in range(2))
        grace = self.dice.choice((0, 0, 30, 90))
        near = Near(join, test, least(roots(step), roots(other)), low, high, grace)
        columns = step.columns if join.how in ("semi", "anti") else join.both
        code = f'{code}, within=("{low} seconds", "{high} seconds"), grace="{grace} seconds")'
        if streaming:
            made = self._made(code, columns, near.of, step, other)
            made.hold = near.hold
            return made
        return self._made(
            f"{code}.as_table()", columns, lambda world: [bare(row) for row in near.of(world)], step, other
        )

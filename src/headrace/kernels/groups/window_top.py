"""The n first rows of each window of a group: a ranking whose last column says in which window a row is.

Before the exchange that column has the row's pane, so that a row travels once, and only the first rows of each pane do;
after it a row enters the windows of its pane that are still open, each identified by its end. What a window keeps is
dropped when it closes; final results are given out then, and nothing before.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.base.names import quote
from headrace.kernels.counts import Counts
from headrace.kernels.groups.aggregate import concat_present
from headrace.kernels.groups.panes import PaneSql
from headrace.kernels.groups.partial import late_rows
from headrace.kernels.groups.periods import dated, numbered
from headrace.kernels.op import Operator, StepResult
from headrace.kernels.ranking import BEST, RankingRun, columns_of, group_of, terms_of
from headrace.kernels.state.tables import COUNT

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from headrace.kernels.delta import Delta
    from headrace.kernels.groups.windows import Panes
    from headrace.kernels.op import Context

PANE = "_headrace_pane"
"""The column with a row's pane, in addition to the user's own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignPane(Operator):
    """Rows with the pane that each is in; those whose windows are all closed are late."""

    panes: Panes

    def run(self, inputs: Sequence[Delta], context: Context) -> StepResult:
        """Return the rows in time with their panes."""
        rows = inputs[0].relation
        if rows is None:
            return StepResult()
        duck, panes, watermark, sql = context.duck, self.panes, context.watermark, PaneSql(self.panes)
        source = rows if panes.calendar is None else numbered(duck, panes.calendar, rows)
        inside = f"(SELECT *, {sql.of(sql.time)} AS {PANE} FROM {source} WHERE {sql.inside(sql.time)})"
        total = "coalesce(sum(abs(_weight)), 0)"
        if watermark is None:
            return StepResult(inside, counts=Counts(rows_in=int(duck.rows(f"SELECT {total} FROM {inside}")[0][0])))
        gone, begun = sql.gone(PANE, watermark), sql.closed(sql.first_end(PANE), watermark)
        every, late, partly = duck.rows(
            f"SELECT {total}, coalesce(sum(abs(_weight)) FILTER ({gone}), 0), "
            f"coalesce(sum(abs(_weight)) FILTER ({begun} AND NOT {gone}), 0) FROM {inside}"
        )[0]
        counts = Counts(rows_in=int(every), late=int(late), partly_late=int(partly))
        if not late:
            return StepResult(inside, counts=counts)
        late_ones = [] if self.late is None else [late_rows(duck, panes, rows, watermark)]
        return StepResult(f"(SELECT * FROM {inside} WHERE NOT {gone})", late=late_ones, counts=counts)


@dataclass
class WindowRankingRun(RankingRun):
    """One epoch of one ranking in windows in one shard."""

    watermark: int | None
    previous: int | None

    def run(self, parts: list[pa.Table]) -> pa.Table | None:
        """Take in rows with their panes; return the delta of the first n of each window, or the final results."""
        outputs = [super().run([self._entered(parts)])] if parts else []
        if self._final:
            outputs = []
        if self.watermark is not None and self.watermark != self.previous:
            outputs.append(self._close(self.watermark))
        delta = concat_present(outputs)
        if delta is not None and self._panes.calendar is not None:
            return dated(delta, self._panes.calendar)
        return delta

    @property
    def _panes(self) -> Panes:
        assert self.ranking.panes is not None  # noqa: S101 -- this class is for windows
        return self.ranking.panes

    @property
    def _final(self) -> bool:
        return self.ranking.final

    @property
    def _window(self) -> str:
        """The column that says in which window a row is: its end."""
        return columns_of(self.ranking)[-1]

    def _entered(self, parts: list[pa.Table]) -> pa.Table:
        """Return the rows once for each window of theirs that is open."""
        sql = PaneSql(self._panes)
        after = None if self.watermark is None else sql.closed_end(self.watermark)
        rows = " UNION ALL ".join(f"SELECT * FROM {self.duck.register(part)}" for part in parts)
        others = [*columns_of(self.ranking)[:-1], *terms_of(self.ranking), COUNT, "_time"]
        ends = f"unnest({sql.ends('_pane', after=after)}) AS {self._window}"
        named = f"SELECT {', '.join(others)}, {self._window} AS _pane FROM ({rows})"
        return self.duck.arrow(f"SELECT {', '.join([*others, ends])} FROM ({named})")

    # ---- what comes out ----

    def current(self, time: int) -> pa.Table:
        """Return the first rows of the open windows, as inserts with the times of their windows."""
        del time
        rows = self.duck.arrow(f"{self._given_out('true', self._stamp)} ORDER BY {self._order_given_out}")
        return rows if self._panes.calendar is None else dated(rows, self._panes.calendar)

    @property
    def _stamp(self) -> str:
        """SQL for the event time of a window's rows: the last moment inside."""
        return f"x.{self._window} - 1"

    @property
    def _order_given_out(self) -> str:
        groups = [f"x.{name}" for name in group_of(self.ranking)[:-1]]
        return ", ".join([f"x.{self._window}", *groups, "x._position", *self._tied("x")])

    def _delta(self, changed: str) -> pa.Table | None:
        return None if self._final else super()._delta(changed)

    def _named(self) -> list[str]:
        columns = zip(columns_of(self.ranking)[:-1], self.ranking.columns[:-1], strict=True)
        return [*(f"x.{inner} AS {quote(name)}" for inner, (name, _) in columns), *self._bounds()]

    def _bounds(self) -> list[str]:
        end = f"x.{self._window}"
        start = PaneSql(self._panes).start(end)
        return [f"make_timestamp({start}) AS window_start", f"make_timestamp({end}) AS window_end"]

    def _times(self, changed: str) -> str:
        group = group_of(self.ranking)
        return f"SELECT DISTINCT {', '.join(group)}, {self._window} - 1 AS _time FROM {changed}"

    def _close(self, watermark: int) -> pa.Table | None:
        """Return the final results of the windows that closed, and drop them."""
        gone = f"{self._window} <= {PaneSql(self._panes).closed_end(watermark)}"
        kept = [table for table in self.state.tables if self._has(table, gone)]
        final = self._closing(gone) if self._final and BEST in kept else None
        for table in kept:
            self.state.evict(table, gone)
        return final

    def _has(self, table: str, where: str) -> bool:
        return bool(self.duck.rows(f"SELECT EXISTS (FROM {self.state.name(table)} WHERE {where})")[0][0])

    def _closing(self, gone: str) -> pa.Table:
        return self.duck.arrow(f"{self._given_out(gone, self._stamp)} ORDER BY {self._order_given_out}")

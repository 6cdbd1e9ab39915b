"""Grouped aggregates, before the exchange: rows to partial groups, and the rows that are too late."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from headrace.kernels.aggregates.exact import layered
from headrace.kernels.counts import Counts
from headrace.kernels.groups import cells, whole_numbers
from headrace.kernels.groups.chunks import chunked
from headrace.kernels.groups.gaps import CHUNK, SessionSql
from headrace.kernels.groups.grouping import CallsAggregates
from headrace.kernels.groups.panes import PaneSql
from headrace.kernels.groups.periods import PERIOD, numbered
from headrace.kernels.groups.slides import SlideSql
from headrace.kernels.op import Operator, StepResult
from headrace.kernels.sql import by_position
from headrace.kernels.state.tables import COUNT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.kernels.delta import Delta
    from headrace.kernels.duck import Duck
    from headrace.kernels.groups.grouping import Grouping
    from headrace.kernels.groups.windows import Panes
    from headrace.kernels.op import Context

_NTH = "_headrace_nth"


@dataclass(frozen=True, slots=True, kw_only=True)
class Partial(CallsAggregates, Operator):
    """Rows to partial groups, before the exchange; `more` are the multisets.

    Of sessions the last of `more` are the rows of which only the state can tell whether they are late, as they are.
    """

    grouping: Grouping

    def run(self, inputs: Sequence[Delta], context: Context) -> StepResult:
        """Group the rows; rows whose windows are all closed at the watermark are late."""
        many, known = inputs[0].about >= cells.FEW, inputs[0].known
        if known and not (many and cells.covers(self.grouping)):
            groups = whole_numbers.partial(self.grouping, known)
            if groups is not None:
                return StepResult([groups], counts=Counts(rows_in=_total(groups)))
        rows = inputs[0].relation
        if rows is None:
            return StepResult()
        tables, result = self.grouped(context.duck, rows, context.watermark, many=many, known=known if many else None)
        result.delta, result.more = [tables[0]], [[table] for table in tables[1:]]
        return result

    def grouped(
        self, duck: Duck, rows: str, watermark: int | None, *, many: bool, known: Sequence[pa.Table] | None
    ) -> tuple[list[pa.Table], StepResult]:
        """Return the groups of relation `rows`, a table for each multiset, and what was late or counted."""
        grouping = self.grouping
        if grouping.session is not None:
            return _chunks(duck, grouping, rows, watermark, many=many, known=known)
        source = rows
        if grouping.panes is not None and grouping.panes.calendar is not None:
            source = numbered(duck, grouping.panes.calendar, rows)
        groups = cells.partial_groups(duck, grouping, source, known) if many and cells.covers(grouping) else None
        tables = [duck.arrow(partial_groups(grouping, source)) if groups is None else groups]
        tables += [duck.arrow(partial_values(grouping, number, source)) for number in range(len(grouping.multisets))]
        if not grouping.windowed or watermark is None:
            more = [pa.table({})] if grouping.held else []
            return [*tables, *more], StepResult(counts=Counts(rows_in=_total(tables[0])))
        return self._without_late(duck, rows, tables, watermark)

    def _without_late(
        self, duck: Duck, rows: str, tables: list[pa.Table], watermark: int
    ) -> tuple[list[pa.Table], StepResult]:
        sql = _windows(self.grouping)
        gone, begun = sql.gone("_pane", watermark), sql.begun("_pane", watermark)
        groups = duck.register(tables[0])
        every, late, partly = duck.rows(
            f"SELECT coalesce(sum(abs({COUNT})), 0), coalesce(sum(abs({COUNT})) FILTER ({gone}), 0), "
            f"coalesce(sum(abs({COUNT})) FILTER ({begun} AND NOT {gone}), 0) FROM {groups}"
        )[0]
        result = StepResult(counts=Counts(rows_in=int(every), late=int(late), partly_late=int(partly)))
        if late:
            names = [groups, *(duck.register(table) for table in tables[1:])]
            tables = [duck.arrow(f"SELECT * FROM {name} WHERE NOT {gone}") for name in names]
            if self.late is not None:
                result.late = [_late_rows(duck, self.grouping, rows, watermark)]
        if self.grouping.held:
            begun_rows = f"SELECT * FROM {rows} WHERE {sql.begun('_time', watermark)}"
            tables.append(duck.arrow(begun_rows) if late or partly else pa.table({}))
        return tables, result


def _chunks(
    duck: Duck, grouping: Grouping, rows: str, watermark: int | None, *, many: bool, known: Sequence[pa.Table] | None
) -> tuple[list[pa.Table], StepResult]:
    """Group the rows by chunks, except those that may be late: they are the last table, as they are."""
    assert grouping.session is not None  # noqa: S101 -- asked before
    sql, doubtful = SessionSql(grouping.session), pa.table({})
    if watermark is not None:
        doubtful = duck.arrow(f"SELECT * FROM {rows} WHERE {sql.closed('_time', watermark)}")
        rows = f"(SELECT * FROM {rows} WHERE NOT {sql.closed('_time', watermark)})" if doubtful.num_rows else rows
    groups = None
    if many and cells.covers(grouping) and not grouping.multisets:
        groups = cells.chunk_groups(duck, grouping, rows, None if doubtful.num_rows else known)
    if groups is not None:
        return [groups, doubtful], StepResult(counts=Counts(rows_in=_total(groups) + doubtful.num_rows))
    marked = chunked(duck, grouping.session, rows, [name for name, _, _ in grouping.keys])
    tables = [duck.arrow(partial_groups(grouping, marked))]
    tables += [duck.arrow(partial_values(grouping, number, marked)) for number in range(len(grouping.multisets))]
    counts = Counts(rows_in=_total(tables[0]) + doubtful.num_rows)
    return [*tables, doubtful], StepResult(counts=counts)


def _group_columns(grouping: Grouping) -> list[str]:
    columns = [f"{sql} AS k{i}" for i, (_, sql, _) in enumerate(grouping.keys)]
    if grouping.panes:
        sql = PaneSql(grouping.panes)
        columns.append(f"{sql.of(sql.time)} AS _pane")
    if grouping.session:
        columns.append(f"{CHUNK} AS _pane")
    if grouping.sliding:
        columns.append("_time AS _pane")
    return columns


def _only_inside(grouping: Grouping) -> str:
    if grouping.panes is None:
        return "true"
    sql = PaneSql(grouping.panes)
    return sql.inside(sql.time)


def partial_groups(grouping: Grouping, rows: str) -> str:
    """Return SQL for the partial groups of rows; those of sessions have their chunks.

    Groups in panes have no `_time`: what comes of them has the time of its window.
    """
    groups = _group_columns(grouping)
    count = "count(*)" if grouping.insert_only else "sum(_weight)::BIGINT"
    partials = [f"{accumulator.partial} AS p{i}" for i, accumulator in enumerate(grouping.accumulators)]
    columns = [*groups, f"{count} AS {COUNT}", *partials, *([] if grouping.panes else ["max(_time) AS _time"])]
    source = f"{layered(rows, grouping.layers)} WHERE {_only_inside(grouping)}"
    return f"SELECT {', '.join(columns)} FROM {source} {by_position(groups)} HAVING count(*) > 0"


def partial_values(grouping: Grouping, number: int, rows: str) -> str:
    """Return SQL for the values of rows, counted, that a multiset takes; rows of sessions have their chunks."""
    multiset = grouping.multisets[number]
    groups = _group_columns(grouping)
    groups += [f"{sql} AS {name}" for sql, (name, _) in zip(multiset.partial, multiset.columns, strict=True)]
    count = "count(*)" if grouping.insert_only else "sum(_weight)::BIGINT"
    return (
        f"SELECT {', '.join(groups)}, {count} AS {COUNT} FROM {rows} "
        f"WHERE ({multiset.where}) AND {_only_inside(grouping)} {by_position(groups)} HAVING {count} <> 0"
    )


def _windows(grouping: Grouping) -> PaneSql | SlideSql:
    if grouping.sliding is not None:
        return SlideSql(grouping.sliding)
    assert grouping.panes is not None  # noqa: S101 -- only windows have late rows, and sessions find theirs after the exchange
    return PaneSql(grouping.panes)


def _late_rows(duck: Duck, grouping: Grouping, rows: str, watermark: int) -> pa.Table:
    if grouping.panes is not None:
        return late_rows(duck, grouping.panes, rows, watermark)
    return duck.arrow(f"SELECT * FROM {rows} WHERE {_windows(grouping).gone('_time', watermark)}")


def late_rows(duck: Duck, panes: Panes, rows: str, watermark: int) -> pa.Table:
    """Return the rows whose windows are all closed at the watermark, as they are and in their order."""
    sql = PaneSql(panes)
    late = f"{sql.gone(sql.time, watermark)} AND {sql.inside(sql.time)}"
    if panes.calendar is None:
        return duck.arrow(f"SELECT * FROM {rows} WHERE {late}")
    ordered = f"(SELECT *, row_number() OVER () AS {_NTH} FROM {rows})"  # a join keeps no order
    dated = numbered(duck, panes.calendar, ordered)
    return duck.arrow(f"SELECT * EXCLUDE ({PERIOD}, {_NTH}) FROM {dated} WHERE {late} ORDER BY {_NTH}")


def _total(groups: pa.Table) -> int:
    return int(pc.sum(pc.abs(groups.column(COUNT))).as_py() or 0)

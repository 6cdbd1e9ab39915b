"""Grouped aggregates, before the exchange: rows to partial groups, and the rows that come too late."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from headrace.kernels.aggregates.exact import layered
from headrace.kernels.groups.chunks import chunked
from headrace.kernels.groups.gaps import CHUNK, SessionSql
from headrace.kernels.groups.grouped import COUNT, Counts, by_position
from headrace.kernels.groups.panes import PaneSql
from headrace.kernels.groups.periods import PERIOD, numbered
from headrace.kernels.groups.slides import SlideSql

if TYPE_CHECKING:
    from headrace.kernels.duck import Duck
    from headrace.kernels.spec import Grouping, Panes

_NTH = "_headrace_nth"


@dataclass
class Judged:
    """What became of a step's rows: partial groups, one table for each multiset, and the late rows."""

    tables: list[pa.Table]
    late: pa.Table | None
    counts: Counts = field(default_factory=Counts)


def partial(duck: Duck, grouping: Grouping, rows: str, watermark: int | None, *, want_late: bool) -> Judged:
    """Group the rows of relation `rows`; rows whose windows are all closed at the watermark are late."""
    if grouping.session is not None:
        return _chunks(duck, grouping, rows, watermark)
    placed = rows
    if grouping.panes is not None and grouping.panes.calendar is not None:
        placed = numbered(duck, grouping.panes.calendar, rows)
    made = [duck.arrow(partial_groups(grouping, placed))]
    made += [duck.arrow(partial_values(grouping, number, placed)) for number in range(len(grouping.values))]
    judged = Judged(made, None)
    if not grouping.windowed or watermark is None:
        judged.counts.rows_in = _total(made[0])
        return judged
    return _without_late(duck, grouping, rows, judged, watermark, want_late=want_late)


def _chunks(duck: Duck, grouping: Grouping, rows: str, watermark: int | None) -> Judged:
    """Group the rows by chunks, but for those that may be late: they are the last table, as they are."""
    assert grouping.session is not None  # noqa: S101 -- asked before
    sql, doubtful = SessionSql(grouping.session), pa.table({})
    if watermark is not None:
        doubtful = duck.arrow(f"SELECT * FROM {rows} WHERE {sql.closed('_time', watermark)}")
        rows = f"(SELECT * FROM {rows} WHERE NOT {sql.closed('_time', watermark)})" if doubtful.num_rows else rows
    marked = chunked(duck, grouping.session, rows, [name for name, _, _ in grouping.keys])
    made = [duck.arrow(partial_groups(grouping, marked))]
    made += [duck.arrow(partial_values(grouping, number, marked)) for number in range(len(grouping.values))]
    counts = Counts(rows_in=_total(made[0]) + doubtful.num_rows)
    return Judged([*made, doubtful], None, counts)


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
    """Return SQL for the partial groups of rows; those of sessions have their chunks."""
    groups = _group_columns(grouping)
    count = "count(*)" if grouping.insert_only else "sum(_weight)::BIGINT"
    made = [f"{piece.partial} AS p{i}" for i, piece in enumerate(grouping.pieces)]
    columns = [*groups, f"{count} AS {COUNT}", *made, "max(_time) AS _time"]
    source = f"{layered(rows, grouping.layers)} WHERE {_only_inside(grouping)}"
    return f"SELECT {', '.join(columns)} FROM {source} {by_position(groups)} HAVING count(*) > 0"


def partial_values(grouping: Grouping, number: int, rows: str) -> str:
    """Return SQL for what a multiset is given by rows; those of sessions have their chunks."""
    values = grouping.values[number]
    groups = _group_columns(grouping)
    groups += [f"{sql} AS {name}" for sql, (name, _) in zip(values.partial, values.columns, strict=True)]
    count = "count(*)" if grouping.insert_only else "sum(_weight)::BIGINT"
    return (
        f"SELECT {', '.join(groups)}, {count} AS {COUNT} FROM {rows} "
        f"WHERE ({values.where}) AND {_only_inside(grouping)} {by_position(groups)} HAVING {count} <> 0"
    )


def _without_late(
    duck: Duck, grouping: Grouping, rows: str, judged: Judged, watermark: int, *, want_late: bool
) -> Judged:
    sql = _windows(grouping)
    gone, begun = sql.gone("_pane", watermark), sql.begun("_pane", watermark)
    groups = duck.register(judged.tables[0])
    every, late, partly = duck.rows(
        f"SELECT coalesce(sum(abs({COUNT})), 0), coalesce(sum(abs({COUNT})) FILTER ({gone}), 0), "
        f"coalesce(sum(abs({COUNT})) FILTER ({begun} AND NOT {gone}), 0) FROM {groups}"
    )[0]
    judged.counts = Counts(rows_in=int(every), late=int(late), partly_late=int(partly))
    if late:
        names = [groups, *(duck.register(table) for table in judged.tables[1:])]
        judged.tables = [duck.arrow(f"SELECT * FROM {name} WHERE NOT {gone}") for name in names]
        if want_late:
            judged.late = _late_rows(duck, grouping, rows, watermark)
    return judged


def _windows(grouping: Grouping) -> PaneSql | SlideSql:
    if grouping.sliding is not None:
        return SlideSql(grouping.sliding)
    assert grouping.panes is not None  # noqa: S101 -- only windows have late rows, and sessions judge for themselves
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
    ordered = f"(SELECT *, row_number() OVER () AS {_NTH} FROM {rows})"  # to be joined keeps no order
    placed = numbered(duck, panes.calendar, ordered)
    return duck.arrow(f"SELECT * EXCLUDE ({PERIOD}, {_NTH}) FROM {placed} WHERE {late} ORDER BY {_NTH}")


def _total(groups: pa.Table) -> int:
    import pyarrow.compute as pc

    return int(pc.sum(pc.abs(groups.column(COUNT))).as_py() or 0)

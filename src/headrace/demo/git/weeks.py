"""The report of `headrace demo git` on weeks, corrections and late changes, and its check against git."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from headrace.base.text import counted
from headrace.base.time import MICROS, as_datetime
from headrace.demo.checks import Check, same
from headrace.demo.reports import Report, ReportTable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headrace.app import App
    from headrace.demo.git.history import History
    from headrace.log import Log

WEEK = 7 * 86_400
MONDAY = 4 * 86_400  # 1970-01-05
CLOSED_WEEKS, OPEN_WEEKS, FOLDERS, EXAMPLES = 3, 2, 3, 5

Row = dict[str, Any]
Cell = tuple[datetime, str]


def report(app: App, log: Log) -> Report:
    """Yield the weeks, what late commits did to them, and the changes that were late."""
    weekly, final = _cells(app, "weekly"), _cells(app, "weekly_final")
    yield ""
    yield from _weeks(weekly, final)
    yield from _corrections(weekly, _read_all(log, "weekly_changes"))
    yield from _late(app.view("late"))


def _cells(app: App, view: str) -> dict[Cell, Row]:
    rows: list[Row] = app.view(view).to_pylist()
    return {_cell(row): row for row in rows}


def _read_all(log: Log, name: str) -> pa.Table:
    topic = log.topic(name)
    ends, starts = topic.end_offsets(), topic.start_offsets()
    columns = ["window_start", "folder", "changes", "waited", "_change_type"]
    batches = [batch for p in ends for batch in topic.batches(p, starts[p], ends[p], columns=columns)]
    return pa.Table.from_batches(batches, schema=pa.schema([topic.schema.field(name) for name in columns]))


def _weeks(weekly: dict[Cell, Row], final: dict[Cell, Row]) -> Report:
    closed = {week for week, _ in final}
    weeks = sorted({week for week, _ in weekly}, reverse=True)
    shown = [week for week in weeks if week not in closed][:OPEN_WEEKS]
    shown += [week for week in weeks if week in closed][:CLOSED_WEEKS]
    rows = []
    for week in sorted(shown, reverse=True):
        busiest = sorted((row for (at, _), row in weekly.items() if at == week), key=lambda row: -row["changes"])
        for row in busiest[:FOLDERS]:
            final_row = final.get((week, row["folder"]))
            rows.append(
                {
                    "week of": week.date(),
                    "folder": row["folder"],
                    "commits": row["commits"],
                    "people": row["people"],
                    'emit="changes"': row["changes"],
                    'emit="final"': "not yet" if final_row is None else str(final_row["changes"]),
                }
            )
    columns = ("week of", "folder", "commits", "people", 'emit="changes"', 'emit="final"')
    title = "File changes a week, by top-level folder: the last weeks, the busiest folders"
    yield ReportTable(title=title, columns=columns, rows=rows)
    yield (f"{len(weekly):,} rows in all; {len(final):,} of them final: their weeks have closed.")
    yield ""


def _corrections(weekly: dict[Cell, Row], log: pa.Table) -> Report:
    """Yield the rows that old commits changed most: the first value in the changelog, and the view's value now."""
    kinds = log.column("_change_type")
    updates = log.filter(pc.equal(kinds, "update_postimage"))
    corrections = updates.group_by(["window_start", "folder"]).aggregate([([], "count_all")]).to_pylist()
    first: dict[Cell, Row] = {_cell(row): row for row in log.filter(pc.equal(kinds, "insert")).to_pylist()}
    rows = [
        {
            "week of": row["window_start"].date(),
            "folder": row["folder"],
            "said first": first[_cell(row)]["changes"],
            "corrections": corrected["count_all"],
            "says now": row["changes"],
            "by old commits": row["waited"] - first[_cell(row)]["waited"],
        }
        for corrected in corrections
        if (row := weekly.get(_cell(corrected))) is not None
    ]
    most = sorted((row for row in rows if row["by old commits"]), key=lambda row: -row["by old commits"])
    if most:
        columns = ("week of", "folder", "said first", "corrections", "says now", "by old commits")
        title = "Corrected most by commits that waited more than a week"
        yield ReportTable(title=title, columns=columns, rows=most[:EXAMPLES])
    waited = sum(row["waited"] for row in weekly.values())
    yield f"{len(updates):,} corrections in all; {waited:,} file changes had waited more than a week when they arrived."
    yield ""


def _cell(row: Row) -> Cell:
    return row["window_start"], row["folder"]


def _late(late: pa.Table) -> Report:
    if not late.num_rows:
        yield "Nothing arrived after its week had closed: the view and the topic `late` are empty."
        return
    commits = pc.count_distinct(late.column("commit")).as_py()
    rows = sorted(late.to_pylist(), key=lambda row: row["written"] - row["committed"])
    examples = {row["commit"]: row for row in reversed(rows)}
    shown = sorted(examples.values(), key=lambda row: row["written"] - row["committed"])[:EXAMPLES]
    entered = [
        {
            "commit": row["commit"][:10],
            "written": row["written"].date(),
            "entered": row["committed"].date(),
            "after": f"{(row['committed'] - row['written']) // timedelta(days=1)} days",
            "a path": row["path"],
        }
        for row in shown
    ]
    columns = ("commit", "written", "entered", "after", "a path")
    yield ReportTable(title="Late: after their week had closed", columns=columns, rows=entered)
    what = f"{counted(late.num_rows, 'file change')} of {counted(commits, 'commit')}"
    yield f"{what}: in no week, but in the view and the topic `late`."


def check(app: App, history: History) -> list[Check]:
    """Compare the views with what git itself counts."""
    folders: Counter[str] = Counter()
    cells: Counter[Cell] = Counter()
    for at, _, path in history.changes():
        folders[folder_of(path)] += 1
        cells[_week(at), folder_of(path)] += 1
    totals: list[Row] = app.view("totals").to_pylist()
    ours: list[Row] = app.view("folders").to_pylist()
    weekly, final = _cells(app, "weekly"), _cells(app, "weekly_final")
    seen = Counter({cell: row["changes"] for cell, row in weekly.items()}) + _late_cells(app.view("late").to_pylist())
    commits = {"commits": totals[0]["commits"] if totals else 0}
    return [
        same(f"commits: {commits['commits']:,}, as git rev-list --count says", commits, {"commits": history.count()}),
        same(
            f"file changes: {folders.total():,} in {len(folders):,} folders, as git log --name-status says",
            {row["folder"]: row["changes"] for row in ours},
            folders,
        ),
        same(f"weeks: {len(cells):,} rows, each with its late changes as many as git has", seen, cells),
        same(
            f"final: {len(final):,} rows, each equal to the corrected row",
            {cell: row["changes"] for cell, row in final.items()},
            {cell: weekly[cell]["changes"] for cell in final if cell in weekly},
        ),
    ]


def _late_cells(late: Iterable[Row]) -> Counter[Cell]:
    return Counter((_week(int(row["written"].timestamp())), row["folder"]) for row in late)


def folder_of(path: str) -> str:
    """Return the top-level folder of a path, as the program computes it."""
    return path.split("/", 1)[0] if "/" in path else "."


def _week(seconds: int) -> datetime:
    return as_datetime(((seconds - MONDAY) // WEEK * WEEK + MONDAY) * MICROS)

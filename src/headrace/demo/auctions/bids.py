"""Generated bids for `headrace demo auctions`, its report, and its check against a plain count."""

from __future__ import annotations

import random
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from headrace.demo.checks import Check, same
from headrace.demo.reports import Report, ReportTable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headrace.app import App
    from headrace.log import Log

SEED = 7
BIDS = 20_000
AUCTIONS = 25
START = 1_767_261_600_000  # 2026-01-01 10:00 UTC, in milliseconds
INTERVAL = 90  # milliseconds from one bid to the next
MINUTE = 60_000
LATE_SHARE, LATE_MOST = 0.02, 300_000  # this share arrives up to 300 000 ms late, the others up to 5 000 ms
EXAMPLES = 12

Row = dict[str, Any]
Cell = tuple[int, int]


def bids() -> Iterator[Row]:
    """Yield bids in the order in which they arrive; every call yields the same ones."""
    chance = random.Random(SEED)  # noqa: S311 -- a demo, not a secret
    for number in range(BIDS):
        delay = chance.randint(0, LATE_MOST if chance.random() < LATE_SHARE else 5_000)
        yield {
            "auction": chance.randrange(AUCTIONS),
            "bidder": chance.randrange(1_000),
            "price": round(100 * chance.paretovariate(1.2)),
            "at": START + number * INTERVAL - delay,
        }


def report(app: App, log: Log) -> Report:
    """Yield the last minutes, and how many bids were late."""
    rows: list[Row] = app.view("highest").to_pylist()
    final = {_cell(row): row for row in app.view("highest_final").to_pylist()}
    busy = sorted(rows, key=lambda row: (row["window_start"], row["bids"]), reverse=True)
    shown = [row for row in busy if _cell(row) not in final][: EXAMPLES // 2]
    shown += [row for row in busy if _cell(row) in final][: EXAMPLES // 2]
    for row in shown:
        final_row = final.get(_cell(row))
        row["minute"] = row["window_start"]
        row['emit="changes"'] = row["price"]
        row['emit="final"'] = "not yet" if final_row is None else str(final_row["price"])
    columns = ("minute", "auction", "bids", "bidder", 'emit="changes"', 'emit="final"')
    yield ""
    yield ReportTable(title="Highest bid of each minute", columns=columns, rows=shown)
    changes = log.topic("highest_changes")
    written = sum(changes.end_offsets().values())
    yield (
        f"{len(rows):,} rows in all, {len(final):,} of them final; {written:,} rows of changes in `highest_changes`."
    )
    yield f"{app.view('late').num_rows:,} bids arrived after their minute had closed: in the view and the topic `late`."


def check(app: App) -> list[Check]:
    """Compare the views with a plain count over the same bids."""
    count: defaultdict[int, int] = defaultdict(int)
    cells: defaultdict[Cell, int] = defaultdict(int)
    for bid in bids():
        count[bid["auction"]] += 1
        cells[bid["at"] // MINUTE, bid["auction"]] += 1
    seen: defaultdict[Cell, int] = defaultdict(int)
    for row in app.view("highest").to_pylist():
        seen[_cell(row)] += row["bids"]
    for row in app.view("late").to_pylist():
        seen[int(row["at"].timestamp() * 1_000) // MINUTE, row["auction"]] += 1
    highest = {_cell(row): (row["bids"], row["price"]) for row in app.view("highest").to_pylist()}
    final = {_cell(row): (row["bids"], row["price"]) for row in app.view("highest_final").to_pylist()}
    totals = {row["auction"]: row["bids"] for row in app.view("auctions").to_pylist()}
    return [
        same(f"bids: {BIDS:,} in {len(count)} auctions, as a plain count says", totals, count),
        same(f"minutes: {len(cells):,} rows, each with its late bids as many as there were", seen, cells),
        same(
            f"final: {len(final):,} rows, each equal to the corrected row",
            final,
            {cell: highest[cell] for cell in final if cell in highest},
        ),
    ]


def _cell(row: Row) -> Cell:
    return int(row["window_start"].timestamp() * 1_000) // MINUTE, row["auction"]

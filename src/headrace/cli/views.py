"""`headrace views`: the tables that an app serves, as of its last complete epoch."""

from __future__ import annotations

import csv
import sys
from typing import TYPE_CHECKING, Any

import click

from headrace.base.schema import to_ddl
from headrace.base.text import counted
from headrace.cli.output import Commands, example, json_option, note, on_terminal, say, say_json, say_rows
from headrace.cli.places import Served, open_views, storage_options
from headrace.cli.stop import Stop
from headrace.cli.values import as_text
from headrace.engine.private import open_view
from headrace.engine.recovery.view_damage import refuse_gone
from headrace.engine.storage import Storage
from headrace.views.store import ViewDescription

if TYPE_CHECKING:
    from pathlib import Path

    from headrace.views.store import Snapshot

LOOK_SECONDS = 0.5


@click.group(cls=Commands)
def views() -> None:
    """List and show the views of an app; they can be read while it runs, and always show a complete epoch."""


@views.command("list", epilog=example("headrace views list --app app.py"))
@storage_options
@json_option
def list_(*, storage: Path | None, app: str | None, as_json: bool) -> None:
    """List the views: their keys, rows and columns."""
    served = open_views(storage, app)
    refuse_gone(Storage(served.storage, ""))
    with served.views.snapshot() as now:
        described = {name: now.describe(name) for name in now.names()}
    rows = [
        {"view": name, "rows": view.rows, "key": _key(view.key), "columns": to_ddl(view.schema)}
        for name, view in described.items()
    ]
    if as_json:
        say_json([row | {"key": described[row["view"]].key} for row in rows])  # type: ignore[index] # the name is a text
    elif rows:
        say_rows(rows, ["view", "rows", "key", "columns"])
    else:
        note("there are no views yet")


def _key(key: tuple[str, ...] | None) -> str:
    return "a bag of rows" if key is None else ", ".join(key) or "a single row"


@views.command(
    epilog=example(
        "headrace views show orders_by_user --limit 20", "headrace views show orders_by_user --csv > orders.csv"
    )
)
@click.argument("name")
@storage_options
@click.option("--limit", type=click.IntRange(min=0), help="Show at most this many rows.")
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV with a header.")
@click.option("--watch", is_flag=True, help="Show it again whenever an epoch has changed it, until Ctrl-C.")
@json_option
def show(
    name: str, *, storage: Path | None, app: str | None, limit: int | None, as_csv: bool, watch: bool, as_json: bool
) -> None:
    """Show the rows of the view NAME, sorted by its key."""
    if as_csv and as_json:
        raise click.UsageError("--csv and --json exclude each other")
    served = open_views(storage, app)
    source = served.views
    style = "csv" if as_csv else "json" if as_json else "table"
    if not watch:
        with source.snapshot() as now:
            _show(now, served, name, limit=limit, style=style)
        return
    _watch(served, name, limit, style)


def _watch(served: Served, name: str, limit: int | None, style: str) -> None:
    stop, seen = Stop(quiet=True), None
    with stop.listening():
        while not stop.requested:
            with served.views.snapshot() as now:
                if now.applied() != seen:
                    if on_terminal() and style == "table":
                        click.clear()
                    _show(now, served, name, limit=limit, style=style)
                    sys.stdout.flush()
                    seen = now.applied()
            stop.wait(LOOK_SECONDS)


def _show(now: Snapshot, served: Served, name: str, *, limit: int | None, style: str) -> None:
    if name not in now.names():
        refuse_gone(Storage(served.storage, ""))
    if name in served.declared and name not in now.names():  # the app has not run yet
        node = served.declared[name]
        what = ViewDescription(schema=node.schema, key=node.key, rows=0)
        table = node.schema.empty_table()
    else:
        what, table = now.describe(name), open_view(served.storage, name, now.read(name))
    rows: list[dict[str, Any]] = table[:limit].to_pylist(maps_as_pydicts="strict")
    if style == "json":
        say_json({"view": name, "epoch": now.applied(), "key": what.key, "count": what.rows, "rows": rows})
    elif style == "csv":
        out = csv.writer(sys.stdout, lineterminator="\n")
        out.writerow(table.column_names)
        out.writerows([as_text(value) for value in row.values()] for row in rows)
    else:
        say_rows(rows, table.column_names)
        more = f", the first {len(rows)} shown" if len(rows) < what.rows else ""
        epoch = now.applied()
        when = f"as of epoch {epoch}" if epoch >= 0 else "before the first epoch"
        note(f"view {name}: {counted(what.rows, 'row')}{more}, {when}")
        if not rows and what.rows == 0:
            say("(no rows yet)")

"""`headrace status`: what an app has done; works whether it runs or not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from headrace.base.errors import StorageOfAnother
from headrace.base.text import counted
from headrace.cli.output import example, json_option, say, say_json, say_rows
from headrace.cli.places import check_storage
from headrace.cli.programs import load_app, program_argument
from headrace.cli.values import shown
from headrace.engine.storage import Storage

if TYPE_CHECKING:
    from pathlib import Path

    from headrace.app import App


TOP_REASONS = 5


@click.command(epilog=example("headrace status app.py"))
@program_argument
@json_option
def status(file: str, *, storage: Path | None, as_json: bool) -> None:
    """Show what the app in FILE has done: rows, lag, watermarks, state, late rows; also while it runs.

    \b
    lag           records that are not read yet
    dead letters  records that could not be read, or on which an expression failed: topic TOPIC.dead, with the reason
    lost          records that the retention of the topic removed before they were read
    late          rows that came after their windows had closed: in no result, but in the step's .late
    partly late   rows that were late for some of their windows; the other windows have them
    too old       rows that needed versions of a table which an as-of join no longer keeps
    carrier       what runs the app: spark, or in-process (headrace run --local)
    """  # noqa: D301 -- click's mark for lines that it leaves as they are
    app = load_app(file, storage=storage)
    check_owner(app, storage)
    now = app.status()
    if as_json:
        say_json(now)
        return
    say_status(now)


def check_owner(app: App, given: Path | None) -> None:
    """Refuse a storage that belongs to another app, or that was `given` by a name that is mistyped.

    Raises:
        StorageOfAnother: it belongs to another app.
        NoStorage: it was given, and there is none.

    """
    if given is not None:
        check_storage(given)
    owner = Storage(app.storage, app.name).about().get("app", app.name)
    if owner != app.name:
        raise StorageOfAnother(str(app.storage), owner=owner, app=app.name)


def say_status(now: dict[str, Any]) -> None:
    """Print a status for people."""
    state = _state(now)
    if now["epoch"] is None:
        say(f"app {now['app']} {state}; it has not run an epoch yet")
    else:
        lag = counted(now["lag"], "row")
        say(f"app {now['app']} {state}; epoch {now['epoch']} ended at {shown(now['at'])} UTC; lag {lag}")
    if now.get("restarts"):
        say(f"started again {counted(now['restarts'], 'time')} after failures that may pass")
    if now.get("last_error"):
        say(f"last error: {now['last_error']}")
    _say_part("sources", now["sources"], ("rows", "lag", "watermark", "dead", "lost"), {"dead": "dead letters"})
    for name, dead in now["dead"].items():
        say()
        say(f"dead letters of {name}: {dead['rows']:,}, by reason")
        for reason, count in list(dead["reasons"].items())[:TOP_REASONS]:
            say(f"  {count:>9,}  {shown(reason)}")
    rare = [count for count in ("partly_late", "too_old") if any(step[count] for step in now["steps"].values())]
    _say_part("steps", now["steps"], ("rows_in", "rows_out", "state_rows", "late", *rare, "watermark"), {})
    sinks = (
        ("rows", "guarantee", "failing")
        if any("failing" in sink for sink in now["sinks"].values())
        else ("rows", "guarantee")
    )
    _say_part("sinks", now["sinks"], sinks, {})
    feeds = {step: {**state, "progress": feed_progress(state)} for step, state in now.get("feeds", {}).items()}
    said = ("progress",) if any(state["progress"] for state in feeds.values()) else ()
    _say_part("feeds", feeds, ("state", "rows", "dead", *said, "error"), {"dead": "dead letters"})


def feed_progress(state: dict[str, Any]) -> str:
    """Return what a feed says of itself, for people."""
    parts = []
    if state.get("phase") == "snapshot":
        of = f" of about {state['of']:,}" if state.get("of") else ""
        parts.append(f"snapshot of {state['table']}: {state['done']:,}{of} rows")
    if state.get("lag_seconds") is not None:
        parts.append(f"{state['lag_seconds']:.1f} s behind")
    if state.get("lag_bytes") is not None:
        parts.append(f"{state['lag_bytes']:,} bytes behind")
    if state.get("warning"):
        parts.append(f"warning: {state['warning']}")
    return "; ".join(parts)


def _state(now: dict[str, Any]) -> str:
    carrier = f" ({now['carrier']})" if now.get("carrier") else ""
    texts = {
        "starting": f"is starting{carrier}",
        "running": f"runs{carrier}",
        "retrying": f"failed, and starts again at {shown(now.get('next_try'))} UTC",
        "failed": "does not run: it failed",
        "killed": "does not run: its process was killed",
    }
    return texts.get(now.get("state", ""), "runs" if now["running"] else "does not run")


def _say_part(title: str, part: dict[str, dict[str, Any]], columns: tuple[str, ...], names: dict[str, str]) -> None:
    if part:
        head = [names.get(column, column.replace("_", " ")) for column in columns]
        rows = [
            {title: name} | {label: facts[column] for label, column in zip(head, columns, strict=True)}
            for name, facts in part.items()
        ]
        say()
        say_rows(rows, [title, *head])

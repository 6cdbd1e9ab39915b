"""`headrace connect`: the feeds of a program alone, what they need outside, and tables that are read anew."""

from __future__ import annotations

import signal
import threading
from contextlib import closing
from typing import TYPE_CHECKING, Any

import click

from headrace.base.blame import did_you_mean
from headrace.base.errors import InvalidPlan
from headrace.base.text import counted
from headrace.base.time import SystemClock
from headrace.cli.output import Commands, example, json_option, note, say, say_json
from headrace.cli.programs import load_app, program_argument
from headrace.cli.status import feed_progress
from headrace.connect.embedded.requests import request_again
from headrace.engine.feeds import Feeds
from headrace.engine.outside import Outside
from headrace.engine.storage import Storage

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from headrace.app import App
    from headrace.connect.feed import Feed

LOOK_SECONDS = 0.5


@click.group(cls=Commands)
def connect() -> None:
    """Run connectors without the app."""


@connect.command(epilog=example("headrace connect run app.py", "headrace connect run app.py --until-ended --json"))
@program_argument
@click.option("--until-ended", is_flag=True, help="End when every feed has landed all its records.")
@json_option
def run(file: str, *, storage: Path | None, until_ended: bool, as_json: bool) -> None:
    """Run the feeds of the app in FILE: they land records in its topics, and the app may be down.

    Ctrl-C or SIGTERM stop them after the append under way; the next run, here or in the app, continues there. One
    process at a time runs a feed: while the app runs its feeds, these wait.
    """
    app = load_app(file, storage=storage)
    outside = Outside(app.plan(), app.storage, app.topics, clock=SystemClock(), partitions=_shards(app))
    declared = list(outside.feeds())
    if not declared:
        outside.close()
        raise InvalidPlan(
            f'the app "{app.name}" has no feeds',
            hint="Give one to a stream or table: app.stream(…, source=files.lines(…)).",
        )
    feeds = Feeds(declared, outside.topics, _read_of(app))
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, frame: stop.set())  # noqa: ARG005 -- what signal asks for
    if not as_json:
        note(f"running {counted(len(declared), 'feed')} of app {app.name} …")
    try:
        _watch(feeds, stop, until_ended=until_ended, show=_show_json if as_json else _show)
    finally:
        feeds.stop()
        outside.close()
    feeds.check()
    (_show_json if as_json else _show)(feeds.status())


def _watch(feeds: Feeds, stop: threading.Event, *, until_ended: bool, show: Callable[[dict[str, Any]], None]) -> None:
    shown: dict[str, Any] = {}
    while not stop.wait(LOOK_SECONDS):
        feeds.check()
        if until_ended and feeds.ended:
            return
        now = feeds.status()
        if now != shown:
            show(now)
            shown = now


@connect.command(epilog=example("headrace connect install app.py"))
@program_argument
@json_option
def install(file: str, *, storage: Path | None, as_json: bool) -> None:
    """Make what the feeds of the app in FILE need outside: triggers of SQLite. It may be repeated."""
    _arrange(file, storage, "made", lambda feed: feed.install(), as_json=as_json)


@connect.command(epilog=example("headrace connect remove app.py"))
@program_argument
@json_option
def remove(file: str, *, storage: Path | None, as_json: bool) -> None:
    """Remove what the feeds of the app in FILE made outside: triggers of SQLite, slots of PostgreSQL.

    Changes that were not captured yet are lost. Topics stay.
    """
    _arrange(file, storage, "removed", lambda feed: feed.remove(), as_json=as_json)


@connect.command(epilog=example("headrace connect snapshot app.py customers"))
@program_argument
@click.argument("topics", nargs=-1, required=True, metavar="TOPIC…")
@json_option
def snapshot(file: str, *, topics: tuple[str, ...], storage: Path | None, as_json: bool) -> None:
    """Read the tables behind TOPICs of the app in FILE anew, while their changes go on.

    Every row is landed again, and rows that the table does not have any more are deleted. The app, or
    `headrace connect run`, does it when it runs; `status` shows how far it is.
    """
    app = load_app(file, storage=storage)
    outside = Outside(app.plan(), app.storage, app.topics, clock=SystemClock(), partitions=_shards(app))
    with closing(outside):
        captured = {spec.name for _, feed, spec in outside.feeds() if feed.reader_group is not None}
        for topic in topics:
            if topic not in captured:
                raise InvalidPlan(
                    f'no feed follows a table into the topic "{topic}"',
                    hint=did_you_mean(topic, captured) or "Name the topic of a table with a source of a database.",
                )
        requests = [request_again(outside.log, topic) for topic in topics]
    if as_json:
        say_json({"requests": [{"id": each.id, "topic": each.topic} for each in requests]})
        return
    for each in requests:
        say(f"{each.topic}: will be read anew when the app or `headrace connect run` runs")


def _arrange(file: str, storage: Path | None, done: str, do: Callable[[Feed], str | None], *, as_json: bool) -> None:
    """Do something for each feed of an app, and say what was done."""
    app = load_app(file, storage=storage)
    feeds = {node.topic: node.feed for node in app.plan().sources() if node.feed is not None}
    what = {topic: do(feed) for topic, feed in feeds.items()}
    if as_json:
        say_json({done: what})
        return
    if not what:
        raise InvalidPlan(f'the app "{app.name}" has no feeds')
    for topic, each in what.items():
        say(f"{topic}: {each} {done}" if each else f"{topic}: nothing to do")


def _show(states: dict[str, Any]) -> None:
    for step, state in states.items():
        dead = f", {counted(state['dead'], 'dead letter')}" if state["dead"] else ""
        progress = feed_progress(state)
        why = f" ({state['error']})" if state["error"] else ""
        say(f"{step}: {state['state']}{why}, {counted(state['rows'], 'row')} landed{dead}{progress and '; '}{progress}")


def _show_json(states: dict[str, Any]) -> None:
    say_json({"feeds": states}, indent=None)


def _read_of(app: App) -> Callable[[str], int]:
    """Return a function from a step to the number of records that the app had read at its last commit."""
    storage = Storage(app.storage, app.name)

    def read(step: str) -> int:
        last = storage.last_epoch()
        sources = {} if last is None else storage.read_commit(last).sources
        return sum(sources[step].offsets.values()) if step in sources else 0

    return read


def _shards(app: App) -> int:
    stored: int | None = Storage(app.storage, app.name).about().get("shards")
    return app.shards or stored or 1

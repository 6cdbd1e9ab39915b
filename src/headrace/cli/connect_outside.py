"""`headrace connect install`, `remove` and `snapshot`: what feeds need outside, and tables that are read anew."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import click

from headrace.base.blame import did_you_mean
from headrace.base.errors import InvalidPlan
from headrace.base.time import SystemClock
from headrace.cli.output import example, json_option, say, say_json
from headrace.cli.programs import load_app, program_argument
from headrace.connect.embedded.requests import request_again
from headrace.engine.connectors.units import shards_of
from headrace.engine.outside import Outside

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from headrace.connect.feed import Feed


@click.command(epilog=example("headrace connect install app.py"))
@program_argument
@json_option
def install(file: str, *, storage: Path | None, as_json: bool) -> None:
    """Make what the feeds of the app in FILE need outside: triggers of SQLite. It may be repeated."""
    _arrange(file, storage, "made", lambda feed: feed.install(), as_json=as_json)


@click.command(epilog=example("headrace connect remove app.py"))
@program_argument
@json_option
def remove(file: str, *, storage: Path | None, as_json: bool) -> None:
    """Remove what the feeds of the app in FILE made outside: triggers of SQLite, slots of PostgreSQL.

    Changes that were not captured yet are lost. Topics stay.
    """
    _arrange(file, storage, "removed", lambda feed: feed.remove(), as_json=as_json)


@click.command(epilog=example("headrace connect snapshot app.py customers"))
@program_argument
@click.argument("topics", nargs=-1, required=True, metavar="TOPIC…")
@json_option
def snapshot(file: str, *, topics: tuple[str, ...], storage: Path | None, as_json: bool) -> None:
    """Read the tables behind TOPICs of the app in FILE anew, while their changes go on.

    Every row is landed again, and rows that the table does not have any more are deleted. The app, or
    `headrace connect run`, does it when it runs; `status` shows how far it is.
    """
    app = load_app(file, storage=storage)
    outside = Outside(app.plan(), app.storage, app.topics, clock=SystemClock(), partitions=shards_of(app))
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

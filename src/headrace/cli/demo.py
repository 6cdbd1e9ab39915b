"""`headrace demo`: programs that show what Headrace does, on input that is at hand."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from headrace.base.errors import PlanError, did_you_mean
from headrace.cli import bids, git_files, git_report
from headrace.cli.demo_feed import feed, make_room, part_size, start
from headrace.cli.git_log import History, NoHistory, by_topic
from headrace.cli.output import console, example, json_option, note, on_terminal, say, say_json, say_rows
from headrace.cli.programs import load_app
from headrace.cli.values import counted
from headrace.engine.topics import log_path
from headrace.log import Log
from headrace.views.sqlite import SqliteViews

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from headrace.app import App
    from headrace.cli.demo_check import Check
    from headrace.views.sqlite import SqliteSnapshot

DEMOS = {
    "git": "the history of a git repository: weeks, corrected by commits that come late; the files, and their owners",
    "auctions": "generated bids: the highest of each minute, although some arrive late",
}


@dataclass(frozen=True, kw_only=True)
class Demo:
    """A program, its input, and how to show and check what came of it."""

    name: str
    program: Path
    by_topic: Callable[[list[dict[str, Any]]], dict[str, list[dict[str, Any]]]]
    unit: str
    total: int
    rows: Callable[[], Iterable[dict[str, Any]]]
    report: Callable[[SqliteSnapshot, Log], None]
    check: Callable[[SqliteSnapshot], list[Check]]
    look: tuple[str, str]


class UnknownDemo(PlanError):
    """There is no demo of this name."""

    condition = "UNKNOWN_DEMO"


@click.command(epilog=example("headrace demo git", "headrace demo git --repo ../other-clone"))
@click.argument("name", required=False)
@click.option(
    "--repo",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    help="A folder in a git clone [the current one]; for the demo git.",
)
@click.option(
    "--storage",
    type=click.Path(path_type=Path, file_okay=False),
    help="Where the demo keeps what it makes [.headrace/demo-NAME]; an earlier run there is forgotten.",
)
@click.option("--carrier", type=click.Choice(["spark", "in-process"]), default="spark", help="What runs it [spark].")
@json_option
def demo(
    name: str | None, *, repo: Path | None, storage: Path | None, carrier: Literal["spark", "in-process"], as_json: bool
) -> None:
    """Run the demo NAME, and check its results; without a name, list the demos."""
    if name is None:
        _list(as_json=as_json)
        return
    if name not in DEMOS:
        raise UnknownDemo(
            f'there is no demo "{name}"', detail=f"There are: {', '.join(DEMOS)}.", hint=did_you_mean(name, DEMOS)
        )
    chosen = _git(repo) if name == "git" else _auctions()
    app = load_app(str(chosen.program), storage=storage)
    facts, checks = _run(chosen, app, carrier, as_json=as_json)
    if as_json:
        say_json(facts | {"checks": [check._asdict() for check in checks], "holds": all(c.holds for c in checks)})
    if not all(check.holds for check in checks):
        raise SystemExit(1)


def _list(*, as_json: bool) -> None:
    rows = [{"demo": name, "what": what} for name, what in DEMOS.items()]
    if as_json:
        say_json(rows)
        return
    say_rows(rows, ["demo", "what"])
    note("Run one: headrace demo git")


# ---- which one ----


def _git(repo: Path | None) -> Demo:
    """Return the demo on git's history, or the one on generated bids where there is none."""
    try:
        history = History.of(repo if repo is not None else Path())
        total = history.count()
    except NoHistory as error:
        note(f"There is no git history to show: {error.what}. Here are generated auction bids instead.")
        return _auctions()
    note(f"The stream: the history of {history.root}, {counted(total, 'commit')} on its main line.")
    if history.shallow:
        note("This clone is shallow: its first commit stands for all that was before it.")
    return Demo(
        name="git",
        program=Path(__file__).with_name("demo_git.py"),
        by_topic=by_topic,
        unit="commits",
        total=total,
        rows=history.commits,
        report=_git_report,
        check=lambda now: [*git_report.check(now, history), *git_files.check(now, history)],
        look=("weekly", "weekly_changes"),
    )


def _git_report(now: SqliteSnapshot, log: Log) -> None:
    git_report.report(now, log)
    git_files.report(now)


def _auctions() -> Demo:
    return Demo(
        name="auctions",
        program=Path(__file__).with_name("demo_auctions.py"),
        by_topic=lambda part: {"bids": part},
        unit="bids",
        total=bids.BIDS,
        rows=bids.bids,
        report=bids.report,
        check=bids.check,
        look=("highest", "highest_changes"),
    )


# ---- how it goes ----


def _run(demo: Demo, app: App, carrier: str, *, as_json: bool) -> tuple[dict[str, Any], list[Check]]:
    if make_room(app):
        note(f"Forgot an earlier run in {app.storage}.")
    running = start(app, carrier)
    try:
        seconds = feed(app, running, rows=demo.rows(), by_topic=demo.by_topic, total=demo.total)
        status = running.status()
    finally:
        running.stop()
    with SqliteViews(app.storage / "views.db").snapshot() as now, Log(log_path(app.storage, app.topics)) as log:
        if not as_json:
            demo.report(now, log)
        note(f"Counting the {demo.unit} in another way …")
        checks = demo.check(now)
    handled = sum(step["rows_in"] for step in status["steps"].values())
    facts = {
        "demo": demo.name,
        "carrier": carrier,
        "storage": app.storage,
        demo.unit: demo.total,
        "rows": handled,
        "seconds": round(seconds, 3),
        "rows_per_second": round(handled / seconds, 1),
        "parts": -(-demo.total // part_size(demo.total)),
        "epochs": status["epoch"] + 1,
        "late": max(step["late"] for step in status["steps"].values()),
    }
    if not as_json:
        _say_checks(checks)
        _say_speed(demo, facts)
        _say_where(demo, app)
    return facts, checks


def _say_checks(checks: list[Check]) -> None:
    say()
    for check in checks:
        mark, style = ("✔", "bold green") if check.holds else ("✘", "bold red")
        if on_terminal():
            console().print(mark, style=style, end=" ")
            console().print(check.what, markup=False)
        else:
            say(f"{mark} {check.what}")
        if check.differs:
            say(f"  {check.differs}")


def _say_speed(demo: Demo, facts: dict[str, Any]) -> None:
    say()
    say(
        f"{demo.total:,} {demo.unit} in {facts['seconds']:.1f} s, in {facts['parts']} parts, each awaited before the "
        f"next: {facts['epochs']} epochs; the steps took in {facts['rows']:,} rows, "
        f"{facts['rows_per_second']:,.0f} rows/s"
    )


def _say_where(demo: Demo, app: App) -> None:
    view, topic = demo.look
    storage = shlex.quote(_near(app.storage))
    log = shlex.quote(_near(log_path(app.storage, app.topics)))
    program, me = shlex.quote(_near(demo.program)), _me()
    say()
    say("Look further:")
    say(f"  {me} views list --storage {storage}")
    say(f"  {me} views show {view} --storage {storage} --limit 20")
    say(f"  {me} topics list --log {log}")
    say(f"  {me} topics consume {topic} --log {log} --limit 5")
    say(f"  {me} status {program} --storage {storage}")
    say(f"  {me} explain {program}")
    say(f"The program that you saw: {program}")


def _near(path: Path) -> str:
    """Return a path as short as it can be said from here."""
    whole = str(path.absolute())
    here = os.path.relpath(whole)
    return here if len(here) < len(whole) else whole


def _me() -> str:
    """Return how this command was called, so that what we suggest works when pasted."""
    called = Path(sys.argv[0])
    if called.name != "headrace" or shutil.which("headrace") == str(called):
        return "headrace"
    return shlex.quote(_near(called))

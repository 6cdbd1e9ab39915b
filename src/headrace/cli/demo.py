"""`headrace demo`: run a demo, print its report and its checks."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from headrace.cli.demo_progress import progress, waiting
from headrace.cli.output import console, example, json_option, note, on_terminal, say, say_json, say_rows
from headrace.cli.parameters import FOLDER
from headrace.cli.programs import load_app
from headrace.connect.embedded import log_path
from headrace.demo import carriers
from headrace.demo.catalogue import DEMOS, Demo, find_demo
from headrace.demo.feeding import facts, feed

if TYPE_CHECKING:
    from headrace.app import App
    from headrace.demo.checks import Check
    from headrace.demo.reports import Report

Carrier = Literal["spark", "in-process"]


@click.command(epilog=example("headrace demo git", "headrace demo git --repo ../other-clone"))
@click.argument("name", required=False)
@click.option(
    "--repo",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    help="A folder in a git clone [the current one]; for the demo git.",
)
@click.option(
    "--storage",
    type=FOLDER,
    help="The demo's storage [.headrace/demo-NAME]; what an earlier run left there is removed.",
)
@click.option("--carrier", type=click.Choice(["spark", "in-process"]), default="spark", help="What runs it [spark].")
@json_option
def demo(name: str | None, *, repo: Path | None, storage: Path | None, carrier: Carrier, as_json: bool) -> None:
    """Run the demo NAME, and check its results; without a name, list the demos."""
    if name is None:
        _list(as_json=as_json)
        return
    chosen = find_demo(name, repo)
    for line in chosen.notes:
        note(line)
    app = load_app(str(chosen.program), storage=storage)
    figures, checks = _run(chosen, app, carrier, as_json=as_json)
    holds = all(check.holds for check in checks)
    if as_json:
        say_json(figures | {"checks": [check._asdict() for check in checks], "holds": holds})
    if not holds:
        raise SystemExit(1)


def _list(*, as_json: bool) -> None:
    rows = [{"demo": name, "what": what} for name, what in DEMOS.items()]
    if as_json:
        say_json(rows)
        return
    say_rows(rows, ["demo", "what"])
    note("Run one: headrace demo git")


def _run(demo: Demo, app: App, carrier: Carrier, *, as_json: bool) -> tuple[dict[str, Any], list[Check]]:
    if carriers.forget_earlier_run(app):
        note(f"Forgot an earlier run in {app.storage}.")
    running = _start(app, carrier)
    try:
        with progress(demo.unit, demo.total) as show:
            seconds = feed(demo, app, running, progress=show)
        status = running.status()
    finally:
        running.stop()
    if not as_json:
        with carriers.open_log(app) as log:
            _say_report(demo.report(app, log))
    note(f"Counting the {demo.unit} in another way …")
    checks = demo.check(app)
    figures = facts(demo, app, carrier=carrier, seconds=seconds, status=status)
    if not as_json:
        _say_checks(checks)
        _say_speed(demo, figures)
        _say_where(demo, app)
    return figures, checks


def _start(app: App, carrier: Carrier) -> carriers.Carried:
    if carrier != "spark":
        return carriers.start(app, carrier)
    with waiting("starting Spark (a JVM and its Python workers) …"):
        return carriers.start(app, carrier)


# ---- what is printed ----


def _say_report(report: Report) -> None:
    for part in report:
        if isinstance(part, str):
            say(part)
        else:
            say_rows(part.rows, part.columns, title=part.title)


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
        f"{demo.total:,} {demo.unit} in {facts['seconds']:.1f} s, in {facts['parts']} parts, each processed before the "
        f"next one: {facts['epochs']} epochs; the steps took in {facts['rows']:,} rows, "
        f"{facts['rows_per_second']:,.0f} rows/s"
    )


def _say_where(demo: Demo, app: App) -> None:
    view, topic = demo.look
    storage = shlex.quote(_relative(app.storage))
    log = shlex.quote(_relative(log_path(app.storage, app.topics)))
    program, me = shlex.quote(_relative(demo.program)), _me()
    say()
    say("Look further:")
    say(f"  {me} views list --storage {storage}")
    say(f"  {me} views show {view} --storage {storage} --limit 20")
    say(f"  {me} topics list --log {log}")
    say(f"  {me} topics consume {topic} --log {log} --limit 5")
    say(f"  {me} status {program} --storage {storage}")
    say(f"  {me} explain {program}")
    say(f"The program that you saw: {program}")


def _relative(path: Path) -> str:
    """Return a path relative to the current folder where that is shorter."""
    absolute = str(path.absolute())
    relative = os.path.relpath(absolute)
    return relative if len(relative) < len(absolute) else absolute


def _me() -> str:
    """Return how this command was called, so that the suggested commands work when pasted."""
    called = Path(sys.argv[0])
    if called.name != "headrace" or shutil.which("headrace") == str(called):
        return "headrace"
    return shlex.quote(_relative(called))

"""`headrace connect run` and what looks after connectors while they run: status, pause, resume, restart, offsets."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headrace.base.blame import did_you_mean
from headrace.base.errors import HeadraceError, InvalidPlan
from headrace.base.text import counted
from headrace.cli.connect_outside import install, remove, snapshot
from headrace.cli.output import Commands, example, json_option, note, say, say_json, say_rows
from headrace.cli.parameters import FOLDER
from headrace.cli.programs import NoApp, load_app
from headrace.cli.status import feed_progress
from headrace.cli.stop import Stop
from headrace.engine.connectors.checking import NOT_ASKED, check_app
from headrace.engine.connectors.control import FOLDER as CONNECT
from headrace.engine.connectors.control import Control, Wishes, reported
from headrace.engine.connectors.offsets import forget_offset, offsets_of, set_offset
from headrace.engine.connectors.worker import Worker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from headrace.app import App

LOOK_SECONDS = 0.5
_OK: dict[str | None, bool | None] = {None: True, NOT_ASKED: None}
_SAID: dict[Any, str] = {True: "yes", False: "no", None: "not asked"}
COLUMNS = ["connector", "kind", "state", "worker", "rows", "dead", "error"]


class ConnectorsFailed(HeadraceError):
    """Connectors have failed, and none is left that can go on."""

    condition = "CONNECTORS_FAILED"


class ConfigsWrong(HeadraceError):
    """Connectors could not run as they are configured."""

    condition = "CONFIG_WRONG"


@click.group(cls=Commands)
def connect() -> None:
    """Run connectors without Spark, and look after them."""


for _command in (install, remove, snapshot):
    connect.add_command(_command)


def target_argument(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the argument FILE|DIR (as `target`) and the option `--storage`."""
    storage = click.option("--storage", type=FOLDER, help="Use this storage, not the one in FILE.")
    return click.argument("target", metavar="FILE|DIR")(storage(command))


@connect.command(
    epilog=example(
        "headrace connect run app.py",
        "headrace connect run connectors/",
        "headrace connect run app.py --until-ended --json",
        title="Examples",
    )
)
@target_argument
@click.option("--sinks", is_flag=True, help="Also run apps without state, which take rows out, in this process.")
@click.option("--until-ended", is_flag=True, help="End when every connector has ended: all records are landed.")
@json_option
def run(target: str, *, storage: Path | None, sinks: bool, until_ended: bool, as_json: bool) -> None:
    """Run the connectors of the app in FILE, or of all apps in DIR, without Spark; the apps may be down.

    Feeds land records in topics. Start the same command again, in other processes of this machine, to share the
    connectors: who dies is replaced at once. A connector that fails waits for `headrace connect restart`, and the
    others go on; when none can go on, the command fails. Ctrl-C or SIGTERM stop it after the append under way.

    One process at a time runs a feed: while the app runs its feeds, these wait.
    """
    apps, folder = _apps(target, storage)
    worker = Worker(apps, folder, sinks=sinks, until_ended=until_ended)
    stop = Stop(quiet=True)
    show = _show_json if as_json else _show
    if not as_json:
        note(f"running {counted(len(worker.units), 'connector')} of {', '.join(app.name for app in apps)} …")
    short = len(apps) == 1
    with stop.listening():
        try:
            _watch(worker, stop, until_ended=until_ended, show=lambda states: show(_named(states, short=short)))
        finally:
            last = _named(worker.close(), short=short)
    show(last)
    failed = {name: state["error"] for name, state in last.items() if state["state"] == "failed"}
    if failed and not stop.requested:
        raise ConnectorsFailed(
            "; ".join(f"{name} failed: {error}" for name, error in failed.items()),
            hint="Mend the cause and start again: what was landed stays, and the connector goes on behind it.",
        )


def _watch(worker: Worker, stop: Stop, *, until_ended: bool, show: Callable[[dict[str, Any]], None]) -> None:
    """Show what changes until the end."""
    shown: dict[str, Any] = {}
    while True:
        worker.look()
        now = worker.states()
        if now != shown:
            show(now)
            shown = now
        over = worker.ended and (until_ended or all(state["state"] == "failed" for state in now.values()))
        if over or stop.wait(LOOK_SECONDS):
            return


@connect.command(epilog=example("headrace connect status connectors/", "headrace connect status app.py --json"))
@target_argument
@json_option
def status(target: str, *, storage: Path | None, as_json: bool) -> None:
    """Show the connectors of FILE or DIR: state, the process that runs it, what it has landed since, the last error."""
    apps, _ = _apps(target, storage)
    rows = [row for app in apps for row in _status_of(app, short=len(apps) == 1)]
    if as_json:
        say_json({"connectors": rows})
    else:
        say_rows([row | {"error": row["error"] or ""} for row in rows], COLUMNS)


def _status_of(app: App, *, short: bool) -> list[dict[str, Any]]:
    said, wishes = reported(app.storage), Wishes(app.storage)
    found = []
    for name in {*_connectors(app), *(said if app.name in said else ())}:
        state = said.get(name, {"kind": "feed", "state": "paused" if wishes.paused(name) else "stopped"})
        empty = {"worker": None, "rows": None, "dead": None, "error": None}
        label = name if short or name == app.name else f"{app.name}/{name}"
        found.append({"connector": label} | empty | state | {"paused": wishes.paused(name)})
    return sorted(found, key=lambda row: str(row["connector"]))


@connect.command(epilog=example("headrace connect pause app.py orders"))
@target_argument
@click.argument("connectors", nargs=-1, required=True, metavar="CONNECTOR…")
@json_option
def pause(target: str, *, connectors: tuple[str, ...], storage: Path | None, as_json: bool) -> None:
    """Let connectors land nothing until `resume`, whoever runs them, also after a restart. It takes about a second.

    A CONNECTOR is the topic that a feed fills (`app/topic` where DIR has several apps), or with --sinks an app. Tables
    that share a reader pause together.
    """
    _want(target, storage, connectors, lambda control, names: control.pause(names, paused=True), "paused", as_json)


@connect.command(epilog=example("headrace connect resume app.py orders"))
@target_argument
@click.argument("connectors", nargs=-1, required=True, metavar="CONNECTOR…")
@json_option
def resume(target: str, *, connectors: tuple[str, ...], storage: Path | None, as_json: bool) -> None:
    """Let paused connectors go on behind the last record that they have landed."""
    _want(target, storage, connectors, lambda control, names: control.pause(names, paused=False), "resumed", as_json)


@connect.command(epilog=example("headrace connect restart app.py orders"))
@target_argument
@click.argument("connectors", nargs=-1, required=True, metavar="CONNECTOR…")
@json_option
def restart(target: str, *, connectors: tuple[str, ...], storage: Path | None, as_json: bool) -> None:
    """End connectors and begin them again: their connections are made anew, and one that has failed is tried again."""
    _want(target, storage, connectors, lambda control, names: control.restart(names), "restarted", as_json)


def _want(  # noqa: PLR0917 -- of three commands
    target: str,
    storage: Path | None,
    connectors: Sequence[str],
    do: Callable[[Control, Iterable[str]], None],
    done: str,
    as_json: bool,  # noqa: FBT001
) -> None:
    apps, _ = _apps(target, storage)
    chosen = _chosen(apps, connectors)
    for app, names in chosen:
        with closing(Control(app.storage)) as control:
            do(control, names)
    names = [name for _, some in chosen for name in some]
    if as_json:
        say_json({done: names})
        return
    for name in names:
        say(f"{name}: will be {done} where it runs")


@connect.command(epilog=example("headrace connect check app.py", "headrace connect check connectors/ --json"))
@target_argument
@json_option
def check(target: str, *, storage: Path | None, as_json: bool) -> None:
    """Check the connectors of FILE or DIR before anything starts; nothing is created or changed.

    Each feed is asked outside whether it is reachable, takes the credentials, and has what is read; the columns there
    are compared with those that the program declares, and these with the topic. Each sink is asked where it can tell;
    the others are "not asked".
    """
    apps, _ = _apps(target, storage)
    found = [
        {
            "connector": name if len(apps) == 1 else f"{app.name}/{name}",
            "ok": _OK.get(problem, False),
            "problem": problem,
        }
        for app in apps
        for name, problem in check_app(app)
    ]
    if as_json:
        say_json({"connectors": found})
    else:
        say_rows([row | {"ok": _SAID[row["ok"]], "problem": row["problem"] or ""} for row in found],
                 ["connector", "ok", "problem"])  # fmt: skip
    wrong = [str(row["connector"]) for row in found if row["ok"] is False]
    if wrong:
        raise ConfigsWrong(f"{counted(len(wrong), 'connector')} cannot run so: {', '.join(wrong)}")


@connect.group(cls=Commands)
def offsets() -> None:
    """Look at how far feeds are outside, or move them."""


@offsets.command("list", epilog=example("headrace connect offsets list app.py"))
@target_argument
@json_option
def list_offsets(target: str, *, storage: Path | None, as_json: bool) -> None:
    """Show where each feed goes on: the position that was stored with its last append; feeds may run meanwhile."""
    apps, _ = _apps(target, storage)
    rows = [
        {"connector": name if len(apps) == 1 else f"{app.name}/{name}", "position": position}
        for app in apps
        for name, position in offsets_of(app).items()
    ]
    if as_json:
        say_json({"offsets": rows})
    else:
        say_rows([row | {"position": row["position"] or "at the beginning"} for row in rows], ["connector", "position"])


@offsets.command("reset", epilog=example("headrace connect offsets reset app.py orders"))
@target_argument
@click.argument("connector")
@click.option("--to", metavar="POSITION", help="Go on at this position, as `list` shows it; else at the beginning.")
@json_option
def reset_offsets(target: str, *, connector: str, to: str | None, storage: Path | None, as_json: bool) -> None:
    """Let a feed begin again, or go on elsewhere. It must not run.

    Topics keep what was landed: what is read again comes once more.
    """
    apps, _ = _apps(target, storage)
    ((app, (name,)),) = _chosen(apps, [connector])
    if to is None:
        forget_offset(app, name)
    else:
        set_offset(app, name, to)
    if as_json:
        say_json({"connector": name, "position": to})
    else:
        say(f"{name}: will {'begin again' if to is None else f'go on at {to}'}")


def _apps(target: str, storage: Path | None) -> tuple[list[App], Path]:
    """Return the apps of a program or a folder, and where their workers meet."""
    path = Path(target)
    if not path.is_dir():
        app = load_app(target, storage=storage)
        return [app], app.storage / CONNECT / "group"
    if storage is not None:
        raise click.UsageError("--storage is for a FILE: each app in DIR has its own.")
    apps: dict[str, App] = {}
    for file in sorted(path.glob("*.py")):
        try:
            app = load_app(str(file))
        except NoApp:
            continue
        if app.name in apps:
            raise InvalidPlan(f'two programs in {path} have an app "{app.name}"', hint="Give each a name of its own.")
        apps[app.name] = app
    if not apps:
        raise NoApp(f"no program in {path} has an app", hint='At module level, write app = hr.App("name").')
    return list(apps.values()), path / ".headrace" / CONNECT


def _connectors(app: App) -> list[str]:
    return list(dict.fromkeys(str(node.topic) for node in app.plan().sources() if node.feed is not None))


def _chosen(apps: Sequence[App], wanted: Sequence[str]) -> list[tuple[App, list[str]]]:
    """Return the connectors of these names, by app; a topic that several apps have needs the app's name."""
    known = [(app, name) for app in apps for name in [*_connectors(app), app.name]]
    chosen: dict[str, tuple[App, list[str]]] = {}
    for text in wanted:
        found = [(app, name) for app, name in known if text in (name, f"{app.name}/{name}")]
        if len(found) != 1:
            names = [name if len(apps) == 1 else f"{app.name}/{name}" for app, name in known if name != app.name]
            raise InvalidPlan(
                f'{"several apps have" if found else "there is no"} connector "{text}"',
                detail=f"There are: {', '.join(names) or 'none'}.",
                hint="Name the app too: app/topic." if found else did_you_mean(text, names),
            )
        app, name = found[0]
        chosen.setdefault(app.name, (app, []))[1].append(name)
    return list(chosen.values())


def _named(states: dict[str, Any], *, short: bool) -> dict[str, Any]:
    return {name.partition("/")[2] if short else name: state for name, state in states.items()}


def _show(states: dict[str, Any]) -> None:
    for name, state in states.items():
        dead = f", {counted(state['dead'], 'dead letter')}" if state["dead"] else ""
        progress = feed_progress(state)
        why = f" ({state['error']})" if state["error"] else ""
        say(f"{name}: {state['state']}{why}, {counted(state['rows'], 'row')} landed{dead}{progress and '; '}{progress}")


def _show_json(states: dict[str, Any]) -> None:
    say_json({"feeds": states}, indent=None)

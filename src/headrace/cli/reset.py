"""`headrace reset`: forget what an app has computed, after asking."""

from __future__ import annotations

import shlex
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from headrace.base.errors import PlanError, StorageBusy
from headrace.base.text import counted
from headrace.cli.output import example, json_option, note, say, say_json
from headrace.cli.programs import load_app, program_argument
from headrace.cli.status import check_owner
from headrace.engine import reset as engine
from headrace.engine.storage import Storage

if TYPE_CHECKING:
    from pathlib import Path

    from headrace.engine.reset import ResetImpact


class NotConfirmed(PlanError):
    """Something would be destroyed, and nobody can be asked."""

    condition = "NOT_CONFIRMED"


@click.command(epilog=example("headrace reset app.py --step orders_agg_by_user"))
@program_argument
@click.option("--step", help="Forget only this step, the stateful steps below it and the views that they feed.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option
def reset(file: str, *, storage: Path | None, step: str | None, yes: bool, as_json: bool) -> None:
    """Forget what the app in FILE has computed: its state, its views, and how far it has read.

    Topics stay. After a whole reset the app reads its sources from their start, and appends to its output topics
    again. After the reset of a step the app goes on from where it is, and the step starts empty.
    """
    app = load_app(file, storage=storage)
    check_owner(app)
    kept, plan = Storage(app.storage, app.name), app.plan()
    if kept.busy():
        holder = (app.storage / "lock").read_text().strip()
        raise StorageBusy(str(app.storage), holder)
    loss = engine.would_lose(plan, app.storage, step)
    if not loss.nothing:
        if not yes:
            _ask(app.name, loss, step, shlex.join(["headrace", *sys.argv[1:]]))
        engine.reset(plan, app.storage, step)
    if as_json:
        say_json({"app": app.name, "step": step, "reset": not loss.nothing, "lost": asdict(loss)})
    elif loss.nothing:
        say(f"app {app.name} has computed nothing yet: there is nothing to forget")
    else:
        what = f'the step "{step}" of app {app.name}' if step else f"app {app.name}"
        say(f"reset {what}; its topics are as they were")


def _ask(app: str, loss: ResetImpact, step: str | None, command: str) -> None:
    for line in _losses(app, loss, step):
        note(line)
    if not sys.stdin.isatty():
        raise NotConfirmed("this destroys what is listed above, and there is no one to ask", hint=f"{command} --yes")
    click.confirm("Go on?", abort=True, err=True)


def _losses(app: str, loss: ResetImpact, step: str | None) -> list[str]:
    lines = [f'Resetting the step "{step}" of app {app} loses:' if step else f"Resetting app {app} loses:"]
    if step is None and loss.epoch is not None:
        lines.append(f"  how far it has read: {counted(loss.rows_read, 'row')} in {counted(loss.epoch + 1, 'epoch')}")
    lines += [f'  the state of step "{name}": {counted(rows, "row")}' for name, rows in loss.steps.items()]
    lines += [f'  the view "{name}": {counted(rows, "row")}' for name, rows in loss.views.items()]
    if step is None:
        lines.append("Topics stay: what was written to them stays too, and will be appended to again.")
    else:
        lines.append("The app goes on from the offsets it has: the step will know only what comes from now on.")
    if loss.topics:
        lines.append(f"Topics written below it: {', '.join(loss.topics)}.")
    return lines

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
    """Something would be destroyed, and standard input is not a terminal: nobody can confirm it."""

    condition = "NOT_CONFIRMED"


@click.command(epilog=example("headrace reset app.py --step orders_agg_by_user"))
@program_argument
@click.option("--step", help="Forget only this step, the stateful steps below it and the views that they feed.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option
def reset(file: str, *, storage: Path | None, step: str | None, yes: bool, as_json: bool) -> None:
    """Forget what the app in FILE has computed: its state, its views, and how far it has read.

    Topics stay. After a whole reset the app reads its sources from their start, and appends to its output topics
    again. After the reset of a step the app goes on from where it is; its next start computes the step again, from
    what the steps above keep, or from the topics as far back as they go.
    """
    app = load_app(file, storage=storage)
    check_owner(app, storage)
    storage_files, plan = Storage(app.storage, app.name), app.plan()
    if storage_files.busy():
        holder = (app.storage / "lock").read_text(errors="replace").strip()
        raise StorageBusy(str(app.storage), holder)
    impact = engine.reset_impact(plan, app.storage, step)
    if not impact.nothing:
        if not yes:
            _ask(app.name, impact, step, shlex.join(["headrace", *sys.argv[1:]]))
        engine.reset(plan, app.storage, step)
    if as_json:
        say_json({"app": app.name, "step": step, "reset": not impact.nothing, "lost": asdict(impact)})
    elif impact.nothing:
        say(f"app {app.name} has computed nothing yet: there is nothing to forget")
    else:
        what = f'the step "{step}" of app {app.name}' if step else f"app {app.name}"
        say(f"reset {what}; its topics are as they were")


def _ask(app: str, impact: ResetImpact, step: str | None, command: str) -> None:
    for line in _impact_lines(app, impact, step):
        note(line)
    if not sys.stdin.isatty():
        raise NotConfirmed("this destroys what is listed above, and nobody can be asked", hint=f"{command} --yes")
    click.confirm("Go on?", abort=True, err=True)


def _impact_lines(app: str, impact: ResetImpact, step: str | None) -> list[str]:
    lines = [f'Resetting the step "{step}" of app {app} loses:' if step else f"Resetting app {app} loses:"]
    if step is None and impact.epoch is not None:
        lines.append(
            f"  how far it has read: {counted(impact.rows_read, 'row')} in {counted(impact.epoch + 1, 'epoch')}"
        )
    lines += [f'  the state of step "{name}": {counted(rows, "row")}' for name, rows in impact.steps.items()]
    lines += [f'  the view "{name}": {counted(rows, "row")}' for name, rows in impact.views.items()]
    if step is None:
        lines.append("Topics stay, with all that was written to them; the app will append to its output topics again.")
    else:
        lines.append(
            "The app goes on from its offsets. Its next start computes the step again: from the state of the "
            "steps above, or from the topics, as far back as they go."
        )
    if impact.topics:
        lines.append(f"Topics written below it: {', '.join(impact.topics)}.")
    return lines

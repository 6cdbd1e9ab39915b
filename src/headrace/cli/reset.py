"""`headrace reset`: forget what an app has computed, after asking."""

from __future__ import annotations

import shlex
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from headrace.base.errors import StorageBusy
from headrace.base.text import counted
from headrace.cli.confirming import NotConfirmed
from headrace.cli.output import example, json_option, note, say, say_json
from headrace.cli.programs import load_app, program_argument
from headrace.cli.status import check_owner
from headrace.engine.program import reset as engine
from headrace.engine.storage import Storage

if TYPE_CHECKING:
    from pathlib import Path

    from headrace.engine.program.reset import Outputs, ResetImpact


@click.command(epilog=example("headrace reset app.py --step orders_agg_by_user"))
@program_argument
@click.option("--step", help="Forget only this step, the stateful steps below it and the views that they feed.")
@click.option(
    "--outputs",
    type=click.Choice(["keep", "again"]),
    help="Of a whole reset: keep what output topics have (the default), or read from the start and append all again.",
)
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option
def reset(
    file: str, *, storage: Path | None, step: str | None, outputs: Outputs | None, yes: bool, as_json: bool
) -> None:
    """Forget what the app in FILE has computed: its state and its views.

    Topics stay. After a whole reset the next start computes everything again, from the topics as far back as they go,
    up to where the app has read them. Its output topics get nothing again: to one with a table's changelog it appends
    what differs from the table. With --outputs again it forgets how far it has read too, and appends all its output
    again; a table's changelog gets a tombstone for each key first. The reset of a step leaves the others as they are;
    to a table's changelog, what differs is appended then, too.
    """
    if step is not None and outputs is not None:
        raise click.UsageError("--outputs is for a whole reset: that of a step keeps what topics have")
    app = load_app(file, storage=storage)
    check_owner(app, storage)
    storage_files, plan = Storage(app.storage, app.name), app.plan()
    if storage_files.busy():
        holder = (app.storage / "lock").read_text(errors="replace").strip()
        raise StorageBusy(str(app.storage), holder)
    impact = engine.reset_impact(plan, app.storage, step, outputs=outputs or "keep", location=app.topics)
    if not impact.nothing:
        if not yes:
            _ask(app.name, impact, step, shlex.join(["headrace", *sys.argv[1:]]))
        engine.reset(plan, app.storage, step, outputs=impact.outputs, location=app.topics)
    if as_json:
        say_json({"app": app.name, "step": step, "reset": not impact.nothing, "lost": asdict(impact)})
    elif impact.nothing:
        say(f"app {app.name} has computed nothing yet: there is nothing to forget")
    else:
        what = f'the step "{step}" of app {app.name}' if step else f"app {app.name}"
        say(f"reset {what}; its topics are as they were")
        for line in _replay_lines(impact):
            say(line)


def _ask(app: str, impact: ResetImpact, step: str | None, command: str) -> None:
    for line in _impact_lines(app, impact, step):
        note(line)
    if not sys.stdin.isatty():
        raise NotConfirmed("this destroys what is listed above, and nobody can be asked", hint=f"{command} --yes")
    click.confirm("Go on?", abort=True, err=True)


def _impact_lines(app: str, impact: ResetImpact, step: str | None) -> list[str]:
    lines = [f'Resetting the step "{step}" of app {app} loses:' if step else f"Resetting app {app} loses:"]
    if step is None and impact.epoch is not None and impact.outputs == "again":
        lines.append(
            f"  how far it has read: {counted(impact.rows_read, 'row')} in {counted(impact.epoch + 1, 'epoch')}"
        )
    lines += [f'  the state of step "{name}": {counted(rows, "row")}' for name, rows in impact.steps.items()]
    lines += [f'  the view "{name}": {counted(rows, "row")}' for name, rows in impact.views.items()]
    if step is None and impact.outputs == "keep":
        lines.append(
            "Topics stay, with all that was written to them. The next start computes everything again; it appends no "
            "row again, and to a table's changelog only what differs."
        )
        lines += _replay_lines(impact)
    elif step is None:
        lines.append(
            "Topics stay, with all that was written to them; the app will append to its output topics again, to a "
            "table's changelog after a tombstone for each key."
        )
    else:
        lines.append(
            "The app goes on from its offsets. Its next start computes the step again: from the state of the "
            "steps above, or from the topics, as far back as they go. It appends no row again, and to a table's "
            "changelog only what differs."
        )
    if impact.topics:
        lines.append(f"Topics written below it: {', '.join(impact.topics)}.")
    return lines


def _replay_lines(impact: ResetImpact) -> list[str]:
    """Return how far back the replay goes, by source and partition."""
    lines = []
    for source, partitions in impact.replayed.items():
        read = sum(reach["read"] for reach in partitions.values())
        lines.append(f'  "{source}" is replayed up to where it was read: {counted(read, "offset")}')
        lines += [
            f"    partition {partition} begins at offset {reach['first']}: what was before is gone"
            for partition, reach in partitions.items()
            if reach["first"] > 0
        ]
    return lines

"""`headrace diff`: what a changed program means for what its storage has; nothing starts, nothing is written."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from headrace.cli.output import example, json_option, say, say_json
from headrace.cli.programs import load_app, program_argument
from headrace.cli.status import check_owner
from headrace.engine.program.comparing import compared

if TYPE_CHECKING:
    from pathlib import Path

    from headrace.engine.program.changes import ProgramChanges

REFUSED = 3
"""The exit code where the program would not start."""


@click.command(epilog=example("headrace diff app.py", "headrace diff app.py && headrace run app.py"))
@program_argument
@json_option
def diff(file: str, *, storage: Path | None, as_json: bool) -> None:
    """Show what has changed in FILE since its storage was written, and what a start would make of it.

    Nothing starts and nothing is written; it works while the app runs. Exit code 0: the program would start; 3: its
    start would be refused, and the output says why and what is safe to do.
    """
    app = load_app(file, storage=storage)
    check_owner(app, storage)
    changes = compared(app.plan(), app.storage, app.shards)
    if as_json:
        say_json(changes.to_json())
    else:
        for line in diff_lines(changes):
            say(line)
    if changes.refused:
        click.get_current_context().exit(REFUSED)


def diff_lines(changes: ProgramChanges) -> list[str]:
    """Return the changes of a program for people."""
    if changes.since is None:
        return [f"app {changes.app} has not run an epoch yet: there is nothing to compare with"]
    if not changes.changed:
        return [f"app {changes.app} is the program that ran epoch {changes.since}"]
    outcome = "would not start" if changes.refused else "would start"
    lines = [f"app {changes.app} has changed since epoch {changes.since}; it {outcome}:"]
    for entry in changes.changed:
        lines.append(f"  {entry}")
        if entry.hint:
            lines.append(f"    {entry.hint}")
    return lines

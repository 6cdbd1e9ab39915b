"""`headrace explain`: the plan of an app; nothing runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from headrace.cli.output import example, json_option, say
from headrace.cli.programs import load_app, program_argument

if TYPE_CHECKING:
    from pathlib import Path


@click.command(epilog=example("headrace explain app.py", "headrace explain app.py --mermaid > plan.mmd"))
@program_argument
@click.option("--mermaid", is_flag=True, help="Print a Mermaid flowchart, for a README.")
@json_option
def explain(file: str, *, storage: Path | None, mermaid: bool, as_json: bool) -> None:
    """Show the plan of the app in FILE: its steps with level, key, window and state."""
    explanation = load_app(file, storage=storage).explain()
    say(explanation.json if as_json else explanation.mermaid if mermaid else str(explanation))

"""`headrace sync`: stores that follow tables, compared with them."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from headrace.base.text import counted
from headrace.cli.output import Commands, example, json_option, say, say_json
from headrace.cli.programs import load_app, program_argument
from headrace.engine.recovery.comparing_stores import compare_stores

if TYPE_CHECKING:
    from pathlib import Path

    from headrace.engine.recovery.comparing_stores import Compared


@click.group(cls=Commands)
def sync() -> None:
    """Compare stores with the tables that they follow."""


@sync.command(epilog=example("headrace sync check app.py", "headrace sync check app.py --repair --json"))
@program_argument
@click.option("--repair", is_flag=True, help="Write what is missing or differs, and delete what the table has not.")
@json_option
def check(file: str, *, storage: Path | None, repair: bool, as_json: bool) -> None:
    """Compare each store of the app in FILE with its table; the app must not be running.

    The rows are computed from the app's state. Exit code 0: all stores that can be compared are level, or were
    repaired; 1: one differs.
    """
    found = list(compare_stores(load_app(file, storage=storage), repair=repair))
    differs = any(each.difference is not None and each.difference.count for each in found)
    if as_json:
        say_json({"level": not differs or repair, "repaired": repair and differs, "sinks": list(map(asdict, found))})
    else:
        for each in found:
            say(_line(each, repair=repair))
    if differs and not repair:
        click.get_current_context().exit(1)


def _line(found: Compared, *, repair: bool) -> str:
    if found.difference is None:
        return f"{found.sink}: not compared: {found.why_not}"
    each = found.difference
    if not each.count:
        return f"{found.sink}: level"
    parts = [f"{counted(number, 'row')} {what}" for number, what in each.parts() if number]
    keys = f" (keys: {'; '.join(each.keys)})" if each.keys else ""
    return f"{found.sink}: {', '.join(parts)}{keys}{'; repaired' if repair else ''}"

"""The output of the command line: tables for people, aligned columns for pipes, JSON for programs."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from headrace.base.errors import nearest
from headrace.base.trace import VARIABLE
from headrace.cli.values import plain, shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

TRACE = "headrace.trace"


def example(*lines: str, title: str = "Example") -> str:
    """Return the examples below a command's help: lines to paste."""
    return "\n".join(["\b", f"{title}:", *(f"  {line}" for line in lines)])


class Commands(click.Group):
    """A group that suggests a similar command when there is none of the name given."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command, or raise an error that suggests a similar one."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            suggestion = nearest(args[0], self.list_commands(ctx)) if args else None
            if suggestion is not None and "Did you mean" not in error.message:
                raise click.UsageError(f'{error.message} Did you mean "{suggestion}"?', ctx) from None
            raise


def _remember_trace(ctx: click.Context, param: click.Parameter, value: bool) -> None:  # noqa: ARG001, FBT001 -- click's
    if value:
        ctx.meta[TRACE] = True
        before = os.environ.get(VARIABLE)
        os.environ[VARIABLE] = "1"  # Spark's part, and the processes that this one starts, ask the environment
        ctx.call_on_close(lambda: os.environ.update({VARIABLE: before or "0"}))


trace_option = click.option(
    "--trace", is_flag=True, expose_value=False, callback=_remember_trace, help="Show the traceback of a failure."
)


def json_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command `--json` (as `as_json`) and `--trace`."""
    flag = click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
    return flag(trace_option(command))


def console() -> Console:
    """Return a new console on standard output; tests replace standard output, so it is not cached."""
    return Console(file=sys.stdout, highlight=False)


def on_terminal() -> bool:
    """Whether standard output is a terminal."""
    return sys.stdout.isatty()


def say_json(data: Any, *, indent: int | None = 2) -> None:
    """Print a value as JSON: times as ISO text, decimals as text, bytes as base64."""
    click.echo(json.dumps(plain(data), indent=indent, ensure_ascii=False))


def say(text: str = "") -> None:
    """Print a line of results."""
    click.echo(text)


def note(text: str) -> None:
    """Print a line that is not a result, such as progress, to standard error."""
    click.echo(text, err=True)


def say_rows(rows: Sequence[Mapping[str, Any]], columns: Sequence[str], *, title: str = "") -> None:
    """Print rows as a table: drawn on a terminal, plain aligned columns elsewhere."""
    cells = [[shown(row.get(column)) for column in columns] for row in rows]
    right = [bool(rows) and all(_is_number(row.get(column)) for row in rows) for column in columns]
    if on_terminal():
        _drawn(cells, columns, right, title)
        return
    if title:
        say(title)
    for line in _aligned([list(columns), *cells], right):
        say(line)


def _drawn(cells: list[list[str]], columns: Sequence[str], right: list[bool], title: str) -> None:
    head = Text(title) if title else None
    table = Table(title=head, title_justify="left", title_style="bold", header_style="bold cyan")
    for name, is_right in zip(columns, right, strict=True):
        table.add_column(Text(name), justify="right" if is_right else "left", overflow="fold")
    for row in cells:
        table.add_row(*(Text(cell) for cell in row))  # not a plain str: rich would interpret [brackets]
    console().print(table)


def _aligned(lines: list[list[str]], right: list[bool]) -> Iterable[str]:
    widths = [max(len(line[at]) for line in lines) for at in range(len(right))]
    for line in lines:
        parts = [
            cell.rjust(width) if is_right else cell.ljust(width)
            for cell, width, is_right in zip(line, widths, right, strict=True)
        ]
        yield "  ".join(parts).rstrip()


def _is_number(value: Any) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))

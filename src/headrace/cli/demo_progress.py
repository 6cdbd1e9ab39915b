"""The progress of a demo, on standard error: a bar on a terminal, lines elsewhere."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from headrace.cli.output import note

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@contextmanager
def waiting(text: str) -> Iterator[None]:
    """Say what is being waited for, with a spinner on a terminal."""
    if sys.stderr.isatty():
        with Console(stderr=True).status(text):
            yield
    else:
        note(text)
        yield


@contextmanager
def progress(what: str, total: int) -> Iterator[Callable[[int, dict[str, Any]], None]]:
    """Yield a function that shows the rows sent so far and the status: a bar on a terminal, lines elsewhere."""
    if not sys.stderr.isatty():
        yield lambda sent, now: note(f"{sent:>9,} of {total:,} {what}  {_facts(now)}")
        return
    columns = (SpinnerColumn(), TextColumn(what), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[facts]}"))
    with Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True)) as bar:
        task = bar.add_task(what, total=total, facts="")
        yield lambda sent, now: bar.update(task, completed=sent, facts=_facts(now))


def _facts(now: dict[str, Any]) -> str:
    steps = now["steps"].values()
    late = max((step["late"] for step in steps), default=0)
    watermark = min((step["watermark"] for step in steps if step["watermark"] is not None), default=None)
    return f"epoch {now['epoch']}  watermark {'-' if watermark is None else watermark.date()}  late rows {late:,}"

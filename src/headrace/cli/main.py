"""`headrace`: exit 0 it worked, 1 it failed with one clear error, 2 it was called wrongly."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from typing import Any, ClassVar

import click

import headrace
from headrace.base.trace import traced
from headrace.cli.lazy import LazyCommands
from headrace.cli.output import TRACE, example, trace_option
from headrace.engine.operation.failures import as_ours

COMMANDS = {
    "backup": "Copy the storage and log of an app, while it runs.",
    "connect": "Run connectors without Spark, and look after them.",
    "demo": "Run a demo, and check its results; without a name, list the demos.",
    "diff": "Show what has changed in a program since its storage was written.",
    "explain": "Show the plan of an app: its steps with level, key and state.",
    "groups": "Look at who reads a log, and how far: groups, queues, apps.",
    "reset": "Forget what an app has computed: its state and its views.",
    "restore": "Restore a backup to where it was made from.",
    "run": "Run an app on Spark, or with --local in this process.",
    "status": "Show what an app has done: rows, lag, watermarks, late rows.",
    "sync": "Compare stores with the tables that they follow.",
    "topics": "Work on topics: those of a log, or with --at those of Kafka.",
    "verify": "Check everything that an app, or a storage, owns.",
    "views": "List and show the views of an app, also while it runs.",
}
"""What each command does. Its module, loaded when it is called, has its name; `restore` stands beside `backup`."""


class Headrace(LazyCommands):
    """The root: every failure below it becomes one clear error and an exit code."""

    summaries = COMMANDS
    modules: ClassVar[dict[str, str]] = {"restore": "backup"}

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command that was given."""
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:  # the reader closed the pipe
            sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123 -- for the rest of the process
            ctx.exit(0)
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except KeyboardInterrupt:
            ctx.exit(130)
        except Exception as error:  # noqa: BLE001 -- the outermost handler
            if traced() or ctx.meta.get(TRACE):
                traceback.print_exc()
            click.echo(str(as_ours(error)), err=True)
            ctx.exit(1)
        return result


@click.group(
    cls=Headrace,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog=example(
        "headrace demo git            the history of a git repository as a stream",
        "headrace run app.py          run your own",
        "headrace views show orders   look at a view while it runs",
        title="Start with",
    ),
)
@click.version_option(headrace.__version__, prog_name="headrace")
@trace_option
def root() -> None:
    """Durable topics, changing tables, and views that stay correct, carried by Spark.

    A FILE is a Python program with an hr.App at module level; FILE:name picks one of several.
    """


def main() -> None:
    """Run the command line."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a terminal without ✔ shows a replacement
            stream.reconfigure(errors="replace")
    try:
        root(prog_name="headrace")
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # everything is printed; only the JVM is still stopping

"""`headrace`: exit 0 it worked, 1 it failed with one clear error, 2 it was called wrongly."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from typing import Any

import click

import headrace
from headrace.base.trace import traced
from headrace.cli.backup import backup, restore
from headrace.cli.connect import connect
from headrace.cli.demo import demo
from headrace.cli.diff import diff
from headrace.cli.explain import explain
from headrace.cli.groups import groups
from headrace.cli.output import TRACE, Commands, example, trace_option
from headrace.cli.reset import reset
from headrace.cli.run import run
from headrace.cli.status import status
from headrace.cli.sync import sync
from headrace.cli.topics import topics
from headrace.cli.verify import verify
from headrace.cli.views import views
from headrace.engine.operation.failures import as_ours


class Headrace(Commands):
    """The root: every failure below it becomes one clear error and an exit code."""

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


for command in (run, explain, diff, status, reset, demo, connect, topics, views, verify, backup, restore, sync, groups):
    root.add_command(command)


def main() -> None:
    """Run the command line."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a terminal without ✔ shows a replacement
            stream.reconfigure(errors="replace")
    try:
        root(prog_name="headrace")
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # everything is printed; only the JVM is still stopping

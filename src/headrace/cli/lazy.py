"""A group of commands that loads a command when it is called: listing them loads nothing."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, ClassVar

from headrace.cli.output import Commands

if TYPE_CHECKING:
    from collections.abc import Mapping

    import click


class LazyCommands(Commands):
    """Commands by name, each in the module of its name in `headrace.cli`, or in that of `modules`."""

    summaries: ClassVar[Mapping[str, str]] = {}
    """One line about each command, for the list of all."""
    modules: ClassVar[Mapping[str, str]] = {}

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names, in their order."""
        del ctx
        return sorted(self.summaries)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Load a command; None if there is none of this name."""
        del ctx
        if cmd_name not in self.summaries:
            return None
        module = import_module(f"headrace.cli.{self.modules.get(cmd_name, cmd_name)}")
        command: click.Command = getattr(module, cmd_name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl(sorted(self.summaries.items()))

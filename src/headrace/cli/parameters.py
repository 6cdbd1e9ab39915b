"""What options and arguments may be: a folder, a budget of restarts. What is neither is a call that is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from headrace.base.arguments import a_path
from headrace.base.disk import in_the_way
from headrace.base.errors import HeadraceError
from headrace.engine.operation.restart import Restart, restart_of


class _Folder(click.Path):
    """A folder that exists, or can be created."""

    def __init__(self) -> None:
        super().__init__(path_type=Path, file_okay=False)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path."""
        try:
            path = a_path(value, "folder")
        except HeadraceError as error:
            self.fail(f"{error.what}. {error.hint}", param, ctx)
        file = in_the_way(path)
        if file is not None:
            what = f"{path} is no folder" if file == path else f"there can be no folder {path}: {file} is no folder"
            self.fail(what, param, ctx)
        return super().convert(path, param, ctx)


class _Budget(click.ParamType[Restart]):
    """A budget of restarts, as `hr.App.run(restart=)` takes it."""

    name = "budget"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Restart:
        """Return the budget."""
        try:
            return restart_of(value)
        except HeadraceError:
            self.fail(f'{value!r} is not like "5", "5 within 10 minutes" or "never".', param, ctx)


FOLDER = _Folder()
BUDGET = _Budget()

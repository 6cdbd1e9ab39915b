"""Programs of the command line: a Python file with an `hr.App` at module level."""

from __future__ import annotations

import sys
import traceback
from contextlib import redirect_stdout
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import click

from headrace.base.errors import HeadraceError, PlanError, did_you_mean
from headrace.base.loading import MODULE
from headrace.cli.parameters import FOLDER

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.app import App


class ProgramNotFound(PlanError):
    """There is no such file."""

    condition = "PROGRAM_NOT_FOUND"


class ProgramFailed(PlanError):
    """The program raised while it was loaded."""

    condition = "PROGRAM_FAILED"


class NoApp(PlanError):
    """The program has no app, or no app of the name given."""

    condition = "NO_APP"


class SeveralApps(PlanError):
    """The program has several apps, and none was chosen."""

    condition = "SEVERAL_APPS"


def load_app(where: str, *, storage: Path | None = None) -> App:
    """Return the app of a program, `FILE` or `FILE:name`; `storage` replaces the storage that it names.

    The program is loaded under another name than `__main__`, so that it describes the app and does not run it.

    Raises:
        PlanError: the file is missing or fails, or has no app, or several.

    """
    path, name = _split(where)
    from headrace.app import App

    apps = {key: value for key, value in vars(_load(path)).items() if isinstance(value, App)}
    app = _choose(apps, path, name)
    if storage is not None:
        app.storage = storage
    return app


def program_argument(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the argument FILE (as `file`) and the option `--storage`."""
    storage = click.option("--storage", type=FOLDER, help="Use this storage, not the one in FILE.")
    return click.argument("file")(storage(command))


def _split(where: str) -> tuple[Path, str | None]:
    file, colon, name = where.rpartition(":")
    path, wanted = (Path(file), name) if colon and not Path(where).exists() else (Path(where), None)
    if path.is_file():
        return path, wanted
    folder = path.parent if path.parent.is_dir() else Path()
    suggestion = did_you_mean(path.name, [entry.name for entry in folder.glob("*.py")])
    what = "is a folder, not a program" if path.is_dir() else "does not exist"
    raise ProgramNotFound(f"the program {path} {what}", hint=suggestion)


def _load(path: Path) -> ModuleType:
    """Run the program's file as a module that is in `sys.modules` only while it runs.

    Workers cannot import this module, so it must not be found later: its functions are then pickled by value. What it
    prints meanwhile goes to standard error: standard output has the results of the command.
    """
    resolved = path.resolve()
    if str(resolved.parent) not in sys.path:
        sys.path.insert(0, str(resolved.parent))
    module = ModuleType(MODULE)
    module.__file__ = str(resolved)
    sys.modules[MODULE] = module
    try:
        program = compile(path.read_bytes(), str(resolved), "exec", dont_inherit=True)
        with redirect_stdout(sys.stderr):
            exec(program, vars(module))  # noqa: S102 -- theirs
    except HeadraceError as error:
        line = _line(error, path)
        error.detail = f"{error.detail} At {path}, line {line}.".strip() if line else error.detail
        raise
    except SyntaxError as error:
        file = path if error.filename == str(resolved) else error.filename
        raise ProgramFailed(f"{file}, line {error.lineno}: {error.msg}") from error
    except (Exception, SystemExit) as error:
        line = _line(error, path)
        place = f"{path}, line {line}" if line else str(path)
        raise ProgramFailed(f"{place}: {type(error).__name__}: {error}", hint="HEADRACE_TRACE=1 shows more.") from error
    finally:
        del sys.modules[MODULE]
    return module


def _line(error: BaseException, path: Path) -> int | None:
    """Return the last line of the program in the error's traceback."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path.resolve())]
    return frames[-1].lineno if frames else None


def _choose(apps: dict[str, App], path: Path, name: str | None) -> App:
    if name is not None:
        if name in apps:
            return apps[name]
        detail = f"Its apps are: {', '.join(apps)}." if apps else "It has no hr.App at module level."
        raise NoApp(f'the program {path} has no app "{name}"', detail=detail, hint=did_you_mean(name, apps))
    distinct = {id(app): app for app in apps.values()}
    if len(distinct) == 1:
        return next(iter(distinct.values()))
    if not distinct:
        raise NoApp(f"the program {path} has no app", hint='At module level, write app = hr.App("name").')
    raise SeveralApps(
        f"the program {path} has {len(distinct)} apps: {', '.join(apps)}",
        hint=f"Choose one of them: {path}:{next(iter(apps))}",
    )

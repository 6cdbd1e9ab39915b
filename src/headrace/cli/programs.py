"""Programs as the command line takes them: a Python file with an `hr.App` in it."""

from __future__ import annotations

import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import click

from headrace.app import App
from headrace.base.errors import HeadraceError, PlanError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Callable

MODULE = "__headrace__"


class ProgramNotFound(PlanError):
    """There is no such file."""

    condition = "PROGRAM_NOT_FOUND"


class ProgramFailed(PlanError):
    """The program raised while it was loaded."""

    condition = "PROGRAM_FAILED"


class NoApp(PlanError):
    """The program has no app, or none of the name asked for."""

    condition = "NO_APP"


class SeveralApps(PlanError):
    """The program has several apps, and none was chosen."""

    condition = "SEVERAL_APPS"


def load_app(where: str, *, storage: Path | None = None) -> App:
    """Return the app of a program, `FILE` or `FILE:name`; `storage` takes the place of the one it names.

    The program is loaded under another name than `__main__`, so that it describes and does not run.

    Raises:
        PlanError: the file is missing or fails, or has no app, or several.

    """
    path, name = _split(where)
    apps = {key: value for key, value in vars(_load(path)).items() if isinstance(value, App)}
    app = _chosen(apps, path, name)
    if storage is not None:
        app.storage = storage
    return app


def program_path(where: str) -> Path:
    """Return the file of `FILE` or `FILE:name`."""
    return _split(where)[0]


def program_argument(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the argument FILE (as `file`) and the option `--storage`."""
    storage = click.option(
        "--storage", type=click.Path(path_type=Path, file_okay=False), help="Use this storage, not the one in FILE."
    )
    return click.argument("file")(storage(command))


def _split(where: str) -> tuple[Path, str | None]:
    file, colon, name = where.rpartition(":")
    path, wanted = (Path(file), name) if colon and not Path(where).exists() else (Path(where), None)
    if path.is_file():
        return path, wanted
    folder = path.parent if path.parent.is_dir() else Path()
    near = did_you_mean(path.name, [entry.name for entry in folder.glob("*.py")])
    what = "is a folder, not a program" if path.is_dir() else "does not exist"
    raise ProgramNotFound(f"the program {path} {what}", hint=near)


def _load(path: Path) -> ModuleType:
    """Run the program's file; it is known as a module meanwhile, and no longer than that.

    A module that workers could not import must not be found: its functions travel by value then.
    """
    whole = path.resolve()
    if str(whole.parent) not in sys.path:
        sys.path.insert(0, str(whole.parent))
    module = ModuleType(MODULE)
    module.__file__ = str(whole)
    sys.modules[MODULE] = module
    try:
        exec(compile(path.read_bytes(), str(whole), "exec", dont_inherit=True), vars(module))  # noqa: S102 -- theirs
    except HeadraceError as error:
        line = _line(error, path)
        error.detail = f"{error.detail} At {path}, line {line}.".strip() if line else error.detail
        raise
    except SyntaxError as error:
        file = path if error.filename == str(whole) else error.filename
        raise ProgramFailed(f"{file}, line {error.lineno}: {error.msg}") from error
    except (Exception, SystemExit) as error:
        line = _line(error, path)
        place = f"{path}, line {line}" if line else str(path)
        raise ProgramFailed(f"{place}: {type(error).__name__}: {error}", hint="HEADRACE_TRACE=1 shows more.") from error
    finally:
        del sys.modules[MODULE]
    return module


def _line(error: BaseException, path: Path) -> int | None:
    """Return the line of the program that the error came by last."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path.resolve())]
    return frames[-1].lineno if frames else None


def _chosen(apps: dict[str, App], path: Path, name: str | None) -> App:
    if name is not None:
        if name in apps:
            return apps[name]
        known = f"Its apps are: {', '.join(apps)}." if apps else "It has no hr.App at module level."
        raise NoApp(f'the program {path} has no app "{name}"', detail=known, hint=did_you_mean(name, apps))
    different = {id(app): app for app in apps.values()}
    if len(different) == 1:
        return next(iter(different.values()))
    if not different:
        raise NoApp(f"the program {path} has no app", hint='At module level, say app = hr.App("name").')
    raise SeveralApps(
        f"the program {path} has {len(different)} apps: {', '.join(apps)}",
        hint=f"Choose one of them: {path}:{next(iter(apps))}",
    )

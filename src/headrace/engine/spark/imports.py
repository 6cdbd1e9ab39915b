"""Lets Spark's Python workers import what this process can import, above all modules in the program's folder.

Functions of modules are pickled by reference. Only this process has the program's folder on its path. Workers on this
machine get the same path. Other machines do not have the folder, so functions of its modules are pickled by value.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark import cloudpickle

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark import SparkContext

_INSTALLED = tuple(Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib", "purelib", "platlib"))
_PACKAGES = {"site-packages", "dist-packages"}
_EVERYWHERE = {"__main__", "headrace", "pyspark", "py4j"}


@contextmanager
def importable(context: SparkContext) -> Iterator[None]:
    """Let Spark's workers import functions that are passed to Spark in this block; restore the context after it."""
    folders = own_folders()
    if not context.master.startswith("local"):
        by_value(folders)
    previous = context.environment.get("PYTHONPATH")
    given = [str(folder) for folder in folders] + ([previous] if previous else [])
    if given:
        context.environment["PYTHONPATH"] = os.pathsep.join(given)
    try:
        yield
    finally:
        context.environment.pop("PYTHONPATH", None)
        if previous:
            context.environment["PYTHONPATH"] = previous


def own_folders() -> list[Path]:
    """Return the folders on this process's path that a fresh Python does not have on its path."""
    folders = dict.fromkeys(Path(entry or ".").absolute() for entry in sys.path)
    return [folder for folder in folders if folder.is_dir() and not _installed(folder)]


def by_value(folders: list[Path]) -> None:
    """Pickle the functions of modules in these folders by value, not by reference."""
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if file is None or name.split(".")[0] in _EVERYWHERE or _installed(Path(file)):
            continue
        if any(Path(file).absolute().is_relative_to(folder) for folder in folders):
            cloudpickle.register_pickle_by_value(module)


def _installed(path: Path) -> bool:
    return any(path.is_relative_to(folder) for folder in _INSTALLED) or bool(_PACKAGES & set(path.parts))

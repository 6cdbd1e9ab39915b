"""What this process can import, Spark's Python workers can import, too: modules beside a program above all.

A function travels by reference where it has a module and a name. The folder of a program is on this process's path
alone, so on this machine workers are given the path; on others, where there is no such folder, what lies there
travels by value.
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
    """Let functions that are handed to Spark inside be found by its workers; the context is left as it was."""
    folders = own_folders()
    if not context.master.startswith("local"):
        by_value(folders)
    known = context.environment.get("PYTHONPATH")
    given = [str(folder) for folder in folders] + ([known] if known else [])
    if given:
        context.environment["PYTHONPATH"] = os.pathsep.join(given)
    try:
        yield
    finally:
        context.environment.pop("PYTHONPATH", None)
        if known:
            context.environment["PYTHONPATH"] = known


def own_folders() -> list[Path]:
    """Return the folders that this process imports from and a fresh Python would not know."""
    folders = dict.fromkeys(Path(entry or ".").absolute() for entry in sys.path)
    return [folder for folder in folders if folder.is_dir() and not _installed(folder)]


def by_value(folders: list[Path]) -> None:
    """Let the functions of modules that lie in these folders travel whole, not by their names."""
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if file is None or name.split(".")[0] in _EVERYWHERE or _installed(Path(file)):
            continue
        if any(Path(file).absolute().is_relative_to(folder) for folder in folders):
            cloudpickle.register_pickle_by_value(module)


def _installed(path: Path) -> bool:
    return any(path.is_relative_to(place) for place in _INSTALLED) or bool(_PACKAGES & set(path.parts))

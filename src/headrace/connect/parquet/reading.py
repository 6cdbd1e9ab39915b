"""Reading a folder: the files that are whole, a query for its rows, and merging everything by hand."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from headrace.base.names import quote
from headrace.base.schema import parse
from headrace.base.time import SystemClock, duration
from headrace.connect.parquet.files import DELETED, current, listed, stored_schema
from headrace.connect.parquet.gathering import gather, remove_replaced
from headrace.connect.parquet.manifest import Manifest, alone
from headrace.connect.store import StoreDiffers, no_fault

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import timedelta
    from os import PathLike

    from headrace.base.time import Clock


def files(path: str | PathLike[str]) -> list[str]:
    """Return the paths of the files that have exactly the published rows, of a table with older rows of the same keys.

    They can be read for as long as the sink's `keep`. `spark.read.parquet(*files(path))` reads a stream's rows.

    Raises:
        StoreDiffers: the folder has no manifest.

    """
    return [str(Path(path) / each.path) for each in _manifest(Path(path)).files]


def sql(path: str | PathLike[str]) -> str:
    """Return a DuckDB query for the rows of a folder at this moment: all of a stream, the current ones of a table.

    Raises:
        StoreDiffers: the folder has no manifest.

    """
    manifest = _manifest(Path(path))
    paths, schema = [str(Path(path) / each.path) for each in manifest.files], parse(manifest.schema)
    columns = ", ".join(map(quote, schema.names))
    if not manifest.is_table:
        return f"SELECT {columns} FROM {listed(paths, schema)}"
    rows = current(paths, manifest.key, stored_schema(manifest, schema))
    return f"SELECT {columns} FROM {rows} WHERE NOT {DELETED}"


def compact(
    path: str | PathLike[str],
    *,
    keep: str | timedelta = "1 hour",
    file_bytes: int = 128 << 20,
    clock: Clock | None = None,
    fault: Callable[[str], None] = no_fault,
) -> None:
    """Merge all runs of a folder, finish all files of a stream, and delete files that were replaced before `keep`.

    Deleted rows of a table, and older values of the others, are then in no file. An app that writes waits meanwhile.

    Raises:
        StoreDiffers: the folder has no manifest.

    """
    root, now = Path(path), (clock or SystemClock()).now()
    with alone(root, wait=True):
        manifest = _manifest(root)
        gather(root, manifest, target=file_bytes, now=now, fault=fault, everything=True)
        remove_replaced(root, manifest, before=now - duration(keep, what="keep"))


def _manifest(root: Path) -> Manifest:
    manifest = Manifest.read(root)
    if manifest is None:
        raise StoreDiffers(f"{root} is no folder that an app writes: it has no manifest")
    return manifest

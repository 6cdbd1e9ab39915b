"""The archive: a second folder, perhaps on a larger and slower disk, to which closed segments are moved.

The copy of a segment is durable before the layout names it; the original is deleted afterwards. The index stays, so
that offsets and times are looked up without the archive.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.base.arguments import a_path
from headrace.base.disk import sync_folder
from headrace.base.errors import ArchiveMissing, InvalidTopic
from headrace.log.segments.layout import DRAFT

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headrace.log.meta import Meta
    from headrace.log.segments.layout import Layout, SegmentEntry


def check(folder: str | os.PathLike[str]) -> str:
    """Return the absolute path of a topic's future archive folder.

    Raises:
        InvalidTopic: it does not exist. It is not created: its disk may not be mounted.

    """
    path = Path(os.path.abspath(a_path(folder, "archive")))  # noqa: PTH100 - no links are followed: the name is what may be mounted anew
    if not path.is_dir():
        raise InvalidTopic(
            f'the archive "{folder}" is not a folder',
            hint=f'Create it first: mkdir -p "{path}".',
        )
    return str(path)


def root_of(meta: Meta) -> Path:
    """Return the folder of a topic in its archive; topics of the same name have different ones."""
    return Path(meta.archive or "") / f"{meta.name}-{meta.id}"


def folder_of(meta: Meta, partition: int) -> Path:
    """Return the folder of a partition in its topic's archive."""
    return root_of(meta) / str(partition)


def fill(folder: Path, target: Path, entries: Iterable[SegmentEntry], meta: Meta, *, fsync: bool) -> None:
    """Copy segments from a partition's folder to the archive, durably.

    Raises:
        ArchiveMissing: the archive folder is missing.

    """
    if meta.archive is None or not Path(meta.archive).is_dir():
        raise ArchiveMissing(meta.name, int(target.name), folder=str(meta.archive))
    target.mkdir(parents=True, exist_ok=True)
    for entry in entries:
        path = target / entry.segment_path(folder).name
        draft = path.with_name(path.name + DRAFT)
        with entry.segment_path(folder).open("rb") as source, draft.open("wb") as copy:
            shutil.copyfileobj(source, copy, 1 << 20)
            copy.flush()
            if fsync:
                os.fsync(copy.fileno())
        draft.replace(path)
    if fsync:
        for inside in (target, target.parent, target.parent.parent):
            sync_folder(inside)


def clear(folders: Iterable[Path], layout: Layout) -> None:
    """Delete the files in a partition's archives that a layout does not name; a missing archive is left alone."""
    named = {entry.segment_path(Path()) for entry in layout.entries if entry.archive}
    for folder in folders:
        for path in list(folder.iterdir()) if folder.is_dir() else ():
            if path not in named:
                path.unlink(missing_ok=True)


def remove(meta: Meta, layout: Layout) -> None:
    """Delete a topic's folders in its archives."""
    roots = {Path(entry.archive).parent for entry in layout.entries if entry.archive}
    for root in roots | ({root_of(meta)} if meta.archive else set()):
        shutil.rmtree(root, ignore_errors=True)

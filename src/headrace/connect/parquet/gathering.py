"""Small files become larger ones, with one replacement of the manifest: its readers miss no row and see none twice."""

from __future__ import annotations

import os
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from headrace.base.disk import make_folder, sync_folder
from headrace.base.schema import parse
from headrace.connect.parquet.files import Rolling, merged, stored_schema
from headrace.connect.parquet.manifest import FILES, DataFile

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from headrace.connect.parquet.manifest import Manifest

FEW = 8
"""So many runs a partition has before some are merged."""


def gather(
    root: Path,
    manifest: Manifest,
    *,
    target: int,
    now: int,
    fault: Callable[[str], None],
    everything: bool = False,
) -> None:
    """Merge runs where it pays, or everything. The caller is alone in the folder."""
    for partition, runs in manifest.runs().items():
        numbers = list(runs)
        chosen = numbers if everything else _chosen([sum(f.bytes for f in runs[n]) for n in numbers], numbers, target)
        if manifest.is_table:
            if len(chosen) < 2 and not everything:  # noqa: PLR2004 -- one run is merged already
                continue
            oldest = chosen[0] == numbers[0]
            _merge(root, manifest, [f for n in chosen for f in runs[n]], partition, target, with_deleted=not oldest)
        elif chosen:
            parts = [f for n in chosen for f in runs[n]]
            finish = everything or sum(each.bytes for each in parts) >= target
            if finish or len(chosen) > 1:
                _append(root, manifest, parts, partition, finish=finish)
        else:
            continue
        for number in chosen:
            for each in runs[number]:
                manifest.replaced[each.path] = now
        fault("after_gathering")
        manifest.write(root)
        fault("after_gathered")


def remove_replaced(root: Path, manifest: Manifest, *, before: int) -> None:
    """Delete files that were replaced before an instant."""
    gone = [path for path, at in manifest.replaced.items() if at <= before]
    for path in gone:
        (root / path).unlink(missing_ok=True)
        del manifest.replaced[path]
    if gone:
        manifest.write(root)


def _chosen(sizes: Sequence[int], numbers: Sequence[int], target: int) -> Sequence[int]:
    """Return the newest runs that are worth a merge: each older one joins if it is no larger than the newer together.

    So a row is rewritten as often as its run doubles in size.
    """
    if len(numbers) < FEW and sum(sizes) < target:
        return ()
    first, total = len(sizes) - 1, sizes[-1]
    while first > 0 and sizes[first - 1] <= 2 * total:
        first -= 1
        total += sizes[first]
    return numbers[first:] if len(numbers) - first > 1 or total >= target else ()


def _merge(
    root: Path, manifest: Manifest, parts: Sequence[DataFile], partition: str, target: int, *, with_deleted: bool
) -> None:
    """Merge runs of a table into one run, in files of about the target's size."""
    run = max(each.run for each in parts)
    name = f"{_inside(FILES, partition)}/merged-{run:012d}-{manifest.next_run:012d}-{{}}.parquet"
    out = Rolling(root, name, stored_schema(manifest, parse(manifest.schema)), limit=target)
    with merged([str(root / each.path) for each in parts], manifest, with_deleted=with_deleted) as tables:
        for rows in tables:
            out.write(rows)
    manifest.next_run += 1
    merged_files = [DataFile(path, partition, run, rows, size) for path, rows, size in out.close()]
    _replace(manifest, parts, merged_files)


def _append(root: Path, manifest: Manifest, parts: Sequence[DataFile], partition: str, *, finish: bool) -> None:
    """Put runs of a stream into one file. Without a manifest that names it, its name is that of the next finished one.

    So a file that a crash has left where lists find it is replaced, whichever runs the next one has.
    """
    first = min(each.run for each in parts)
    at = _inside("" if finish else FILES, partition)
    gathered = f"gathered-{first:012d}-{manifest.next_run:012d}"
    name = f"{at}/{f'rows-{_next_finished(manifest, partition):012d}' if finish else gathered}.parquet".lstrip("/")
    beside = f"{FILES}/{PurePosixPath(name).name}.new"
    if finish and len(parts) == 1:
        rows, size = parts[0].rows, parts[0].bytes
        (root / beside).unlink(missing_ok=True)
        os.link(root / parts[0].path, root / beside)
    else:
        out = Rolling(root, beside, stored_schema(manifest, parse(manifest.schema)))
        with merged([str(root / each.path) for each in parts], manifest, with_deleted=True) as tables:
            for table in tables:
                out.write(table)
        ((_, rows, size),) = out.close()
    _place(root, beside, name)
    manifest.next_run += 1
    run = max(each.run for each in parts)
    _replace(manifest, parts, [DataFile(name, partition, run, rows, size, finished=finish)])


def _next_finished(manifest: Manifest, partition: str) -> int:
    """Return the number after those that the names of a partition's finished files have."""
    names = (PurePosixPath(each.path).stem for each in manifest.files if each.finished and each.partition == partition)
    return max((int(name.rpartition("-")[2]) for name in names), default=-1) + 1


def _place(root: Path, beside: str, name: str) -> None:
    make_folder((root / name).parent, sync=True)
    (root / beside).replace(root / name)
    sync_folder((root / name).parent)


def _replace(manifest: Manifest, old: Sequence[DataFile], new: Sequence[DataFile]) -> None:
    gone = {each.path for each in old}
    manifest.files = [each for each in manifest.files if each.path not in gone] + list(new)


def _inside(folder: str, partition: str) -> str:
    return f"{folder}/{partition}".strip("/")

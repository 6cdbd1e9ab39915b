"""Publishes the staged rows of a commit to the sinks; repetitions have no further effect.

A sink group that fails is tried again with back-off. After `GIVE_UP_SECONDS` the app stops: the epoch is committed, its
rows are staged, and the next start publishes them first.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

from headrace.base.blame import HeadraceError
from headrace.base.outside import EpochsLost, SinkBehind, SinkFailed
from headrace.engine.changelogs import one_change_a_key
from headrace.engine.private import opened
from headrace.kernels.files import read_tables

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    import pyarrow as pa

    from headrace.base.time import Clock
    from headrace.connect.sink import ReplacingWriter
    from headrace.engine.sink_groups import SinkGroup
    from headrace.engine.storage import Commit, Storage

GIVE_UP_SECONDS = 60.0
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0


@dataclass
class Publisher:
    """Publishes commits to sink groups, in order. `stopping` ends the retries of a group that fails."""

    storage: Storage
    groups: list[SinkGroup]
    clock: Clock
    fault: Callable[[str], None]
    stopping: threading.Event = field(default_factory=threading.Event)
    failing: dict[str, str] = field(default_factory=dict)
    """Why a group is being tried again, by its label."""

    def publish(self, commit: Commit) -> None:
        """Publish a commit's rows to their sink groups; groups that have the epoch already are skipped.

        Raises:
            SinkFailed: a group failed for `GIVE_UP_SECONDS`.
            HeadraceError: a group refused the rows.

        """
        files = self._files(commit)
        for group in self.groups:
            here = {name: paths for name, paths in files.items() if name in group.names}
            replaced = group.names.intersection(commit.replaced)
            if (here or replaced) and (group.applied is None or commit.epoch > group.applied):
                self._try(group, commit.epoch, here, replaced)

    def rows(self, commit: Commit, name: str) -> Iterator[pa.RecordBatch]:
        """Return the rows that a commit has staged for a sink, as its writer would get them."""
        group = next(group for group in self.groups if name in group.names)
        return self._rows(group, name, self._files(commit).get(name, []))

    def _try(self, group: SinkGroup, epoch: int, files: Mapping[str, list[Path]], replaced: frozenset[str]) -> None:
        began, pause = self.clock.monotonic(), FIRST_PAUSE
        while True:
            self.fault("before_sink")
            try:
                rows = {name: self._rows(group, name, paths) for name, paths in files.items()}
                if replaced:  # which only views are
                    cast("ReplacingWriter", group.writer).replace(epoch, rows, replaced=replaced)
                else:
                    group.writer.publish(epoch, rows)
            except (OSError, HeadraceError) as error:
                if not (isinstance(error, OSError) or error.may_pass):
                    raise
                lasted = self.clock.monotonic() - began
                if lasted >= GIVE_UP_SECONDS or self.stopping.is_set():
                    raise SinkFailed(group.label, epoch=epoch, seconds=lasted, why=_why(error)) from error
                self.failing[group.label] = _why(error)
                self.clock.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE)
            else:
                self.failing.pop(group.label, None)
                self.fault("after_sink")
                return

    def _rows(self, group: SinkGroup, name: str, paths: list[Path]) -> Iterator[pa.RecordBatch]:
        tables: Iterable[pa.Table] = (read_tables(path)[0]["rows"] for path in paths)
        if name in group.changelogs and len(paths) > 1:
            tables = one_change_a_key(list(tables), group.changelogs[name])
        sealed = group.sealed.get(name)
        for rows in tables:
            yield from (opened(self.storage.path, sealed, rows) if sealed else rows).to_batches()

    def _files(self, commit: Commit) -> Mapping[str, list[Path]]:
        folder = self.storage.staging(commit.epoch)
        files: dict[str, list[Path]] = {}
        for staged in sorted(commit.staged, key=lambda staged: _order(staged.file)):
            files.setdefault(staged.sink, []).append(folder / staged.file)
        return files


def with_rows(commit: Commit) -> dict[str, int]:
    """Return by sink the last epoch, up to a commit's, that had rows for it."""
    return commit.published | {staged.sink: commit.epoch for staged in commit.staged}


def check_published(groups: Sequence[SinkGroup], storage: Storage, last: Commit | None, known: int) -> None:
    """Refuse to go on where a sink has less than was published to it, or later epochs than are known.

    Args:
        groups: the sinks, as far as their writers can tell what they have.
        storage: says whether the last commit's rows are published.
        last: the last commit.
        known: the last epoch that the commits or the journal have.

    Raises:
        OutputLost: a topic was deleted, or restored from an older copy.
        SinkBehind: another sink was.
        EpochsLost: a sink has a later epoch.

    """
    unfinished = last is not None and storage.staging(last.epoch).is_dir()
    published = {} if last is None else last.published if unfinished else with_rows(last)
    for group in groups:
        expected = {name: epoch for name, epoch in published.items() if name in group.names}
        group.writer.check_published(expected)
        if group.applied is None:
            continue
        given = max(expected.values(), default=-1)
        if group.applied < given:
            raise SinkBehind(group.label, has=group.applied, given=given)
        if group.applied > known:
            at, why = None if last is None else last.epoch, f"only {group.label} knows of them"
            raise EpochsLost(str(storage.path), last=at, known=group.applied, why=why)


def _why(error: Exception) -> str:
    return error.what if isinstance(error, HeadraceError) else f"{type(error).__name__}: {error}"


def _order(file: str) -> tuple[int, int]:
    """Order files by level and task, so that rows keep the order in which they were read."""
    _, level, task, *_ = file.rsplit(".", 4)
    return int(level), int(task)

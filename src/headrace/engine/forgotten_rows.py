"""Rows of forgotten subjects in stores: after `forget`, the next epoch writes them again, with nulls.

A store outside has values, not tokens, so destroying a key does not reach it. An epoch after that computes, from the
state that it leaves behind, the rows of each store that have a value which can no longer be opened, and stages them
with its own rows. So they are published like these: by the same writer, once, also after crashes. The commit keeps how
often keys had been destroyed; where that has changed since, an epoch is due.
"""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.base.names import quote
from headrace.engine.changelogs import DELETED
from headrace.engine.levels import each_shard, run_levels
from headrace.engine.lowering import lower
from headrace.engine.private import Destroyed, opened
from headrace.engine.program.fill import fill_of, history
from headrace.kernels.duck import Duck
from headrace.kernels.files import read_tables
from headrace.kernels.level import LevelRun
from headrace.kernels.task import Task, stage

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from headrace.engine.levels import Received
    from headrace.engine.sink_groups import SinkGroup
    from headrace.engine.storage import Commit, Storage
    from headrace.kernels.program import Level
    from headrace.kernels.task import Outcome, StagedFile
    from headrace.plan.plan import Plan

AFTER_ALL = 99_999
"""The level in the names of the files of such rows: they come after those of the epoch itself."""


class ForgottenRows:
    """The rows that stores of an app must lose values of, where keys were destroyed.

    Args:
        plan: the app's plan.
        storage: the app's folder.
        shards: the number of shards.
        groups: the open sinks. Of concern are those that get one change a key, with private columns as values; of
            these, those below steps that keep all of their rows. Others stay as they are (`docs/privacy.md`).

    """

    def __init__(self, plan: Plan, storage: Storage, shards: int, groups: Sequence[SinkGroup]) -> None:
        self.plan, self.storage, self.shards = plan, storage, shards
        self.sealed = {name: each for group in groups for name, each in group.sealed.items() if each}
        self.keys = {name: key for group in groups for name, key in group.changelogs.items() if name in self.sealed}
        self.names = [
            sink.name
            for sink in plan.sinks
            if sink.name in self.keys and set(history(plan, sink.up, ()).values()) == {"all"}
        ]
        self.destroyed = Destroyed(storage.path)

    def due_after(self, commit: Commit) -> bool:
        """Whether a subject was forgotten since a commit, and stores have to follow."""
        return bool(self.names) and self.destroyed.since(commit)

    def unknown(self) -> dict[str, int]:
        """Return what a commit has of which nobody knows what stores have: the next epoch looks at all of them."""
        return dict.fromkeys(self.destroyed.now(), -2) if self.names else {}

    def added(self, commit: Commit, before: Commit) -> Commit:
        """Return a commit with the rows that stores have to write again since the commit before it, staged."""
        if not self.names:
            return commit
        now = self.destroyed.now()  # first: what is forgotten from here on, the epoch after this one sees
        if now == before.forgotten or before.epoch < 0:
            return replace(commit, forgotten=now)
        return replace(commit, forgotten=now, staged=[*commit.staged, *self._staged(commit)])

    def _staged(self, commit: Commit) -> Iterator[StagedFile]:
        fill = fill_of(self.plan, commit, (), self.names)
        if fill is None:
            return
        program = lower(fill.plan, self.shards, snapshots=fill.snapshots, begins=fill.steps)
        attempt = uuid.uuid4().hex[:8]

        def run(level: Level, shard: int, inputs: Received) -> Outcome:
            duck = Duck()
            try:
                return LevelRun(duck, level, self._task(fill.before(commit), shard, attempt)).run(inputs)
            finally:
                duck.close()

        folder = self.storage.staging(commit.epoch)
        for report in run_levels(program, [run(program.levels[0], 0, {})], each_shard(program.shards, run)):
            for each in report.staged:
                rows = self._fresh(commit, each.sink, read_tables(folder / each.file)[0]["rows"])
                if rows.num_rows:
                    task = self._task(commit, int(each.file.rsplit(".", 4)[2]), uuid.uuid4().hex[:8])
                    yield stage(task, AFTER_ALL, each.sink, rows)
                (folder / each.file).unlink()

    def _task(self, commit: Commit, shard: int, attempt: str) -> Task:
        return Task(
            epoch=commit.epoch,
            shard=shard,
            shards=self.shards,
            attempt=attempt,
            storage=self.storage.path,
            sync=self.storage.sync,
            watermarks=commit.watermarks,
            previous=commit.previous,
            heads={step: by[str(shard)] for step, by in commit.heads.items() if str(shard) in by},
            fault=lambda point: None,  # noqa: ARG005 -- nothing is visible before the commit
            now=commit.now,
            reached={},
        )

    def _fresh(self, commit: Commit, sink: str, rows: pa.Table) -> pa.Table:
        """Return the rows that have a forgotten value, but for those of keys that the epoch writes anyway."""
        rows = rows.filter(pa.array(self._has_forgotten(rows, self.sealed[sink])))
        folder = self.storage.staging(commit.epoch)
        for each in commit.staged:
            if rows.num_rows and each.sink == sink:
                rows = _without(rows, read_tables(folder / each.file)[0]["rows"], self.keys[sink])
        return rows

    def _has_forgotten(self, rows: pa.Table, columns: Collection[str]) -> Any:
        now = opened(self.storage.path, columns, rows)
        found = np.zeros(rows.num_rows, dtype=bool)
        for name in columns:
            found |= _nulls(now.column(name)) > _nulls(rows.column(name))
        return found


def _nulls(column: pa.ChunkedArray | pa.Array) -> Any:
    """Return how many nulls each row of a column of values, or of lists of them, has."""
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    own = array.is_null().to_numpy(zero_copy_only=False).astype(np.int64)
    if pa.types.is_list(array.type):
        inner = _nulls(array.flatten())
        own += np.bincount(pc.list_parent_indices(array).to_numpy(), inner, len(own)).astype(np.int64)
    return own


def _without(rows: pa.Table, others: pa.Table, key: Sequence[str]) -> pa.Table:
    """Return rows without those whose key is among other rows that are not tombstones."""
    keys: Mapping[str, pa.ChunkedArray] = {f"k{n}": rows.column(name) for n, name in enumerate(key)}
    there = others.filter(pc.invert(others.column(DELETED)))
    same = " AND ".join(f"here.{quote(name)} IS NOT DISTINCT FROM there.{quote(name)}" for name in keys)
    with duckdb.connect() as sql:
        sql.register("here", pa.table({**keys, "_nth": pa.array(np.arange(rows.num_rows))}))
        sql.register("there", pa.table({f"k{n}": there.column(name) for n, name in enumerate(key)}))
        kept = sql.sql(f"SELECT _nth FROM here ANTI JOIN there ON {same} ORDER BY _nth").to_arrow_table()
    return rows.take(kept.column("_nth"))

"""Rows on their way into a topic: staged by tasks where nobody reads them, then appended once, by the driver.

Under `<log>/spark/<topic>/<writer>/` each task writes one file; the driver names the files in `commit.json`, replaced
atomically, appends them, and marks the commit as done. A commit that is repeated under its number appends the files
of the first one: what a query computes the second time is ignored. Each append is numbered for the log as well, so
that one that a crash interrupted continues where it stopped.
"""

from __future__ import annotations

import json
import os
import shutil
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headrace.base.disk import sync_folder
from headrace.kernels.files import read_tables, write_tables
from headrace.log.rows import rows_to_table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from headrace.log import Topic

    Seal = Callable[[pa.Table], pa.Table]

APPEND_BYTES = 256 << 20
"""More bytes are appended in several chunks, so that the driver never holds all of them."""
_MOST_CHUNKS = 1 << 20
"""The log numbers appends, a query numbers commits: so many appends fit into one commit."""


@dataclass(frozen=True)
class StagedFile:
    """A file that a task staged: its name in the folder of its commit, the task's number, and its number of rows."""

    file: str
    task: int
    rows: int


@dataclass(frozen=True)
class StagedWrite:
    """One commit of a writer: `name` is the writer's identity for ever, `commit` the number of the commit."""

    folder: Path
    name: str
    commit: int
    sync: bool = field(default=True, kw_only=True)

    def stage(
        self, batches: Iterator[pa.RecordBatch], schema: pa.Schema, task: int, *, seal: Seal | None = None
    ) -> StagedFile | None:
        """Write a task's rows to a file of their own, as the topic takes them: private columns sealed by `seal`.

        Raises:
            InvalidRows: a row does not fit the topic.

        """
        count = 0

        def fitted() -> Iterator[pa.RecordBatch]:
            nonlocal count
            for batch in batches:
                table = rows_to_table(batch, schema)
                count += table.num_rows
                yield from (table if seal is None else seal(table)).to_batches()

        rows = fitted()
        first = next(rows, None)
        if first is None:
            return None
        file = f"{task:06d}-{uuid.uuid4().hex[:12]}"
        reader = pa.RecordBatchReader.from_batches(first.schema, _chained(first, rows))
        write_tables(self._staged() / file, {"rows": reader}, {}, sync=self.sync)
        return StagedFile(file, task, count)

    def append(self, topic: Topic, staged: Sequence[StagedFile]) -> None:
        """Commit the files and append them; a repeated commit appends the files that the first one of its number named.

        Raises:
            AppendFailed: the disk failed; the same commit may be tried again.

        """
        state = self._read()
        if state.get("commit", -1) > self.commit:
            return
        if state.get("commit") != self.commit:
            state = {"commit": self.commit, "files": [part.file for part in sorted(staged, key=lambda each: each.task)]}
            self._write(state)
        if not state.get("done"):
            for number, rows in enumerate(self._chunks(state["files"])):
                _append(topic, rows, producer=f"spark/{self.name}", sequence=self.commit * _MOST_CHUNKS + number)
            self._write({"commit": self.commit, "done": True})
        shutil.rmtree(self._staged(), ignore_errors=True)

    def abandon(self, staged: Sequence[StagedFile]) -> None:
        """Remove files that will not be committed."""
        for part in staged:
            (self._staged() / part.file).unlink(missing_ok=True)

    def forget(self) -> None:
        """Remove the folder of a writer that will not write again."""
        shutil.rmtree(self.folder, ignore_errors=True)

    # ---- inside ----

    def _staged(self) -> Path:
        return self.folder / str(self.commit)

    def _chunks(self, files: Sequence[str]) -> Iterator[pa.Table]:
        """Yield the rows in chunks; the same files give the same chunks."""
        waiting: list[pa.Table] = []
        size = 0
        for name in files:
            for batch in read_tables(self._staged() / name)[0]["rows"].to_batches():
                waiting.append(pa.Table.from_batches([batch]))
                size += batch.nbytes
                if size >= APPEND_BYTES:
                    yield pa.concat_tables(waiting)
                    waiting, size = [], 0
        if waiting:
            yield pa.concat_tables(waiting)

    def _read(self) -> dict[str, Any]:
        try:
            found: dict[str, Any] = json.loads((self.folder / "commit.json").read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        return found

    def _write(self, state: dict[str, Any]) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        draft = self.folder / "commit.draft"
        with draft.open("w", encoding="utf-8") as file:
            json.dump(state, file)
            file.flush()
            if self.sync:
                os.fsync(file.fileno())
        draft.replace(self.folder / "commit.json")
        if self.sync:
            sync_folder(self.folder)


def _append(topic: Topic, rows: pa.Table, *, producer: str, sequence: int) -> None:
    """Append, to the partitions that keys choose; rows without a key go to the partitions in turn, by chunks."""
    if topic.key or topic.partitions == 1:
        topic.append(rows, producer=producer, sequence=sequence, sealed=True)
        return
    commit, chunk = divmod(sequence, _MOST_CHUNKS)
    place = (commit + chunk) % topic.partitions
    topic.append(rows, partition=place, producer=producer, sequence=sequence, sealed=True)


def _chained(first: pa.RecordBatch, rest: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield first
    yield from rest

"""`top_n`: the 10 greatest rows of each of 100 k groups, of a table whose rows change.

Expected: 20 times the speed of Spark's own way, a Python function that keeps the rows of each group. Ours ranks all
touched groups in one query; the rival calls a function for each group and reads and writes its state row by row. A row
stays in its group, since the rival could not remove it from its old one. The rival emits the ten rows of each changed
group, ours what enters and leaves. Both times are what Spark reports for a batch.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench import rival
from bench.figure import Figure, compare_times, same
from bench.progress import epochs_ms
from bench.tables import SCHEMA, Rows, TableApp

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from bench.setting import Setting

ROWS, GROUPS, CHURN, N = 2_000_000, 100_000, 20_000, 10
WARM = 3
_CHECKED = 20
"""The rival's answer is checked on one in this many groups, since collecting its output is slow."""


def run(setting: Setting) -> list[Figure]:
    """Measure epochs of both in turn."""
    if not setting.spark_allowed:
        return []
    groups, count = setting.rows(GROUPS), setting.rows(CHURN)
    rows, sink = Rows(setting.rows(ROWS), groups, moving=False), TopRows(setting.rows(ROWS))
    _check_theirs(setting, groups // _CHECKED or 1)
    mine, theirs = [], []
    with (
        _Theirs(setting, rows) as rank,
        TableApp(setting, rows, sink, lambda t: t.group_by("g").top(N, "v")) as our_app,
    ):
        for number in range(WARM + setting.runs(15, 5)):
            changes: list[pa.Table] = []
            took = our_app.epoch(partial(_update, rows, count, changes)), rank.epoch(changes)
            if number >= WARM:
                mine.append(took[0])
                theirs.append(took[1])
                setting.say(f"run {number - WARM + 1}: ours {mine[-1]:.0f} ms, theirs {theirs[-1]:.0f} ms")
        sink.check(rows)
    return [
        compare_times(
            "top_n",
            what=f"{count:,} of {len(rows):,} rows change, the {N} greatest of {groups:,} groups: theirs over ours",
            rival="Spark's applyInPandasWithState, RocksDB with changelog checkpoints",
            must=">= 20",
            ours=mine,
            theirs=theirs,
            unit="ms",
        )
    ]


def _update(rows: Rows, count: int, changes: list[pa.Table]) -> pa.Table:
    changes.append(rows.update(count))
    return changes[-1]


def best(rows: Rows) -> np.ndarray:  # type: ignore[type-arg]
    """Return which rows are among the `N` greatest of their groups; of equal values the lower number is first."""
    ids = np.arange(len(rows))
    order = np.lexsort((ids, -rows.v, rows.g))
    groups = rows.g[order]
    place = ids - np.searchsorted(groups, groups)
    inside = np.zeros(len(rows), bool)
    inside[order[place < N]] = True
    return inside


@dataclass
class TopRows:
    """Adds up the rows that enter and leave the top."""

    rows: int
    name: str = "best"
    epochs: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.inside, self.v = (np.zeros(self.rows, np.int64) for _ in range(2))

    def write(self, epoch: int, rows: pa.Table) -> None:
        """Receive the delta of an epoch."""
        self.epochs.append(epoch)
        ids, v, weight = (rows.column(name).to_numpy() for name in ("id", "v", "_weight"))
        np.add.at(self.inside, ids, weight)
        np.add.at(self.v, ids, v * weight.astype(np.int64))

    def check(self, rows: Rows) -> None:
        """Check every row against a plain ranking."""
        wanted = best(rows)
        same("rows in and out as they should be", int((self.inside == wanted).sum()), len(rows))
        same("rows with the right value", int((self.v == np.where(wanted, rows.v, 0)).sum()), len(rows))


# ---- the rival ------------------------------------------------------------------------------------------------


class _Theirs:
    """Spark's running query; a file is a batch."""

    def __init__(self, setting: Setting, rows: Rows) -> None:
        self.folder, self.checkpoint = setting.fresh("changes"), setting.fresh("theirs")
        self.folder.mkdir()
        self.files = 0
        frame = _query(setting, self.folder)
        writer = frame.writeStream.format("noop").outputMode("update")
        self._write(rows.table())
        self.query = writer.option("checkpointLocation", str(self.checkpoint)).start()
        self.query.processAllAvailable()
        setting.say(f"theirs: {len(rows):,} rows processed in {epochs_ms(self.query.recentProgress)[0] / 1000:.1f} s")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.query.stop()
        shutil.rmtree(self.folder)
        shutil.rmtree(self.checkpoint, ignore_errors=True)

    def epoch(self, changes: list[pa.Table]) -> float:
        """Feed changes in one batch; return the milliseconds."""
        changed = pa.concat_tables(changes)
        self._write(changed)
        self.query.processAllAvailable()
        return epochs_ms(self.query.recentProgress, rows=changed.num_rows)[-1]

    def _write(self, changed: pa.Table) -> None:
        _write(changed, self.folder, self.files)
        self.files += 1


def _write(changed: pa.Table, folder: Path, number: int) -> None:
    hidden = folder / f".{number}"
    pq.write_table(changed, hidden)
    hidden.rename(folder / f"{number:05d}.parquet")  # Spark must not read half of a file


def _query(setting: Setting, folder: Path) -> Any:
    spark = setting.rival(rival.CHANGELOG)
    stream = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(folder))
    output, state = "g bigint, ids array<bigint>, vs array<bigint>", "ids binary, vs binary"
    return stream.groupBy("g").applyInPandasWithState(_rank, output, state, "update", "NoTimeout")


def _rank(key: tuple[int], parts: Iterator[Any], state: Any) -> Iterator[Any]:
    """Keep the rows of a group; yield its ten greatest when they have changed."""
    import numpy as np
    import pandas as pd

    ids, vs = (
        [np.frombuffer(our_app, np.int64) for our_app in state.get] if state.exists else [np.zeros(0, np.int64)] * 2
    )
    before = _ten(ids, vs)
    for part in parts:
        changed, last = np.unique(part["id"].to_numpy()[::-1], return_index=True)
        values = part["v"].to_numpy()[::-1][last]
        unchanged = ~np.isin(ids, changed)
        ids, vs = np.concatenate([ids[unchanged], changed]), np.concatenate([vs[unchanged], values])
    state.update((ids.tobytes(), vs.tobytes()))
    after = _ten(ids, vs)
    if after != before:
        yield pd.DataFrame({"g": [key[0]], "ids": [after[0]], "vs": [after[1]]})


def _ten(ids: Any, vs: Any) -> tuple[list[int], list[int]]:
    order = np.lexsort((ids, -vs))[:N]
    return ids[order].tolist(), vs[order].tolist()


def _check_theirs(setting: Setting, groups: int) -> None:
    """Check the rival's answer against a plain ranking, on fewer groups; this also warms it up."""
    rows = Rows(groups * (ROWS // GROUPS), groups, moving=False)
    folder = setting.fresh("changes")
    folder.mkdir()
    for number in range(3):
        _write(rows.update(len(rows) // 50) if number else rows.table(), folder, number)
    output = rival.collect_output(setting, _query(setting, folder), mode="update")
    with duckdb.connect() as con:
        last = f"SELECT g, max_by(ids, batch) AS ids FROM '{output}/**/*.parquet' GROUP BY g"
        found = con.execute(f"SELECT unnest(ids) AS id FROM ({last}) ORDER BY id").fetchnumpy()["id"]
    same("the rival's best rows", found.tolist(), np.flatnonzero(best(rows)).tolist())

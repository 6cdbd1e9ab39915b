"""`join_stream_table`: 2 M rows in 4 epochs look up a table of 1 M rows, 1 % of which change before each epoch.

Expected: half of the time of Spark, which has no stream-table join: a `foreachBatch` that joins each batch with the
table, reloaded from Parquet every time, since it has changed. Ours applies the changes to the state and joins the
rows with it, both in columns; the rival reads a million rows each time, and the changed table is written for it outside
the timing. A tenth of the rows match nothing.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bench.figure import Figure, compare_times, same
from bench.recompute import drop, write_parquet
from bench.stepped import SteppedApp

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.setting import Setting

ROWS, TABLE, CHANGED, EPOCHS = 2_000_000, 1_000_000, 0.01, 4
SEED = 20260131
FIRST, HOUR = 1_767_225_600_000_000, 3_600_000_000
LEFT, RIGHT = "k bigint, v bigint, at timestamp", "k bigint, name string, w bigint, since timestamp"


@dataclass(frozen=True)
class Part:
    """The input of one epoch, and its answer: rows, unmatched rows, a sum over both sides."""

    changes: pa.Table
    rows: pa.Table
    table: pa.Table
    answer: tuple[int, int, int]


class Dataset:
    """The current table, and the parts that change it and look it up."""

    def __init__(self, setting: Setting) -> None:
        self.random = np.random.default_rng(SEED)
        self.w = self.random.integers(0, 1_000_000, setting.rows(TABLE))
        self.part_rows = setting.rows(ROWS // EPOCHS)
        self.hour = 0

    def table(self, keys: np.ndarray | None = None) -> pa.Table:  # type: ignore[type-arg]
        """Return some rows of the table, or all."""
        keys = np.arange(len(self.w), dtype=np.int64) if keys is None else keys
        names = pc.binary_join_element_wise("name-", pa.array(keys % 1_000).cast(pa.string()), "")
        return pa.table({"k": keys, "name": names, "w": self.w[keys], "since": _times(self.hour, len(keys), 0)})

    def part(self) -> Part:
        """Change the table and return the next part."""
        self.hour += 1
        keys = self.random.choice(len(self.w), round(len(self.w) * CHANGED), replace=False)
        self.w[keys] = self.random.integers(0, 1_000_000, len(keys))
        probes = self.random.integers(0, len(self.w) + len(self.w) // 10, self.part_rows)
        values = self.random.integers(0, 100, self.part_rows)
        present = probes < len(self.w)
        total = int((values[present] * self.w[probes[present]]).sum())
        rows = pa.table({"k": probes, "v": values, "at": _times(self.hour, self.part_rows, HOUR // 2)})
        return Part(self.table(keys), rows, self.table(), (self.part_rows, int((~present).sum()), total))


def run(setting: Setting) -> list[Figure]:
    """Measure four epochs of ours and four batches of theirs in turn."""
    if not setting.spark_allowed:
        return []
    dataset = Dataset(setting)
    mine, theirs = [], []
    with OurApp(setting, dataset) as our_app:
        for number in range(1 + setting.runs(5, 3)):
            parts = [dataset.part() for _ in range(EPOCHS)]
            took = sum(our_app.epoch(part) for part in parts), _rival(setting, parts, checked=not number)
            setting.say(f"{'run ' + str(number) if number else 'warm'}: ours {took[0]:.0f} ms, theirs {took[1]:.0f} ms")
            if number:
                mine.append(took[0])
                theirs.append(took[1])
    return [
        compare_times(
            "join_stream_table",
            what=f"{EPOCHS} epochs of {dataset.part_rows:,} rows, a table of {len(dataset.w):,}: theirs over ours",
            rival="Spark, foreachBatch: the batch joined with the table, loaded from Parquet each time",
            must=">= 2",
            ours=mine,
            theirs=theirs,
            unit="ms",
        )
    ]


class OurApp(SteppedApp):
    """Our app on Spark with its table filled, and a sink that adds up its output."""

    name = "sums"

    def __init__(self, setting: Setting, dataset: Dataset) -> None:
        super().__init__(setting, "lookup")
        self.got = (0, 0, 0)
        table = self.table("table", RIGHT, key="k", event_time="since", partitions=2)
        rows = self.app.stream("rows", LEFT, event_time="at", partitions=2)
        rows.join(table.drop("since"), on="k", how="left").to(self)
        self.log.create_topic("rows", LEFT, event_time="at", partitions=2)
        all_rows = dataset.table()
        self.fill("table", len(all_rows), lambda first, last: all_rows.slice(first, last - first))
        self.start()

    def write(self, epoch: int, rows: pa.Table) -> None:  # noqa: ARG002 -- what a sink is given
        """Receive the rows of an epoch."""
        total = pc.sum(pc.multiply(rows.column("v"), rows.column("w"))).as_py() or 0
        alone = rows.column("w").null_count
        self.got = (self.got[0] + rows.num_rows, self.got[1] + alone, self.got[2] + total)

    def epoch(self, part: Part) -> float:
        """Feed the changes and the rows; return the milliseconds that Spark reports."""
        self.got = (0, 0, 0)
        half = part.rows.num_rows // 2
        rows = [("rows", part.rows.slice(0, half), 0), ("rows", part.rows.slice(half), 1)]
        took = self.step([("table", part.changes, None), *rows])
        same("our lookup", self.got, part.answer)
        return took


def _rival(setting: Setting, parts: Sequence[Part], *, checked: bool) -> float:
    """Run Spark's query over the parts, a batch each; return the milliseconds that it reports."""
    folder = setting.fresh("parts")
    for number, part in enumerate(parts):
        write_parquet(folder / f"table{number}", part.table, files=2)
        write_parquet(folder / "rows", part.rows, files=1, number=number)
    spark, answers = setting.rival({}), []

    def join_batch(batch: Any, number: int) -> None:
        table = spark.read.parquet(str(folder / f"table{number}")).drop("since")
        joined = batch.join(table, "k", "left")
        if checked:
            row = joined.selectExpr("count(*)", "count(*) - count(w)", "sum(v * w)").first()
            answers.append(tuple(row))
        else:
            drop(joined)

    read = spark.readStream.schema(LEFT).option("maxFilesPerTrigger", 1).parquet(str(folder / "rows"))
    writer = read.writeStream.foreachBatch(join_batch).option("checkpointLocation", str(setting.fresh("checkpoint")))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    batches = [batch for batch in query.recentProgress if batch["numInputRows"]]
    same("batches of the rival", len(batches), len(parts))
    if checked:
        same("the rival's join", answers, [part.answer for part in parts])
    shutil.rmtree(folder, ignore_errors=True)
    return float(sum(batch["durationMs"]["triggerExecution"] for batch in batches))


def _times(hour: int, count: int, after: int) -> pa.Array:
    at = FIRST + hour * HOUR + after + np.arange(count, dtype=np.int64) * 1_000
    return pa.array(at, pa.timestamp("us", "UTC"))

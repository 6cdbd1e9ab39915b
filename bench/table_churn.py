"""`table_churn`: a thousandth of a table of 20 M rows changes, and with it an aggregate over 100 k groups.

Expected: a tenth of the time in which Spark recomputes the aggregate. An epoch looks up 20 000 keys, and changes the
18 000 or so groups that their rows were and are in; a recomputation reads all rows. Writing the rival's input is not
timed: Parquet of the state, two columns, in the number of files that is fastest.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from bench.figure import Figure, compare_times, same
from bench.group_sums import AGGREGATES, GroupSums
from bench.recompute import computed_ms, in_turn, warm_in_turn, write_parquet
from bench.tables import Rows, TableApp

if TYPE_CHECKING:
    from pathlib import Path

    from bench.setting import Setting

ROWS, GROUPS = 20_000_000, 100_000
CHURN = 0.001
_FILES = (2, 8)


def run(setting: Setting) -> list[Figure]:
    """Measure epochs and recomputations in turn."""
    if not setting.spark_allowed:
        return []
    rows = Rows(setting.rows(ROWS), setting.rows(GROUPS), moving=True)
    sink, churn = GroupSums(rows.groups), max(1, round(len(rows) * CHURN))
    with TableApp(setting, rows, sink, lambda table: table.group_by("g").agg(**AGGREGATES)) as our_app:
        parquet = _best(setting, rows)
        epoch, recomputation = partial(our_app.epoch, lambda: rows.update(churn)), partial(_aggregate, setting, parquet)
        warm_in_turn(setting, epoch, recomputation)
        sink.check(rows)
        mine, theirs = in_turn(setting, epoch, recomputation)
        sink.check(rows)
    return [
        compare_times(
            "table_churn",
            what=f"{churn:,} upserts into {len(rows):,} rows, an aggregate of {rows.groups:,} groups: theirs over ours",
            rival=f"Spark recomputes the aggregate from Parquet, {parquet.name}",
            must=">= 10",
            ours=mine,
            theirs=theirs,
            unit="ms",
        )
    ]


def _best(setting: Setting, rows: Rows) -> Path:
    """Write the state as Parquet and return the folder that the rival reads fastest; the trials warm it up."""
    table = rows.table().select(["g", "v"])
    by_time = {}
    for files in _FILES:
        folder = setting.fresh("state") / f"{files} files"
        write_parquet(folder, table, files=files)
        answer = _aggregate(setting, folder).selectExpr("count(*)", "sum(n)", "sum(total)").first()
        same(f"Spark's answer from {folder.name}", tuple(answer), (rows.groups, len(rows), int(rows.v.sum())))
        took = min(computed_ms(partial(_aggregate, setting, folder)) for _ in range(4))
        setting.say(f"trial: theirs, {folder.name}: {took:.0f} ms")
        by_time[took] = folder
    return by_time[min(by_time)]


def _aggregate(setting: Setting, parquet: Path) -> Any:
    from pyspark.sql import functions as f

    read = setting.rival({}).read.schema("g bigint, v bigint").parquet(str(parquet))
    return read.groupBy("g").agg(f.count("*").alias("n"), f.sum("v").alias("total"))

"""`table_churn`: a table of 20 M rows changes by a thousandth; what that does to an aggregate over 100 k groups.

Expected: a tenth of the time in which Spark computes the aggregate anew. An epoch looks 20 000 keys up, and changes the
18 000 or so groups that their rows were and are in; a recomputation reads all rows. The rival is given its input for
nothing: Parquet of the state, written beforehand, two columns, as many files as it likes best.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from bench.anew import computed_ms, in_turn, write_parquet
from bench.figure import Figure, beside, same
from bench.group_sums import AGGREGATES, GroupSums
from bench.tables import Rows, Side

if TYPE_CHECKING:
    from pathlib import Path

    from bench.setting import Setting

ROWS, GROUPS = 20_000_000, 100_000
CHURN = 0.001
WARM = 5
_FILES = (2, 8)


def run(setting: Setting) -> list[Figure]:
    """Measure epochs and recomputations in turn."""
    if not setting.spark_allowed:
        return []
    rows = Rows(setting.rows(ROWS), setting.rows(GROUPS), moving=True)
    sink, churn = GroupSums(rows.groups), max(1, round(len(rows) * CHURN))
    with Side(setting, rows, sink, lambda table: table.group_by("g").agg(**AGGREGATES)) as side:
        for _ in range(WARM):
            side.epoch(lambda: rows.update(churn))
        sink.check(rows)
        parquet = _best(setting, rows)
        epoch, anew = partial(side.epoch, lambda: rows.update(churn)), partial(_aggregate, setting, parquet)
        mine, theirs = in_turn(setting, epoch, anew)
        sink.check(rows)
    return [
        beside(
            "table_churn",
            what=f"{churn:,} upserts into {len(rows):,} rows, an aggregate of {rows.groups:,} groups: theirs over ours",
            rival=f"Spark computes the aggregate anew from Parquet, {parquet.name}",
            must=">= 10",
            ours=mine,
            theirs=theirs,
            unit="ms",
        )
    ]


def _best(setting: Setting, rows: Rows) -> Path:
    """Write the state as Parquet and return what the rival reads fastest; the trials are its warm-up, too."""
    table = rows.table().select(["g", "v"])
    found = {}
    for files in _FILES:
        folder = setting.fresh("state") / f"{files} files"
        write_parquet(folder, table, files=files)
        answer = _aggregate(setting, folder).selectExpr("count(*)", "sum(n)", "sum(total)").first()
        same(f"Spark's answer from {folder.name}", tuple(answer), (rows.groups, len(rows), int(rows.v.sum())))
        took = min(computed_ms(partial(_aggregate, setting, folder)) for _ in range(4))
        setting.say(f"trial: theirs, {folder.name}: {took:.0f} ms")
        found[took] = folder
    return found[min(found)]


def _aggregate(setting: Setting, parquet: Path) -> Any:
    from pyspark.sql import functions as f

    read = setting.rival({}).read.schema("g bigint, v bigint").parquet(str(parquet))
    return read.groupBy("g").agg(f.count("*").alias("n"), f.sum("v").alias("total"))

"""`kafka_malformed`: a million records that are no bids among two million, against two million bids.

Expected: no less than 0.3 of the speed with clean input, though each bad record becomes a dead letter, in the same
transaction. The dead letters are then read as any consumer reads them: each has its reason, topic, partition and
offset, and they are those of the bad records.
"""

from __future__ import annotations

import json
import statistics
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from bench import kafka_bids
from bench.figure import Figure, paired, same
from bench.kafka_filter import Counted
from bench.kafka_race import bids_of, servers
from bench.kafka_race import run as run_ours

if TYPE_CHECKING:
    import headrace as hr
    from bench.kafka_bids import Bids
    from bench.setting import Setting

_ROWS = 2_000_000
_SCHEMA = "auction bigint, bidder bigint, price bigint, dateTime timestamp"
_BAD = ("is no JSON at all", '{"auction":', '{"auction":1,"bidder":2,"price":"dear"}', "[1, 2]", "\x00\x01")


def run(setting: Setting) -> list[Figure]:
    """Measure it."""
    at = servers(setting)
    rows = setting.rows(_ROWS)
    clean = kafka_bids.make(setting, at, rows=rows, name="clean")
    mixed = kafka_bids.make(setting, at, rows=rows, name="mixed", change=_with_bad_ones)
    figures = []
    for where, on_spark in (("on Spark", True), ("in process", False)):
        if on_spark and not setting.spark_allowed:
            continue
        times: dict[str, list[float]] = {"clean": [], "mixed": []}
        for number in range(1 + setting.runs(3, 1)):
            took = _measure(setting, clean, rows, on_spark), _measure(setting, mixed, rows // 2, on_spark)
            setting.say(f"{where}: clean {took[0]:.2f} s, half of them malformed {took[1]:.2f} s")
            if number:  # the first runs are cold
                times["clean"].append(took[0])
                times["mixed"].append(took[1])
            _check_dead_letters(mixed, rows // 2)
            kafka_bids.delete(at, f"{mixed.topic}.dead")
        ratio, spread = paired(times["clean"], times["mixed"])
        figures.append(
            Figure(
                bench="kafka_malformed",
                what=f"{rows:,} records, {rows // 2:,} of them malformed, {where}: speed against that of clean ones",
                rival="itself on clean records",
                ratio=ratio,
                spread=spread,
                must=">= 0.3",
                ours=statistics.median(times["mixed"]),
                theirs=statistics.median(times["clean"]),
                unit="s",
                runs=len(times["clean"]),
            )
        )
    kafka_bids.delete(at, clean.topic, mixed.topic)
    return figures


def _with_bad_ones(values: pa.Array) -> pa.Array:
    """Replace every second record."""
    numbers = pa.array(range(len(values)))
    bad = pa.array([each.encode() for each in _BAD], pa.binary())
    kind = pc.subtract(pc.divide(numbers, 2), pc.multiply(pc.divide(pc.divide(numbers, 2), len(_BAD)), len(_BAD)))
    return pc.if_else(pc.equal(pc.bit_wise_and(numbers, 1), 1), bad.take(kind), values)


def _measure(setting: Setting, bids: Bids, good: int, on_spark: bool) -> float:  # noqa: FBT001 -- a carrier
    counted = Counted()

    def steps(app: hr.App) -> None:
        read: Any = bids_of(app, bids, _SCHEMA)
        read.select("auction", "price").to(counted)

    seconds = run_ours(setting, bids, steps, on_spark=on_spark)
    same("good records", counted.rows, good)
    return seconds


def _check_dead_letters(bids: Bids, count: int) -> None:
    """Read the dead letters, and compare them with the records that they name."""
    found = set()
    for value in kafka_bids.values(bids.servers, f"{bids.topic}.dead"):
        letter = json.loads(value)
        same("the topic of a dead letter", letter["topic"], bids.topic)
        same("dead letters without a reason", int(not letter["reason"]), 0)
        found.add((int(letter["partition"]), int(letter["offset"])))
    same("dead letters", len(found), count)

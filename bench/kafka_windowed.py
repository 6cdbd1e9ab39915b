"""`kafka_windowed`: count and sum by auction in windows of 10 s, from JSON in Kafka.

Expected: 4 times the speed of Spark, 1.5 times that of Flink's warm run, twice that of Kafka Streams (which only
counts, and is exactly once), 10 times that of Quix and Bytewax. The rivals in Python run once: they take minutes.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import headrace as hr
from bench import kafka_bids, kafka_peers
from bench.figure import same
from bench.kafka_filter import BIDS, WARM
from bench.kafka_race import Race, bids_of, python_rival, servers
from bench.kafka_race import run as run_ours
from bench.kafka_spark import Job
from bench.sums import Sums

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from bench.figure import Figure, Skipped
    from bench.kafka_bids import Bids
    from bench.setting import Setting

_GROUPS = """(SELECT count(*) AS n, sum(price) AS total, time_bucket(INTERVAL 10 seconds, dateTime) AS w
              FROM bid GROUP BY auction, w)"""
_ANSWER = f"SELECT count(*), sum(n), sum(total) FROM {_GROUPS}"
Answer = tuple[int, ...]


def run(setting: Setting) -> list[Figure | Skipped]:
    """Measure it."""
    bids = kafka_bids.make(setting, servers(setting), rows=setting.rows(BIDS), name="windowed")
    truth = bids.ask(_ANSWER)
    what = f"{bids.rows:,} bids in {truth[0]:,} groups"
    race = Race(setting, "kafka_windowed", what, partial(_mine, setting, bids, truth))
    race.run(1, warm=True)
    race.run(setting.runs(3, 2))
    if setting.spark_allowed:
        race.against("Spark with its connector, RocksDB, warm", ">= 4", partial(_spark, setting, bids, truth))
    race.against("Flink SQL, warm", ">= 1.5", partial(_flink, setting, bids, truth))
    race.against("Kafka Streams, exactly once, its count alone", ">= 2", partial(_streams, setting, bids))
    for rival, must, arguments in (
        ("quix", ">= 10", []),
        ("bytewax", ">= 10", ["--wait", "10"]),
        ("pathway", None, ["--expect", str(bids.rows), "--records", str(bids.rows)]),
    ):
        race.against(rival, must, partial(_python, setting, bids, rival, arguments, truth))
    race.run(1, warm=True)  # Spark has ended the Python workers that had nothing to do
    race.run(setting.runs(3, 2))
    kafka_bids.delete(bids.servers, bids.topic)
    return list(race.figures())


def _mine(setting: Setting, bids: Bids, truth: Answer, on_spark: bool) -> float:  # noqa: FBT001 -- a carrier
    sums = Sums()

    def steps(app: hr.App) -> None:
        read: Any = bids_of(app, bids, "auction bigint, price bigint, dateTime timestamp")
        windows = read.group_by("auction").window(hr.tumbling("10 s", grace="1 s"))
        windows.agg(n="count(*)", total="sum(price)").to(sums)

    seconds = run_ours(setting, bids, steps, on_spark=on_spark)
    same("our windows", (sums.rows, sums.n, sums.total), truth)
    return seconds


def _spark(setting: Setting, bids: Bids, truth: Answer) -> list[float]:
    """Return the times of the faster of Spark's two ways: all in one batch, and half a million records a batch."""
    ways = []
    for batch in (0, 500_000) if setting.scale >= 1 else (0,):
        results = Job("windowed", bids.servers, bids.topic, runs=WARM + setting.runs(3, 1), batch=batch).results()
        if not batch:
            for each in results:
                same("Spark's windows", (each["groups"], each["n"], each["total"]), truth)
        ways.append([each["seconds"] for each in results[WARM:]])
    return min(ways, key=min)


def _flink(setting: Setting, bids: Bids, truth: Answer) -> list[float]:
    rows = kafka_peers.flink_answer(bids, "windowed", setting.fresh("flink"))
    same("Flink's windows", (len(rows), sum(int(row[1]) for row in rows), sum(int(row[2]) for row in rows)), truth)
    return kafka_peers.flink(bids, "windowed", runs=WARM + setting.runs(3, 1))[WARM:]


def _streams(setting: Setting, bids: Bids) -> list[float]:
    return [kafka_peers.streams(bids, "count", setting.fresh("streams"))[0] for _ in range(setting.runs(3, 1))]


def _python(setting: Setting, bids: Bids, program: str, arguments: Sequence[str], truth: Answer) -> list[float]:
    def measure(folder: Path) -> float:
        found = kafka_peers.python(bids, program, "W1", *arguments, folder=folder)
        answer, right = (found["out"], found["count"], found["sum"]), truth
        if program == "quix":  # its last windows wait for a later record of their partition
            right = bids.ask(f"{_ANSWER} WHERE w < (SELECT max(w) FROM {_GROUPS})")
        same(f"{program}'s windows", answer, right)
        return float(found["seconds"])

    return python_rival(setting.fresh(program), measure)

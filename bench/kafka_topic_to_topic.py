"""`kafka_topic_to_topic`: bids from one topic to another, four of seven columns, JSON on both sides.

Expected: twice the speed of Spark, though its sink is at least once and ours exactly once, and that of Flink's
exactly-once sink. The time is until the copy can be read with read_committed.
"""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any

from bench import kafka_bids, kafka_peers
from bench.figure import same
from bench.kafka_filter import BIDS, WARM
from bench.kafka_race import Race, bids_of, servers
from bench.kafka_race import run as run_ours
from bench.kafka_spark import Job

if TYPE_CHECKING:
    import headrace as hr
    from bench.figure import Figure, Skipped
    from bench.kafka_bids import Bids
    from bench.setting import Setting

_COLUMNS = "auction bigint, bidder bigint, price bigint, dateTime timestamp"
_ANSWER = "SELECT count(*), sum(auction), sum(bidder), sum(price) FROM bid"
Answer = tuple[int, ...]


def run(setting: Setting) -> list[Figure | Skipped]:
    """Measure it."""
    bids = kafka_bids.make(setting, servers(setting), rows=setting.rows(BIDS), name="copied")
    truth = bids.ask(_ANSWER)
    what = f"{bids.rows:,} bids from topic to topic, exactly once"
    race = Race(setting, "kafka_topic_to_topic", what, partial(_mine, setting, bids, truth))
    race.run(1, warm=True)
    race.run(setting.runs(2, 1))
    if setting.spark_allowed:
        race.against("Spark with its connector, at least once, warm", ">= 2", partial(_spark, setting, bids, truth))
    race.against("Flink SQL, exactly once, warm", ">= 1", partial(_flink, setting, bids, truth))
    race.run(1, warm=True)  # Spark has ended the Python workers that had nothing to do
    race.run(setting.runs(2, 1))
    kafka_bids.delete(bids.servers, bids.topic)
    return list(race.figures())


def _mine(setting: Setting, bids: Bids, truth: Answer, on_spark: bool) -> float:  # noqa: FBT001 -- a carrier
    to = _topic(setting, bids)

    def steps(app: hr.App) -> None:
        read: Any = bids_of(app, bids, _COLUMNS)
        read.to_topic(to)

    seconds = run_ours(setting, bids, steps, on_spark=on_spark)
    _check("our copy", bids, to, truth)
    return seconds


def _spark(setting: Setting, bids: Bids, truth: Answer) -> list[float]:
    times = []
    for _ in range(setting.runs(2, 1)):  # each run adds to the topic: only the last one's time is warm
        to, runs = _topic(setting, bids), WARM + 1
        results = Job("copy", bids.servers, bids.topic, runs=runs, to=to).results()
        _check("Spark's copies", bids, to, tuple(runs * number for number in truth))
        times.append(results[-1]["seconds"])
    return times


def _flink(setting: Setting, bids: Bids, truth: Answer) -> list[float]:
    runs = WARM + setting.runs(2, 1)
    to = f"{bids.topic}-flink"
    for number in range(1, runs + 1):
        kafka_bids.create(bids.servers, f"{to}{number}", partitions=kafka_bids.PARTITIONS)
    times = kafka_peers.flink_copy(bids, to, runs=runs)
    for number in range(1, runs + 1):
        _check("Flink's copy", bids, f"{to}{number}", truth)
    return times[WARM:]


def _topic(setting: Setting, bids: Bids) -> str:
    topic = f"{bids.topic}-{setting.fresh('copy').name}"
    kafka_bids.create(bids.servers, topic, partitions=kafka_bids.PARTITIONS)
    return topic


def _check(whose: str, bids: Bids, topic: str, truth: Answer) -> None:
    """Read a copy with read_committed, compare its sums with those of the bids, and delete it."""
    found = [0] * len(truth)
    for value in kafka_bids.values(bids.servers, topic):
        row = json.loads(value)
        for at, number in enumerate((1, row["auction"], row["bidder"], row["price"])):
            found[at] += number
    same(whose, tuple(found), truth)
    kafka_bids.delete(bids.servers, topic)

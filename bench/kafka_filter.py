"""`kafka_filter`: reading and decoding alone. One column of seven is needed, and few rows pass.

Expected: 3 times the speed of Spark, whose connector hands each record to the JVM as an object and parses the JSON with
Jackson; 1.2 times that of Flink, whose warm run is the fastest of those known. Ours takes record batches as bytes and
decodes only what the plan needs.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from bench import kafka_bids, kafka_peers
from bench.figure import same
from bench.kafka_race import Race, bids_of, servers
from bench.kafka_race import run as run_ours
from bench.kafka_spark import DIVISOR, Job

if TYPE_CHECKING:
    import pyarrow as pa

    import headrace as hr
    from bench.figure import Figure, Skipped
    from bench.kafka_bids import Bids
    from bench.setting import Setting

BIDS = 4_600_000
WARM = 2
"""So many runs of a rival's JVM come before those that count."""


class Counted:
    """A sink that counts rows."""

    def __init__(self) -> None:
        """Begin at 0."""
        self.name, self.rows = "counted", 0

    def write(self, epoch: int, rows: pa.Table) -> None:
        """Receive the rows of an epoch."""
        del epoch
        self.rows += rows.num_rows


def run(setting: Setting) -> list[Figure | Skipped]:
    """Measure it."""
    bids = kafka_bids.make(setting, servers(setting), rows=setting.rows(BIDS), name="filter")
    truth = bids.ask(f"SELECT count(*) FROM bid WHERE auction % {DIVISOR} = 0")[0]
    race = Race(
        setting, "kafka_filter", f"{bids.rows:,} bids filtered and counted", partial(_mine, setting, bids, truth)
    )
    race.run(1, warm=True)
    race.run(setting.runs(3, 2))
    if setting.spark_allowed:
        race.against("Spark with its connector, warm", ">= 3", partial(_spark, setting, bids, truth))
    race.against("Flink SQL, warm", ">= 1.2", partial(_flink, setting, bids, truth))
    race.run(1, warm=True)  # Spark has ended the Python workers that had nothing to do
    race.run(setting.runs(3, 2))
    kafka_bids.delete(bids.servers, bids.topic)
    return list(race.figures())


def _mine(setting: Setting, bids: Bids, truth: int, on_spark: bool) -> float:  # noqa: FBT001 -- a carrier
    counted = Counted()

    def steps(app: hr.App) -> None:
        bids_of(app, bids, "auction bigint").where(f"auction % {DIVISOR} = 0").to(counted)  # type: ignore[attr-defined]

    seconds = run_ours(setting, bids, steps, on_spark=on_spark)
    same("bids that we counted", counted.rows, truth)
    return seconds


def _spark(setting: Setting, bids: Bids, truth: int) -> list[float]:
    results = Job("filter", bids.servers, bids.topic, runs=WARM + setting.runs(3, 1)).results()
    for each in results:
        same("bids that Spark read and counted", (each["rows"], each["n"]), (bids.rows, truth))
    return [each["seconds"] for each in results[WARM:]]


def _flink(setting: Setting, bids: Bids, truth: int) -> list[float]:
    rows = kafka_peers.flink_answer(bids, "filter", setting.fresh("flink"))
    same("bids that Flink counted", [int(row[0]) for row in rows], [truth])
    return kafka_peers.flink(bids, "filter", runs=WARM + setting.runs(3, 1))[WARM:]

"""Play simulated cases from seeds, and print those that fail, made small, as tests to paste.

    python scripts/simulate.py [--seeds 0..1000] [--accidents] [--spark] [--minutes 60] [--json]

A seed gives an app of random steps, its input, and what happens to it (`headrace.testing.simulate`). Every output must
be what the batch query over the same input gives. DuckDB answers it; with `--spark-oracle` batch Spark SQL does, from
the same text. `--spark` runs the app on Spark, all cases in one session; `--threads` as in a worker of Spark. With
`--accidents` older copies are put back, commits are lost, bits are flipped, steps are reset and programs change; how
that ended is counted. Ends with 1 if a case failed. `--minutes` and SIGTERM end the run early, after the case that
runs.
"""

from __future__ import annotations

import argparse
import gc
import json
import logging
import signal
import sys
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

from headrace.engine.spark.session import session
from headrace.testing.simulation import simulate

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa


class SparkOracle:
    """Batch Spark SQL: one session for all cases."""

    def __init__(self, spark: Any) -> None:
        self.spark = spark

    def answer(self, tables: Mapping[str, pa.Table], queries: Sequence[str]) -> list[pa.Table]:
        """Return the result of each query."""
        for name, table in tables.items():
            self.spark.createDataFrame(table).createOrReplaceTempView(name)
        return [self.spark.sql(query).toArrow() for query in queries]


def seeds(text: str) -> range:
    """Return the seeds of `A..B`, B not included, or of a number."""
    first, dots, last = text.partition("..")
    return range(int(first), int(last) if dots else int(first) + 1)


def main(arguments: Sequence[str] | None = None) -> int:
    """Play the cases that the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=seeds, help="A..B, or one seed")
    parser.add_argument("--seed", type=int, default=0, help="where to begin, without --seeds")
    parser.add_argument("--count", type=int, default=200, help="how many, without --seeds")
    parser.add_argument("--minutes", type=float, default=float("inf"))
    parser.add_argument("--spark", action="store_true", help="run the app on Spark")
    parser.add_argument("--threads", action="store_true", help="shards in threads, caches that take turns")
    parser.add_argument("--spark-oracle", action="store_true", help="let Spark answer the batch query")
    parser.add_argument("--accidents", action="store_true", help="older copies, lost commits, flipped bits, changes")
    parser.add_argument("--json", action="store_true", help="print one object a failure, and one in the end")
    asked = parser.parse_args(arguments)
    chosen = asked.seeds if asked.seeds is not None else range(asked.seed, asked.seed + asked.count)
    spark = session(master="local[2]") if asked.spark_oracle or asked.spark else None
    oracle = SparkOracle(spark) if asked.spark_oracle else None
    endings = Counter[str]()
    options: dict[str, Any] = {
        "oracle": oracle,
        "carrier": "spark" if asked.spark else "threads" if asked.threads else "in process",
    }
    if asked.accidents:
        options |= {"accidents": True, "endings": endings}
        logging.getLogger("headrace").setLevel(logging.ERROR)  # each recovery is a warning
    if asked.spark:
        options["most_plays"] = 30
    began, played, failed = time.monotonic(), 0, Counter[str]()
    stopped: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: stopped.append(number))
    gc.freeze()  # what was imported stays
    gc.set_threshold(50_000, 20, 100)  # a case leaves little in cycles: looked for less often, 3 % of the time
    for seed in chosen:
        if stopped or time.monotonic() - began > asked.minutes * 60:
            break
        finding = simulate(seed, **options)
        played += 1
        if finding is not None:
            failed[finding.failure.kind] += 1
            shown = {"seed": seed, "kind": finding.failure.kind, "detail": finding.failure.detail,
                     "test": finding.case.text()}  # fmt: skip
            print(json.dumps(shown) if asked.json else finding.text(), flush=True)
    seconds = round(time.monotonic() - began, 1)
    total = {
        "first": chosen.start,
        "schedules": played,
        "failed": dict(failed),
        "seconds": seconds,
        "ended": dict(endings),
    }
    by_kind = f": {', '.join(f'{count} {kind}' for kind, count in failed.items())}" if failed else ""
    print(json.dumps(total) if asked.json else f"{played} schedules from seed {chosen.start} on, {seconds:.0f} s: "
          f"{sum(failed.values())} failed{by_kind}")  # fmt: skip
    if not asked.json:
        print("".join(f"{count:6} {ending}\n" for ending, count in sorted(endings.items())), end="")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

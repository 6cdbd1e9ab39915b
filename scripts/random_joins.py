"""Random joins against their rules: `python scripts/random_joins.py --count 2000 --seed 1 [--kind streams]`.

A kind is a module of tests/law that makes a case of a seed (`random_case`) and holds it against its rules after every
epoch (`play`). A failure prints kind, seed and case; `--only SEED` repeats it. `--kind tables --spark` holds the cases,
many in one query, against Spark SQL instead. Ends with 1 if any failed.
"""

import argparse
import importlib
import sys
import time
from pathlib import Path

from headrace.kernels.state import keyed

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "law"))
keyed.FEWER = 0  # tables of a few rows would be given whole: so every row is looked up by its hash

KINDS = {
    "lookups": "lookup_rules",
    "streams": "stream_rules",
    "tables": "table_joins",
    "versions": "version_rules",
}
BATCH = 500


def main() -> int:
    """Play as many cases as asked, of every kind in turn."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=2_000, help="how many cases of each kind")
    parser.add_argument("--seed", type=int, default=1, help="the first of the seeds")
    parser.add_argument("--kind", choices=sorted(KINDS), help="one kind alone")
    parser.add_argument("--only", type=int, help="the seed of one case, as a failure printed it")
    parser.add_argument("--spark", action="store_true", help="joins of tables against Spark SQL")
    asked = parser.parse_args()
    seeds = [asked.only] if asked.only is not None else range(asked.seed, asked.seed + asked.count)
    if asked.spark:
        return 1 if against_spark(list(seeds)) else 0
    failed = 0
    for kind in [asked.kind] if asked.kind else sorted(KINDS):
        rules, began = importlib.import_module(KINDS[kind]), time.perf_counter()
        for done, seed in enumerate(seeds, 1):
            case = rules.random_case(seed)
            try:
                rules.play(case)
            except Exception as error:  # noqa: BLE001 -- whatever it is, the case shows it again
                failed += 1
                print(f"{kind} {seed}: {type(error).__name__}: {error}\n  {case}", flush=True)
            if done % 100 == 0 or done == len(seeds):
                seconds = time.perf_counter() - began
                print(f"{kind}: {done:,} cases, {failed} failed so far, {seconds:.0f} s", file=sys.stderr, flush=True)
    return 1 if failed else 0


def against_spark(seeds: list[int]) -> int:
    """Hold joins of tables against Spark SQL; return how many differ."""
    from table_joins import ask_spark, random_case, wrong

    from headrace.engine.spark.session import session

    started, began, differ = session(master="local[2]"), time.perf_counter(), 0
    for at in range(0, len(seeds), BATCH):
        cases = [random_case(seed) for seed in seeds[at : at + BATCH]]
        for seed, join, epoch, ours, theirs in wrong(cases, ask_spark(started), shards=1 + at // BATCH % 2):
            differ += 1
            print(f"tables {seed}: {join}, epoch {epoch}\n  ours alone {ours}\n  Spark's alone {theirs}", flush=True)
        seconds = time.perf_counter() - began
        print(
            f"tables: {at + len(cases):,} cases, {differ} differ so far, {seconds:.0f} s", file=sys.stderr, flush=True
        )
    started.stop()
    return differ


if __name__ == "__main__":
    sys.exit(main())

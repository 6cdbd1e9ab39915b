"""Mutated texts for all that reads texts: `python scripts/fuzz_texts.py --count 15000 --seed 1`.

Expressions, conditions, aggregates, orders, queries, schemas, types, durations, instants, names and windows
(tests/fuzz/fuzzing.py). Each is taken or refused by an error of ours within two seconds. A fault prints its seed; that
of a seed alone is repeated by `--only SEED`. Ends with 1 if there is any.
"""

import argparse
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "fuzz"))


def main() -> int:
    """Try as many texts as asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=15_000, help="how many texts")
    parser.add_argument("--seed", type=int, default=1, help="the first of the seeds")
    parser.add_argument("--only", help="the seed of one text, as a fault printed it")
    asked = parser.parse_args()
    from fuzzing import fault_of

    began, faults = time.perf_counter(), 0
    seeds = [asked.only] if asked.only else [f"{asked.seed}.{place}" for place in range(asked.count)]
    for seed in seeds:
        fault = fault_of(seed)
        if fault is not None:
            faults += 1
            print(fault, flush=True)
    print(f"{len(seeds):,} texts, {faults} faults, {time.perf_counter() - began:.0f} s", flush=True)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())

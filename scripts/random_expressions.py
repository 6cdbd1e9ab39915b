"""Random expressions against Spark: `python scripts/random_expressions.py --count 100000 --seed 1`.

They are made from the table of translations (tests/expressions/generator.py) and compared value for value, error for
error and type for type. A difference prints its seed, the smallest part that differs, the row and both values; the
batch of a seed alone is repeated by `--only SEED`. Ends with 1 if anything differs.
"""

import argparse
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "expressions"))


def main() -> int:
    """Compare as many expressions as asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=100_000, help="how many expressions")
    parser.add_argument("--seed", type=int, default=1, help="the first of the seeds")
    parser.add_argument("--only", help="the seed of one batch, as a difference printed it")
    parser.add_argument("--batch", type=int, default=60, help="expressions a batch; part of what a seed means")
    asked = parser.parse_args()
    from random_comparison import batch
    from rivals import Duck, Spark, session

    started = session()
    rivals = Spark(started), Duck()
    batches = -(-asked.count // asked.batch)
    seeds = [asked.only] if asked.only else [f"{asked.seed}.{place}" for place in range(batches)]
    differences, began = 0, time.perf_counter()
    for done, seed in enumerate(seeds, 1):
        for found in batch(rivals, seed, asked.batch):
            differences += 1
            print(found, flush=True)
        if done % 20 == 0 or done == len(seeds):
            seconds = time.perf_counter() - began
            print(
                f"{done * asked.batch:,} expressions, {differences} differ, {seconds:.0f} s",
                file=sys.stderr,
                flush=True,
            )
    started.stop()
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
